import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * A log as a broker's log manager loads it. "clean", "recovery_point" and "log_start_offset" are
 * what marker and checkpoints would say; "config" has a topic's settings, "now_ms" is the clock.
 */
final class Opened implements AutoCloseable {
    private static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final int TRANSACTION_MS_MAX = 900_000;
    private static final int EXPIRATION_MS = 86_400_000;
    private static final int EXPIRATION_CHECK_MS = 600_000;
    private static final String BYTES = "segment.bytes";
    /** Smaller ones are refused under the name for everybody. */
    private static final int SEGMENT_BYTES_MIN = 1 << 20;

    final File directory;
    final Held tasks = new Held();
    final Held.Clock clock = new Held.Clock();
    final UnifiedLog log;

    Opened(JsonNode request) throws IOException {
        directory = new File(request.get("dir").asText());
        clock.now = request.path("now_ms").asLong(0);
        UnifiedLog.parseTopicPartitionName(directory);
        log = UnifiedLog.create(directory, config(request.path("config")),
            request.path("log_start_offset").asLong(0), request.path("recovery_point").asLong(0),
            tasks, STATS, clock, TRANSACTION_MS_MAX,
            new ProducerStateManagerConfig(
                request.path("expiration_ms").asInt(EXPIRATION_MS), false),
            EXPIRATION_CHECK_MS, new LogDirFailureChannel(1), request.path("clean").asBoolean(true),
            Optional.empty());
        tasks.runDue();
        // A leader without followers; else nothing is ever below the high watermark.
        if (request.path("leader").asBoolean(true)) log.updateHighWatermark(log.logEndOffset());
    }

    static LogConfig config(JsonNode given) {
        Map<String, String> settings = new HashMap<>();
        given.properties().forEach(e -> settings.put(e.getKey(), e.getValue().asText()));
        String bytes = settings.get(BYTES);
        if (bytes != null && Long.parseLong(bytes) < SEGMENT_BYTES_MIN)
            settings.put(LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG, settings.remove(BYTES));
        return new LogConfig(settings);
    }

    /** What a broker does at an orderly stop, but for the files beside the directory. */
    void closeClean() {
        log.flush(true);
        tasks.runDue();
        log.close();
    }

    /** Let go of the files as they are. */
    @Override public void close() {
        try {
            log.closeHandlers();
        } finally {
            log.removeLogMetrics();
        }
    }
}
