import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** What lies beside the logs of a data directory, as a broker's log manager reads and leaves it. */
final class Beside {
    private static final long BROKER_EPOCH = 3;

    private Beside() { }

    /**
     * Read mark and checkpoints of "dir" as a start does. With "leave", recovery points by the name
     * of the partition, write them as an orderly stop does.
     */
    static void answer(JsonNode request, ObjectNode answer) throws Exception {
        String directory = request.get("dir").asText();
        CleanShutdownFileHandler mark = new CleanShutdownFileHandler(directory);
        OffsetCheckpointFile points =
            checkpoint(directory, LogManager.RECOVERY_POINT_CHECKPOINT_FILE);
        if (request.hasNonNull("leave")) {
            Map<TopicPartition, Long> left = new HashMap<>(points.read());
            for (Map.Entry<String, JsonNode> one : request.get("leave").properties())
                left.put(UnifiedLog.parseTopicPartitionName(new File(directory, one.getKey())),
                    one.getValue().asLong());
            points.write(left);
            mark.write(BROKER_EPOCH);
        }
        answer.put("clean", mark.exists());
        mark.read().ifPresent(epoch -> answer.put("broker_epoch", epoch));
        tell(points, answer.putObject("recovery_points"));
        tell(checkpoint(directory, LogManager.LOG_START_OFFSET_CHECKPOINT_FILE),
            answer.putObject("log_start_offsets"));
    }

    private static OffsetCheckpointFile checkpoint(String directory, String name) throws Exception {
        return new OffsetCheckpointFile(new File(directory, name), new LogDirFailureChannel(1));
    }

    private static void tell(OffsetCheckpointFile file, ObjectNode told) {
        file.read().forEach((partition, offset) -> told.put(partition.toString(), offset));
    }
}
