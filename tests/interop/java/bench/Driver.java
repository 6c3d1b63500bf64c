import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Kafka's own classes at work, each round timed by itself. */
public final class Driver {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private Driver() { }

    /** A piece of work that is done again and again; `run` alone is timed. */
    interface Work extends AutoCloseable {
        default void before() throws Exception { }

        /** Do it; answers something that depends on all of it, so that none of it is optimised away. */
        long run() throws Exception;

        default void after() throws Exception { }

        @Override default void close() throws Exception { }
    }

    interface Maker {
        Work make(JsonNode request) throws Exception;
    }

    public static void main(String[] args) throws IOException {
        Exit.setExitProcedure((status, message) -> {
            throw new IllegalStateException("exit " + status + ": " + message);
        });
        Map<String, Maker> makers = new LinkedHashMap<>();
        makers.put("decode", Reading::decode);
        makers.put("headers", Reading::headers);
        makers.put("crc", Reading::crc);
        makers.put("encode", Writing::encode);
        makers.put("validate", Writing::validate);
        makers.put("clean", Cleaning::new);
        makers.put("dump", Dumping::new);
        Map<String, Pipe.Operation> operations = new LinkedHashMap<>();
        makers.forEach((name, maker) -> operations.put(name, (request, answer) -> rounds(maker, request, answer)));
        Pipe.serve(operations);
    }

    /**
     * So many "warmup" rounds, for "warmup_ms" at least, then "rounds". Of each of these the
     * processor time of the thread that works, which leaves out what other programs and the garbage
     * collector take, and the time on the wall.
     */
    private static void rounds(Maker maker, JsonNode request, ObjectNode answer) throws Exception {
        ArrayNode cpu = answer.putArray("cpu_ns");
        ArrayNode wall = answer.putArray("wall_ns");
        try (Work work = maker.make(request)) {
            long until = System.nanoTime() + request.path("warmup_ms").asLong() * 1_000_000;
            long sink = 0;
            for (int left = request.path("warmup").asInt(); left > 0 || System.nanoTime() < until; left--) {
                work.before();
                sink += work.run();
                work.after();
            }
            for (int left = request.path("rounds").asInt(1); left > 0; left--) {
                work.before();
                long began = System.nanoTime();
                long spent = THREADS.getCurrentThreadCpuTime();
                sink += work.run();
                cpu.add(THREADS.getCurrentThreadCpuTime() - spent);
                wall.add(System.nanoTime() - began);
                work.after();
            }
            answer.put("sink", sink);
        }
    }

    static List<Path> files(JsonNode request) {
        List<Path> files = new ArrayList<>();
        request.path("files").forEach(file -> files.add(Path.of(file.asText())));
        return files;
    }
}
