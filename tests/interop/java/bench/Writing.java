import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/** Batches made of records in memory, and batches checked as a leader checks them. */
final class Writing {
    private static final int ROOM = 1 << 16;

    private Writing() { }

    /** The records of each batch of "files", built anew with "codec". */
    static Driver.Work encode(JsonNode request) throws IOException {
        Compression codec = compression(request, CompressionType.NONE);
        List<Records> batches = new ArrayList<>();
        each(request, batch -> batches.add(new Records(batch)));
        int most = batches.stream().mapToInt(batch -> batch.bytes).max().orElse(0);
        ByteBuffer room = ByteBuffer.allocate(most + most / 4 + ROOM);
        return () -> {
            long bytes = 0;
            for (Records batch : batches) {
                room.clear();
                bytes += batch.build(room, codec).sizeInBytes();
            }
            return bytes;
        };
    }

    /** Each batch of "files" as a produce request brings it, with base offset 0: its own codec stays. */
    static Driver.Work validate(JsonNode request) throws IOException {
        List<MemoryRecords> sent = new ArrayList<>();
        each(request, batch -> {
            ByteBuffer own = ByteBuffer.allocate(batch.sizeInBytes());
            batch.writeTo(own);
            own.flip();
            sent.add(MemoryRecords.readableRecords(own));
        });
        return new Validate(sent);
    }

    private static void each(JsonNode request, Consumer<MutableRecordBatch> taker) throws IOException {
        for (Path file : Driver.files(request)) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file));
            MemoryRecords.readableRecords(bytes).batches().forEach(taker);
        }
    }

    private static Compression compression(JsonNode request, CompressionType otherwise) {
        return Compression.of(CompressionType.forName(request.path("codec").asText(otherwise.name))).build();
    }

    /** The records of one batch, as arrays. */
    private static final class Records {
        private final List<byte[]> keys = new ArrayList<>();
        private final List<byte[]> values = new ArrayList<>();
        private final List<Header[]> headers = new ArrayList<>();
        private final List<Long> timestamps = new ArrayList<>();
        private int bytes;

        Records(RecordBatch batch) {
            for (Record record : batch) {
                keys.add(array(record.key()));
                values.add(array(record.value()));
                headers.add(record.headers());
                timestamps.add(record.timestamp());
                bytes += record.sizeInBytes();
            }
        }

        MemoryRecords build(ByteBuffer room, Compression codec) {
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                room, RecordBatch.MAGIC_VALUE_V2, codec, TimestampType.CREATE_TIME, 0,
                RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
                RecordBatch.NO_SEQUENCE, false, 0);
            for (int i = 0, count = keys.size(); i < count; i++) {
                builder.append(timestamps.get(i), keys.get(i), values.get(i), headers.get(i));
            }
            return builder.build();
        }

        private static byte[] array(ByteBuffer field) {
            if (field == null) return null;
            byte[] copy = new byte[field.remaining()];
            field.get(copy);
            return copy;
        }
    }

    private static final class Validate implements Driver.Work, LogValidator.MetricsRecorder {
        private static final TopicPartition PARTITION = new TopicPartition("t", 0);
        private final BufferSupplier buffers = BufferSupplier.create();
        private final List<MemoryRecords> sent;

        Validate(List<MemoryRecords> sent) {
            this.sent = sent;
        }

        @Override public void before() {
            for (MemoryRecords batch : sent) batch.buffer().putLong(0, 0);
        }

        @Override public long run() {
            PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(0);
            long bytes = 0;
            for (MemoryRecords records : sent) {
                CompressionType codec = records.firstBatch().compressionType();
                bytes += new LogValidator(
                    records, PARTITION, Time.SYSTEM, codec, Compression.of(codec).build(), false,
                    RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME, Long.MAX_VALUE, 3_600_000L, 0,
                    AppendOrigin.CLIENT
                ).validateMessagesAndAssignOffsets(offset, this, buffers).validatedRecords().sizeInBytes();
            }
            return bytes;
        }

        @Override public void recordInvalidMagic() { }

        @Override public void recordInvalidOffset() { }

        @Override public void recordInvalidSequence() { }

        @Override public void recordInvalidChecksums() { }

        @Override public void recordNoKeyCompactedTopic() { }
    }
}
