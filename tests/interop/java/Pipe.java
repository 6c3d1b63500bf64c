import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Requests and answers: one line in, a JSON array of requests; one line out, as many answers. Bytes
 * travel as base64. What is thrown is an answer too: {"error": class, "said": message}.
 */
final class Pipe {
    static final JsonNodeFactory NEW = JsonNodeFactory.instance;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Pipe() { }

    /** Something to be asked, by the name under "op". */
    interface Operation {
        void answer(JsonNode request, ObjectNode answer) throws Exception;
    }

    static void serve(Map<String, Operation> operations) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // nobody else speaks on the pipe
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ArrayNode answers = NEW.arrayNode();
            for (JsonNode request : JSON.readTree(line)) {
                ObjectNode answer = answers.addObject();
                try {
                    operations.get(request.get("op").asText()).answer(request, answer);
                } catch (Throwable thrown) {
                    describe(answer, thrown);
                }
            }
            out.println(JSON.writeValueAsString(answers));
            out.flush();
        }
    }

    static void describe(ObjectNode answer, Throwable thrown) {
        Throwable error = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
        answer.put("error", error.getClass().getSimpleName());
        answer.put("said", String.valueOf(error.getMessage()));
        StackTraceElement[] at = error.getStackTrace();
        if (at.length > 0) answer.put("at", at[0].toString());
    }

    static byte[] bytes(JsonNode node) throws IOException {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    static JsonNode binary(ByteBuffer buffer) {
        if (buffer == null) return NEW.nullNode();
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return NEW.binaryNode(copy);
    }
}
