import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;

/** Batches and records of files that are mapped, and in memory before the clock starts. */
final class Reading implements Driver.Work {
    private static final int GATHERED_BYTES = 16 << 20;
    private static final Map<String, ByteBuffer> MAPPED = new HashMap<>();

    private interface Each {
        long read(RecordBatch batch);
    }

    private final List<ByteBuffer> files = new ArrayList<>();
    private final Each each;

    private Reading(JsonNode request, Each each) throws IOException {
        for (Path file : Driver.files(request)) files.add(mapped(file));
        this.each = each;
    }

    static Reading headers(JsonNode request) throws IOException {
        return new Reading(request, batch -> batch.baseOffset() + batch.maxTimestamp() + batch.countOrNull());
    }

    static Reading crc(JsonNode request) throws IOException {
        return new Reading(request, batch -> {
            batch.ensureValid();
            return 1;
        });
    }

    static Reading decode(JsonNode request) throws IOException {
        return new Reading(request, new Decode(request.path("copy").asBoolean()));
    }

    @Override public long run() {
        long sink = 0;
        for (ByteBuffer file : files) {
            for (RecordBatch batch : MemoryRecords.readableRecords(file.duplicate()).batches()) sink += each.read(batch);
        }
        return sink;
    }

    private static ByteBuffer mapped(Path file) throws IOException {
        String name = file + " " + Files.size(file) + " " + Files.getLastModifiedTime(file);
        if (!MAPPED.containsKey(name)) {
            try (FileChannel channel = FileChannel.open(file)) {
                MappedByteBuffer bytes = channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
                MAPPED.put(name, bytes.load());
            }
        }
        return MAPPED.get(name);
    }

    /** Offset, timestamp, key and value of each record, its batch checked; with "copy", keys and values gathered. */
    private static final class Decode implements Each {
        private final BufferSupplier buffers = BufferSupplier.create();
        private final byte[] gathered;
        private int end;

        Decode(boolean copy) {
            gathered = copy ? new byte[GATHERED_BYTES] : null;
        }

        @Override public long read(RecordBatch batch) {
            long sink = 0;
            batch.ensureValid();
            try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    sink += record.offset() + record.timestamp() + take(record.key()) + take(record.value());
                }
            }
            return sink;
        }

        private long take(ByteBuffer field) {
            if (field == null || !field.hasRemaining()) return 0;
            if (gathered == null) return field.remaining() + field.get(field.position());
            int size = field.remaining();
            int from = end + size > gathered.length ? 0 : end;
            field.get(gathered, from, size);
            end = from + size;
            return gathered[from];
        }
    }
}
