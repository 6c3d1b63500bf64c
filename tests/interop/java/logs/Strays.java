import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.storage.internals.log.LogManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

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

    /** The nodes of a log's partition; none of a topic that is gone. */
    static List<Integer> replicas(MetadataImage image, UnifiedLog log) {
        TopicImage topic = image.topics().getTopic(log.topicId().get());
        PartitionRegistration found =
            topic == null ? null : topic.partitions().get(log.topicPartition().partition());
        return found == null ? List.of() : Arrays.stream(found.replicas).boxed().toList();
    }
}
