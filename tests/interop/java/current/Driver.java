import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** The classes of Kafka 3.9 and later. */
public final class Driver {
    private Driver() { }

    public static void main(String[] args) throws IOException {
        Pipe.serve(Map.of(
            "parse", Reading::parse,
            "message", Reading::message,
            "build", Writing::build,
            "estimate", Writing::estimate,
            "validate", Driver::validate,
            "convert", Writing::convert,
            "filter", Writing::filter,
            "partitions", Driver::partitions));
    }

    /** The partition of each of the "keys" among so many "partitions". */
    private static void partitions(JsonNode request, ObjectNode answer) throws Exception {
        ArrayNode places = answer.putArray("places");
        int partitions = request.get("partitions").asInt();
        for (JsonNode key : request.get("keys")) {
            places.add(BuiltInPartitioner.partitionForKey(Pipe.bytes(key), partitions));
        }
    }

    /** Refused records are told by their place, and what they are refused for. */
    private static void validate(JsonNode request, ObjectNode answer) throws Exception {
        try {
            Writing.validate(request, answer);
        } catch (RecordValidationException refused) {
            ArrayNode records = answer.putArray("records");
            refused.recordErrors().forEach(one -> records.add(one.batchIndex));
            throw refused.invalidException();
        }
    }

    /** [[name, value or null], ...]; names are bytes too. */
    static Header[] headers(JsonNode pairs) throws IOException {
        Header[] headers = new Header[pairs.size()];
        for (int i = 0; i < headers.length; i++) {
            String name = new String(Pipe.bytes(pairs.get(i).get(0)), StandardCharsets.UTF_8);
            headers[i] = new RecordHeader(name, Pipe.bytes(pairs.get(i).get(1)));
        }
        return headers;
    }

    static ArrayNode pairs(Header[] headers) {
        ArrayNode all = Pipe.NEW.arrayNode();
        for (Header header : headers) {
            ArrayNode pair = all.addArray();
            pair.add(header.key().getBytes(StandardCharsets.UTF_8));
            if (header.value() == null) pair.addNull();
            else pair.add(header.value());
        }
        return all;
    }
}
