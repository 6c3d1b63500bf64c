import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.TreeMap;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** What a loaded log is like. Index files are left to the asker, who can see them lie. */
final class Told {
    private Told() { }

    static JsonNode log(Opened opened) throws IOException {
        UnifiedLog log = opened.log;
        ObjectNode told = Pipe.NEW.objectNode();
        told.put("log_start_offset", log.logStartOffset());
        told.put("log_end_offset", log.logEndOffset());
        told.put("high_watermark", log.highWatermark());
        told.put("last_stable_offset", log.lastStableOffset());
        told.put("recovery_point", log.recoveryPoint());
        ArrayNode epochs = told.putArray("epochs");
        log.leaderEpochCache().epochEntries().forEach(
            entry -> epochs.addArray().add(entry.epoch()).add(entry.startOffset()));
        ArrayNode producers = told.putArray("producers");
        new TreeMap<>(log.producerStateManager().activeProducers()).values().forEach(
            entry -> producers.add(producer(entry)));
        ArrayNode segments = told.putArray("segments");
        for (LogSegment one : log.logSegments()) segments.add(segment(one));
        entries(log.activeSegment(), told.putObject("entries"));
        return told;
    }

    /** Entries of the last segment's indexes, behind which the files hold anything. */
    private static void entries(LogSegment active, ObjectNode told) throws IOException {
        told.put("index", active.offsetIndex().entries());
        told.put("timeindex", active.timeIndex().entries());
    }

    private static JsonNode segment(LogSegment segment) {
        ObjectNode told = Pipe.NEW.objectNode();
        told.put("base_offset", segment.baseOffset()).put("size", segment.size());
        ArrayNode aborted = told.putArray("aborted");
        segment.txnIndex().allAbortedTxns().forEach(one -> aborted.addArray()
            .add(one.producerId()).add(one.firstOffset())
            .add(one.lastOffset()).add(one.lastStableOffset()));
        return told;
    }

    private static JsonNode producer(ProducerStateEntry entry) {
        ObjectNode told = Pipe.NEW.objectNode();
        told.put("id", entry.producerId()).put("epoch", entry.producerEpoch());
        told.put("coordinator_epoch", entry.coordinatorEpoch());
        told.put("last_timestamp", entry.lastTimestamp());
        if (entry.currentTxnFirstOffset().isPresent())
            told.put("transaction_from", entry.currentTxnFirstOffset().getAsLong());
        else told.putNull("transaction_from");
        ArrayNode batches = told.putArray("batches");
        for (BatchMetadata batch : entry.batchMetadata())
            batches.addArray().add(batch.lastSeq()).add(batch.lastOffset())
                .add(batch.offsetDelta()).add(batch.timestamp());
        return told;
    }
}
