import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import kafka.common.LongRef;
import kafka.message.ByteBufferMessageSet;
import kafka.message.CompressionCodec;
import kafka.message.CompressionCodec$;
import kafka.message.Message;
import kafka.message.MessageAndOffset;
import kafka.message.ValidationAndOffsetAssignResult;
import org.apache.kafka.common.record.TimestampType;
import scala.Option;
import scala.collection.Iterator;

/** The classes of Kafka 0.10.1: message sets as brokers of that time took them. */
public final class Driver {
    private Driver() { }

    public static void main(String[] args) throws IOException {
        Pipe.serve(Map.of(
            "validate_0_10", Driver::validate,
            "deep_0_10", Driver::deep,
            "message_0_10", Driver::message));
    }

    private static void validate(JsonNode r, ObjectNode answer) throws Exception {
        LongRef offset = new LongRef(r.get("next_offset").asLong());
        ValidationAndOffsetAssignResult result = set(r).validateMessagesAndAssignOffsets(offset,
            r.get("now").asLong(), codec(r.get("source")), codec(r.get("codec")),
            r.get("compacted").asBoolean(), (byte) r.get("magic").asInt(),
            TimestampType.forName(r.get("timestamp_type").asText()),
            r.get("difference_max").asLong());
        answer.set("data", Pipe.binary(result.validatedMessages().getBuffer()));
        answer.put("max_timestamp", result.maxTimestamp());
        answer.put("shallow_offset", result.offsetOfMaxTimestamp());
        answer.put("sizes_changed", result.messageSizeMaybeChanged());
        answer.put("next_offset", offset.value());
    }

    /** Each message inside, as [offset, timestamp, key, value], until there is an error. */
    private static void deep(JsonNode r, ObjectNode answer) throws Exception {
        ByteBufferMessageSet set = set(r);
        answer.put("valid_bytes", set.validBytes());
        ArrayNode rows = answer.putArray("rows");
        for (Iterator<MessageAndOffset> each = set.iterator(); each.hasNext();) {
            MessageAndOffset found = each.next();
            Message message = found.message();
            ArrayNode row = Pipe.NEW.arrayNode();
            row.add(found.offset()).add(message.timestamp());
            rows.add(row.add(Pipe.binary(message.key())).add(Pipe.binary(message.payload())));
        }
    }

    /** One message in both formats. */
    private static void message(JsonNode r, ObjectNode answer) throws Exception {
        Message message =
            new Message(ByteBuffer.wrap(Pipe.bytes(r.get("data"))), Option.empty(), Option.empty());
        answer.put("crc", message.checksum());
        answer.put("is_valid", message.isValid());
        for (byte magic = 0; magic < 2; magic++)
            answer.set("as_" + magic, Pipe.binary(message.toFormatVersion(magic).buffer()));
    }

    private static ByteBufferMessageSet set(JsonNode r) throws IOException {
        return new ByteBufferMessageSet(ByteBuffer.wrap(Pipe.bytes(r.get("data"))));
    }

    private static CompressionCodec codec(JsonNode name) {
        String codec = name.asText();
        return CompressionCodec$.MODULE$.getCompressionCodec(codec);
    }
}
