import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.function.Supplier;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.LegacyRecord;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/** What Kafka reads out of bytes. */
final class Reading {
    private Reading() { }

    /** Every batch of "data" with its header and its records, as far as each can be read. */
    static void parse(JsonNode request, ObjectNode answer) throws Exception {
        byte[] data = Pipe.bytes(request.get("data"));
        ArrayNode batches = answer.putArray("batches");
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        int position = 0;
        try {
            for (MutableRecordBatch batch : records.batches()) {
                batches.add(batch(batch, position));
                position += batch.sizeInBytes();
            }
        } finally {
            answer.put("end_position", position);
        }
    }

    private static ObjectNode batch(MutableRecordBatch batch, int position) {
        ObjectNode one = Pipe.NEW.objectNode();
        one.put("position", position).put("size", batch.sizeInBytes()).put("magic", batch.magic());
        guard(one, "error", () -> header(batch, one));
        one.put("crc_ok", batch.isValid());
        ArrayNode records = one.putArray("records");
        guard(one, "records_error", () -> {
            for (Record record : batch) records.add(record(record));
        });
        if (batch.magic() >= 2) guard(one, "skip_error", () -> skip(batch));
        return one;
    }

    private static void header(RecordBatch batch, ObjectNode one) {
        one.put("last_offset", batch.lastOffset());
        one.put("timestamp_type", batch.timestampType().name);
        one.put("max_timestamp", batch.maxTimestamp());
        one.put("crc", batch.checksum());
        one.put("producer_id", batch.producerId());
        one.put("producer_epoch", batch.producerEpoch());
        one.put("base_sequence", batch.baseSequence());
        one.put("last_sequence", batch.lastSequence());
        one.put("leader_epoch", batch.partitionLeaderEpoch());
        one.put("transactional", batch.isTransactional());
        one.put("control", batch.isControlBatch());
        one.put("count", batch.countOrNull());
        if (batch.deleteHorizonMs().isPresent())
            one.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
        else one.putNull("delete_horizon_ms");
        if (batch instanceof DefaultRecordBatch current) {
            one.put("base_offset", current.baseOffset());
            one.put("base_timestamp", current.baseTimestamp());
        }
        one.put("codec", batch.compressionType().name);
    }

    /** [offset, timestamp, sequence, key, value, headers]. */
    private static ArrayNode record(Record record) {
        ArrayNode row = Pipe.NEW.arrayNode();
        row.add(record.offset()).add(record.timestamp()).add(record.sequence());
        row.add(Pipe.binary(record.key())).add(Pipe.binary(record.value()));
        return row.add(Driver.pairs(record.headers()));
    }

    /** The iterator of brokers, which skips keys and values. */
    private static void skip(RecordBatch batch) {
        Iterator<Record> records =
            ((DefaultRecordBatch) batch).skipKeyValueIterator(BufferSupplier.NO_CACHING);
        while (records.hasNext()) records.next();
    }

    /** One message of magic 0 or 1, without offset and size. */
    static void message(JsonNode request, ObjectNode answer) throws Exception {
        LegacyRecord message = new LegacyRecord(ByteBuffer.wrap(Pipe.bytes(request.get("data"))));
        guard(answer, "valid_error", message::ensureValid);
        ask(answer, "crc", message::checksum);
        ask(answer, "computed_crc", message::computeChecksum);
        ask(answer, "is_valid", message::isValid);
        ask(answer, "magic", () -> (int) message.magic());
        ask(answer, "attributes", () -> message.attributes() & 0xff);
        ask(answer, "timestamp", message::timestamp);
        ask(answer, "timestamp_type", () -> message.timestampType().name);
        ask(answer, "codec", () -> message.compressionType().name);
        ask(answer, "key", message::key);
        ask(answer, "value", message::value);
    }

    private static void ask(ObjectNode answer, String name, Supplier<Object> getter) {
        guard(answer, name + "_error", () -> {
            Object value = getter.get();
            if (value instanceof ByteBuffer buffer) answer.set(name, Pipe.binary(buffer));
            else answer.putPOJO(name, value);
        });
    }

    private static void guard(ObjectNode answer, String name, Runnable action) {
        try {
            action.run();
        } catch (RuntimeException | Error thrown) {
            Pipe.describe(answer.putObject(name), thrown);
        }
    }
}
