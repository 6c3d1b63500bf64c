import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.stream.StreamSupport;

/** Kafka's dump tool: the lines of standard output and of standard error for its "args". */
final class Dump {
    /** Where lines go just now; Scala's console keeps the first stream that it sees. */
    private static final class Tap extends OutputStream {
        private OutputStream to = OutputStream.nullOutputStream();

        @Override public void write(int one) throws IOException {
            to.write(one);
        }

        @Override public void write(byte[] bytes, int from, int count) throws IOException {
            to.write(bytes, from, count);
        }
    }

    private static final Tap OUT = new Tap();
    private static final Tap ERR = new Tap();

    private Dump() { }

    /** What the tool prints, and what it throws under "error". */
    static void dump(JsonNode request, ObjectNode answer) {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        ByteArrayOutputStream told = new ByteArrayOutputStream();
        OUT.to = lines;
        ERR.to = told;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        try {
            kafka.tools.DumpLogSegments.main(StreamSupport.stream(
                request.get("args").spliterator(), false).map(JsonNode::asText)
                .toArray(String[]::new));
        } catch (Throwable thrown) {
            Pipe.describe(answer, thrown);
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(out);
            System.setErr(err);
        }
        answer.put("out", lines.toByteArray()).put("err", told.toByteArray());
    }
}
