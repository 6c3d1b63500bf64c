import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.compress.GzipCompression;
import org.apache.kafka.common.compress.Lz4Compression;
import org.apache.kafka.common.compress.ZstdCompression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.CompressionRatioEstimator;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecords.FilterResult;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.RecordValidationStats;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.PrimitiveRef.LongRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/** What Kafka writes: from records, and from bytes. 3.9 and 4 differ in a few signatures only. */
final class Writing {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    private Writing() { }

    // From records.

    static void build(JsonNode r, ObjectNode answer) throws Exception {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(512),
            (byte) r.get("magic").asInt(), compression(r), timestampType(r),
            r.get("base_offset").asLong(), r.get("log_append_time").asLong(),
            r.get("producer_id").asLong(), (short) r.get("producer_epoch").asInt(),
            r.get("base_sequence").asInt(), r.get("transactional").asBoolean(),
            r.get("control").asBoolean(), r.get("leader_epoch").asInt(),
            r.path("batch_bytes_max").asInt(Integer.MAX_VALUE),
            r.get("delete_horizon_ms").asLong());
        if (r.has("expected_ratio"))
            builder.setEstimatedCompressionRatio((float) r.get("expected_ratio").asDouble());
        ArrayNode rooms = answer.putArray("rooms");
        int appended = 0;
        for (JsonNode record : r.get("records")) {
            answer.put("appended", appended++);
            append(builder, record, r.get("control").asBoolean(), rooms);
        }
        for (JsonNode marker : r.path("markers")) mark(builder, marker);
        answer.put("appended", appended);
        if (r.has("last_offset")) builder.overrideLastOffset(r.get("last_offset").asLong());
        if (r.has("reopened")) reopen(builder, r.get("reopened"), answer);
        answer.set("data", Pipe.binary(builder.build().buffer()));
        answer.put("count", builder.numRecords());
        answer.put("uncompressed_bytes", builder.uncompressedBytesWritten());
        answer.put("ratio", builder.compressionRatio());
        if (builder.numRecords() == 0) return; // Kafka knows nothing of such a batch
        answer.put("max_timestamp", builder.info().maxTimestamp);
        answer.put("shallow_offset", builder.info().shallowOffsetOfMaxTimestamp);
    }

    private static void append(MemoryRecordsBuilder builder, JsonNode record, boolean control,
                               ArrayNode rooms) throws IOException {
        long offset = record.get(0).asLong();
        long timestamp = record.get(1).asLong();
        byte[] key = Pipe.bytes(record.get(2));
        byte[] value = Pipe.bytes(record.get(3));
        Header[] headers = Driver.headers(record.get(4));
        rooms.addArray().add(builder.isFull()).add(builder.estimatedSizeInBytes())
            .add(builder.hasRoomFor(timestamp, key, value, headers));
        if (control)
            builder.appendControlRecordWithOffset(offset, new SimpleRecord(timestamp, key, value));
        else builder.appendWithOffset(offset, timestamp, key, value, headers);
    }

    private static void mark(MemoryRecordsBuilder builder, JsonNode marker) {
        builder.appendEndTxnMarker(marker.get(1).asLong(), new EndTransactionMarker(
            ControlRecordType.valueOf(marker.get(0).asText()), marker.get(2).asInt()));
    }

    /** Built for one producer, then again for another. */
    private static void reopen(MemoryRecordsBuilder builder, JsonNode producer, ObjectNode answer) {
        answer.set("first_data", Pipe.binary(builder.build().buffer()));
        builder.reopenAndRewriteProducerState(producer.get(0).asLong(),
            (short) producer.get(1).asInt(), producer.get(2).asInt(), producer.get(3).asBoolean());
    }

    static void estimate(JsonNode r, ObjectNode answer) {
        CompressionType codec = CompressionType.forName(r.get("codec").asText());
        CompressionRatioEstimator.resetEstimation("t");
        ArrayNode ratios = answer.putArray("ratios");
        for (JsonNode seen : r.get("observed"))
            ratios.add((double) CompressionRatioEstimator.updateEstimation("t", codec,
                (float) seen.asDouble()));
    }

    // From bytes.

    static void validate(JsonNode r, ObjectNode answer) throws Exception {
        MemoryRecords records = records(r);
        if (r.path("check").asBoolean())
            for (RecordBatch batch : records.batches()) batch.ensureValid();
        List<Object> arguments = new ArrayList<>(List.of(records, PARTITION,
            new FixedTime(r.get("now").asLong()),
            CompressionType.forName(r.get("source").asText()), compression(r),
            r.get("compacted").asBoolean(), (byte) r.get("magic").asInt(), timestampType(r),
            r.get("before_max").asLong(), r.get("after_max").asLong(),
            r.get("leader_epoch").asInt(), AppendOrigin.valueOf(r.get("origin").asText())));
        Constructor<?> constructor = LogValidator.class.getConstructors()[0];
        if (constructor.getParameterCount() > arguments.size())
            arguments.add(MetadataVersion.valueOf(r.get("release").asText()));
        LogValidator validator = (LogValidator) constructor.newInstance(arguments.toArray());
        LongRef offset = PrimitiveRef.ofLong(r.get("next_offset").asLong());
        Meters meters = new Meters(answer.putObject("metrics"));
        try {
            LogValidator.ValidationResult result = validator
                .validateMessagesAndAssignOffsets(offset, meters, BufferSupplier.NO_CACHING);
            MemoryRecords written = (MemoryRecords) part(result, "validatedRecords");
            answer.set("data", Pipe.binary(written.buffer()));
            answer.put("in_place", written == records);
            answer.put("max_timestamp", (long) part(result, "maxTimestampMs"));
            answer.put("log_append_time", (long) part(result, "logAppendTimeMs"));
            answer.put("sizes_changed", (boolean) part(result, "messageSizeMaybeChanged"));
            stats(answer, (RecordValidationStats) part(result, "recordValidationStats"));
        } finally {
            answer.put("next_offset", offset.value);
        }
    }

    /** Until Kafka 3. */
    static void convert(JsonNode r, ObjectNode answer) throws Exception {
        byte magic = (byte) r.get("magic").asInt();
        long first = r.get("first_offset").asLong();
        Time time = new FixedTime(0);
        Method convert =
            MemoryRecords.class.getMethod("downConvert", byte.class, long.class, Time.class);
        Object converted = convert.invoke(records(r), magic, first, time);
        answer.set("data", Pipe.binary(((MemoryRecords) part(converted, "records")).buffer()));
        stats(answer, (RecordValidationStats) part(converted, "recordConversionStats"));
    }

    static void filter(JsonNode r, ObjectNode answer) throws Exception {
        ByteBuffer room = ByteBuffer.allocate(r.get("room").asInt());
        RecordFilter filter = new Decided(r);
        FilterResult result = null;
        for (Method method : MemoryRecords.class.getMethods()) {
            if (!method.getName().equals("filterTo")) continue;
            Object[] arguments = switch (method.getParameterCount()) {
                case 3 -> new Object[] {filter, room, BufferSupplier.NO_CACHING};
                case 4 -> new Object[] {filter, room, BufferSupplier.NO_CACHING, Integer.MAX_VALUE};
                default -> new Object[] {PARTITION, filter, room, Integer.MAX_VALUE,
                    BufferSupplier.NO_CACHING};
            };
            result = (FilterResult) method.invoke(records(r), arguments);
        }
        ByteBuffer written = result.outputBuffer().duplicate();
        written.flip();
        answer.set("data", Pipe.binary(written));
        answer.put("bytes_read", result.bytesRead());
        answer.put("messages_read", result.messagesRead());
        answer.put("bytes_retained", result.bytesRetained());
        answer.put("messages_retained", result.messagesRetained());
        answer.put("max_offset", result.maxOffset());
        answer.put("max_timestamp", result.maxTimestamp());
        answer.put("shallow_offset", result.shallowOffsetOfMaxTimestamp());
    }

    /** Batches and records as the request says, in the order in which they are asked for. */
    private static final class Decided extends RecordFilter {
        private final JsonNode decisions;
        private int batch = -1;
        private int record;

        Decided(JsonNode r) {
            super(r.get("now").asLong(), r.get("delete_retention").asLong());
            decisions = r.get("decisions");
        }

        @Override protected BatchRetentionResult checkBatchRetention(RecordBatch given) {
            JsonNode decision = decisions.get(++batch);
            record = 0;
            return new BatchRetentionResult(BatchRetention.valueOf(decision.get(0).asText()),
                decision.get(1).asBoolean());
        }

        @Override protected boolean shouldRetainRecord(RecordBatch given, Record one) {
            return decisions.get(batch).get(2).asText().charAt(record++) == '1';
        }
    }

    // What requests and results hold.

    private static MemoryRecords records(JsonNode r) throws IOException {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Pipe.bytes(r.get("data"))));
    }

    private static TimestampType timestampType(JsonNode r) {
        return TimestampType.forName(r.get("timestamp_type").asText());
    }

    private static Compression compression(JsonNode r) {
        Compression.Builder<? extends Compression> builder =
            Compression.of(CompressionType.forName(r.get("codec").asText()));
        if (!r.hasNonNull("level")) return builder.build();
        int level = r.get("level").asInt();
        if (builder instanceof GzipCompression.Builder gzip) gzip.level(level);
        if (builder instanceof Lz4Compression.Builder lz4) lz4.level(level);
        if (builder instanceof ZstdCompression.Builder zstd) zstd.level(level);
        return builder.build();
    }

    private static void stats(ObjectNode answer, RecordValidationStats stats) {
        answer.put("temporary_bytes", stats.temporaryMemoryBytes());
        answer.put("converted", stats.numRecordsConverted());
    }

    /** A field in 3.9, an accessor in 4. */
    private static Object part(Object owner, String name) throws Exception {
        try {
            return owner.getClass().getMethod(name).invoke(owner);
        } catch (NoSuchMethodException e) {
            Field field = owner.getClass().getField(name);
            return field.get(owner);
        }
    }

    private record Meters(ObjectNode counts) implements LogValidator.MetricsRecorder {
        private void add(String name) {
            counts.put(name, counts.path(name).asInt() + 1);
        }

        @Override public void recordInvalidMagic() { add("invalid_magic"); }

        @Override public void recordInvalidOffset() { add("invalid_offset"); }

        @Override public void recordInvalidSequence() { add("invalid_sequence"); }

        @Override public void recordInvalidChecksums() { add("invalid_checksum"); }

        @Override public void recordNoKeyCompactedTopic() { add("no_key"); }
    }

    /** A clock that stands still. */
    private record FixedTime(long now) implements Time {
        @Override public long milliseconds() { return now; }

        @Override public long nanoseconds() { return now * 1_000_000; }

        @Override public void sleep(long ms) { }

        @Override public void waitObject(Object object, Supplier<Boolean> done, long deadline) { }
    }
}
