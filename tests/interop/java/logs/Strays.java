import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.storage.internals.log.LogManager;

/** Which logs a start of a broker puts aside, by the cluster's metadata. */
final class Strays {
    private Strays() { }

    /** Whether the log in "dir" (see Opened) is none of "node", by the metadata's "records". */
    static void answer(JsonNode request, ObjectNode answer) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        for (JsonNode one : request.get("records")) {
            ByteBuffer bytes = ByteBuffer.wrap(Pipe.bytes(one));
            delta.replay(MetadataRecordSerde.INSTANCE.read(
                new ByteBufferAccessor(bytes), bytes.remaining()).message());
        }
        MetadataImage image = delta.apply(MetadataProvenance.EMPTY);
        try (Opened opened = new Opened(request)) {
            answer.put("stray", LogManager.isStrayKraftReplica(
                request.get("node").asInt(), image.topics(), opened.log));
        }
    }
}
