import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Locale;
import java.util.Optional;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

/** What is done to a loaded log; each by the name under "do". "now_ms" sets the clock. */
final class Steps {
    private Steps() { }

    static void run(Opened opened, JsonNode step, ObjectNode done) throws Exception {
        UnifiedLog log = opened.log;
        if (step.hasNonNull("now_ms")) opened.clock.now = step.get("now_ms").asLong();
        switch (step.get("do").asText()) {
            case "append" -> appended(lead(log, step), log, step, done);
            case "follow" -> appended(log.appendAsFollower(records(step), epoch(step)), log, step, done);
            case "roll" -> done.put("base_offset", log.roll(Optional.empty()).baseOffset());
            case "flush" -> {
                log.flush(step.path("all").asBoolean(true));
                done.put("recovery_point", log.recoveryPoint());
            }
            case "truncate" -> done.put("changed", log.truncateTo(step.get("to").asLong()));
            case "start_over" ->
                log.truncateFullyAndStartAt(step.get("to").asLong(), Optional.empty());
            case "start_at" -> done.put("changed", log.maybeIncrementLogStartOffset(
                step.get("to").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion));
            case "retain" -> done.put("deleted", log.deleteOldSegments());
            case "epoch" -> log.assignEpochStartOffset(epoch(step), log.logEndOffset());
            case "clean" -> Cleaning.run(opened, step, done);
            case "settle" -> opened.tasks.runDelayed();
            case "epoch_end" -> log.endOffsetForEpoch(epoch(step)).ifPresent(
                end -> done.put("epoch", end.epoch()).put("offset", end.offset()));
            case "find" -> found(log, step, done);
            case "read" -> read(log, step, done);
            default -> throw new IllegalArgumentException(step.toString());
        }
    }

    private static LogAppendInfo lead(UnifiedLog log, JsonNode step) throws IOException {
        AppendOrigin origin =
            AppendOrigin.valueOf(step.path("origin").asText("client").toUpperCase(Locale.ROOT));
        short version = (short) (origin == AppendOrigin.COORDINATOR ? 1 : -1);
        return log.appendAsLeader(records(step), epoch(step), origin, RequestLocal.noCaching(),
            VerificationGuard.SENTINEL, version);
    }

    private static MemoryRecords records(JsonNode step) throws IOException {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Pipe.bytes(step.get("data"))));
    }

    private static int epoch(JsonNode step) {
        return step.path("epoch").asInt(0);
    }

    private static void appended(LogAppendInfo info, UnifiedLog log, JsonNode step, ObjectNode done)
        throws IOException {
        if (step.path("leader").asBoolean(true))
            log.maybeIncrementHighWatermark(log.logEndOffsetMetadata());
        done.put("first_offset", info.firstOffset()).put("last_offset", info.lastOffset());
        done.put("max_timestamp", info.maxTimestamp());
        done.put("log_append_time", info.logAppendTime());
        done.put("log_start_offset", info.logStartOffset()).put("valid_bytes", info.validBytes());
    }

    private static void found(UnifiedLog log, JsonNode step, ObjectNode done) {
        log.fetchOffsetByTimestamp(step.get("timestamp").asLong(), Optional.empty())
            .timestampAndOffsetOpt().ifPresent(found -> {
                done.put("timestamp", found.timestamp).put("offset", found.offset);
                done.put("leader_epoch", found.leaderEpoch.orElse(-1));
            });
    }

    /** Bytes that one fetch gives, where they lie, and the aborted transactions beside them. */
    private static void read(UnifiedLog log, JsonNode step, ObjectNode done) throws IOException {
        FetchIsolation isolation =
            FetchIsolation.valueOf(step.path("isolation").asText("log_end").toUpperCase(Locale.ROOT));
        FetchDataInfo info = log.read(step.get("from").asLong(), step.path("bytes").asInt(1 << 20),
            isolation, step.path("one").asBoolean(true));
        ByteBuffer read = ByteBuffer.allocate(info.records.sizeInBytes());
        if (info.records instanceof FileRecords file) file.readInto(read, 0);
        else read.put(((MemoryRecords) info.records).buffer().duplicate()).flip();
        done.set("data", Pipe.binary(read));
        done.put("segment", info.fetchOffsetMetadata.segmentBaseOffset);
        done.put("position", info.fetchOffsetMetadata.relativePositionInSegment);
        done.put("incomplete", info.firstEntryIncomplete);
        ArrayNode aborted = done.putArray("aborted");
        info.abortedTransactions.ifPresent(list -> list.forEach(
            one -> aborted.addArray().add(one.producerId()).add(one.firstOffset())));
    }
}
