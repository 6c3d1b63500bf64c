import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Kafka's own classes over a pipe: one line in, a JSON array of requests; one line out, as many
 * answers. Bytes travel as base64. What Kafka throws is an answer too: {"error": class, "said": ...}.
 */
public final class Driver {
    static final JsonNodeFactory NEW = JsonNodeFactory.instance;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Driver() { }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // nobody else speaks on the pipe
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ArrayNode answers = NEW.arrayNode();
            for (JsonNode request : JSON.readTree(line)) answers.add(answer(request));
            out.println(JSON.writeValueAsString(answers));
            out.flush();
        }
    }

    private static ObjectNode answer(JsonNode request) {
        ObjectNode answer = NEW.objectNode();
        try {
            switch (request.get("op").asText()) {
                case "parse" -> Reading.parse(request, answer);
                case "message" -> Reading.message(request, answer);
                case "build" -> Writing.build(request, answer);
                case "estimate" -> Writing.estimate(request, answer);
                case "validate" -> Writing.validate(request, answer);
                case "convert" -> Writing.convert(request, answer);
                case "filter" -> Writing.filter(request, answer);
                default -> throw new UnsupportedOperationException("no such request");
            }
        } catch (Throwable thrown) {
            describe(answer, thrown);
        }
        return answer;
    }

    static void describe(ObjectNode answer, Throwable thrown) {
        Throwable error = thrown;
        if (thrown instanceof java.lang.reflect.InvocationTargetException) error = thrown.getCause();
        if (error instanceof RecordValidationException refused) {
            ArrayNode records = answer.putArray("records");
            refused.recordErrors().forEach(one -> records.add(one.batchIndex));
            error = refused.invalidException();
        }
        answer.put("error", error.getClass().getSimpleName());
        answer.put("said", String.valueOf(error.getMessage()));
        StackTraceElement[] at = error.getStackTrace();
        if (at.length > 0) answer.put("at", at[0].toString());
    }

    // What requests hold.

    static byte[] bytes(JsonNode node) throws IOException {
        return node == null || node.isNull() ? null : node.binaryValue();
    }

    /** [[name, value or null], ...]; names are bytes too. */
    static Header[] headers(JsonNode pairs) throws IOException {
        Header[] headers = new Header[pairs.size()];
        for (int i = 0; i < headers.length; i++) {
            String name = new String(bytes(pairs.get(i).get(0)), StandardCharsets.UTF_8);
            headers[i] = new RecordHeader(name, bytes(pairs.get(i).get(1)));
        }
        return headers;
    }

    // What answers hold.

    static JsonNode binary(ByteBuffer buffer) {
        return buffer == null ? NEW.nullNode() : NEW.binaryNode(Utils.toArray(buffer));
    }

    static ArrayNode pairs(Header[] headers) {
        ArrayNode all = NEW.arrayNode();
        for (Header header : headers) {
            ArrayNode pair = all.addArray();
            pair.add(header.key().getBytes(StandardCharsets.UTF_8));
            if (header.value() == null) pair.addNull();
            else pair.add(header.value());
        }
        return all;
    }
}
