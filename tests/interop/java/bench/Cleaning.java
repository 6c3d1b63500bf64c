import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** The log cleaner over a copy of "dir", all of it; the copy is made below "scratch" before the clock starts. */
final class Cleaning implements Driver.Work {
    private static final int MAP_BYTES = 128 << 20;
    private static final int IO_BYTES = 256 << 10;

    private final Path from;
    private final Path scratch;
    private final LogConfig config = new LogConfig(Map.of(
        TopicConfig.CLEANUP_POLICY_CONFIG, "compact",
        TopicConfig.RETENTION_MS_CONFIG, "-1",
        TopicConfig.MAX_MESSAGE_BYTES_CONFIG, String.valueOf(16 << 20)));
    private final Cleaner cleaner;
    private final Later later = new Later();
    private UnifiedLog log;
    private Path copy;

    Cleaning(JsonNode request) throws Exception {
        from = Path.of(request.get("dir").asText());
        scratch = Path.of(request.get("scratch").asText());
        Throttler free = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
        cleaner = new Cleaner(
            0, new SkimpyOffsetMap(MAP_BYTES), IO_BYTES, config.maxMessageSize(), 0.9, free, Time.SYSTEM, partition -> { });
    }

    @Override public void before() throws Exception {
        copy = Files.createTempDirectory(Files.createDirectories(scratch), "clean").resolve(from.getFileName());
        Files.createDirectories(copy);
        try (var files = Files.list(from)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) Files.copy(file, copy.resolve(file.getFileName()));
        }
        log = UnifiedLog.create(
            copy.toFile(), config, 0, 0, later, new BrokerTopicStats(), Time.SYSTEM, 900_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(4), true, Optional.empty());
        log.roll();
        log.updateHighWatermark(log.logEndOffset());
        later.settle();
    }

    @Override public long run() throws Exception {
        return cleaner.clean(new LogToClean(log, 0, log.activeSegment().baseOffset(), false)).getValue().messagesRead();
    }

    @Override public void after() throws IOException {
        later.settle();
        log.closeHandlers();
        log.removeLogMetrics();
        try (var all = Files.walk(copy.getParent())) {
            all.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    /** Tasks wait until they are asked for; delayed ones never run. */
    private static final class Later implements Scheduler {
        private final List<Runnable> due = new ArrayList<>();

        void settle() {
            List<Runnable> now = List.copyOf(due);
            due.clear();
            now.forEach(Runnable::run);
        }

        @Override public void startup() { }

        @Override public void shutdown() { }

        @Override public void resizeThreadPool(int size) { }

        @Override public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0 && delayMs <= 0) due.add(task);
            return new Ticket();
        }
    }

    private static final class Ticket extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        @Override public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override public int compareTo(Delayed other) {
            return 0;
        }
    }
}
