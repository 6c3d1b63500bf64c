import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Kafka's dump tool with "args", its lines counted: nothing is slower than a pipe or a terminal. */
final class Dumping implements Driver.Work {
    /** Scala's console keeps the first stream that it sees, so there is one. */
    private static final Lines LINES = new Lines();
    private static final PrintStream OUT =
        new PrintStream(new BufferedOutputStream(LINES, 1 << 16), false, StandardCharsets.UTF_8);

    private final String[] words;

    Dumping(JsonNode request) {
        List<String> words = new ArrayList<>(List.of("--files"));
        words.add(String.join(",", Driver.files(request).stream().map(Object::toString).toList()));
        request.path("args").forEach(word -> words.add(word.asText()));
        this.words = words.toArray(String[]::new);
        System.setOut(OUT);
    }

    @Override public long run() {
        long before = LINES.count;
        kafka.tools.DumpLogSegments.main(words);
        OUT.flush();
        return LINES.count - before;
    }

    private static final class Lines extends OutputStream {
        private long count;

        @Override public void write(int one) {
            if (one == '\n') count++;
        }

        @Override public void write(byte[] bytes, int from, int size) {
            for (int i = from; i < from + size; i++) if (bytes[i] == '\n') count++;
        }
    }
}
