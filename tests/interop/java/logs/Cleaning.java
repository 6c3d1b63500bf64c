import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

/** Passes of the log cleaner, as many as it takes to come to the end of what may be cleaned. */
final class Cleaning {
    private static final Throttler NO_LIMIT =
        new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM);
    private static final int BUFFER = 1 << 18;
    private static final double LOAD = 0.9;

    private Cleaning() { }

    static void run(Opened opened, JsonNode step, ObjectNode done) throws Exception {
        UnifiedLog log = opened.log;
        File beside = new File(opened.directory.getAbsoluteFile().getParentFile(),
            "cleaner-offset-checkpoint");
        OffsetCheckpointFile checkpoint = new OffsetCheckpointFile(beside, null);
        TopicPartition partition = log.topicPartition();
        Optional<Long> clean = Files.exists(beside.toPath()) && !step.path("all").asBoolean(false)
            ? Optional.ofNullable(checkpoint.read().get(partition)) : Optional.empty();
        Method cleanable = LogCleanerManager.class.getDeclaredMethod(
            "cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        cleanable.setAccessible(true); // since Kafka 4.4 it is not public
        Object bounds = cleanable.invoke(null, log, clean, opened.clock.now);
        long from = offset(bounds, "firstDirtyOffset");
        long end = offset(bounds, "firstUncleanableDirtyOffset");
        int passes = 0;
        while (true) {
            LogToClean work = new LogToClean(log, from, end, false);
            if (passes == 0) done.put("cleanable_bytes", work.cleanableBytes());
            if (work.cleanableBytes() == 0 || from >= work.firstUncleanableOffset()) break;
            Cleaner cleaner = new Cleaner(0,
                new SkimpyOffsetMap(step.path("map_bytes").asInt(1 << 20), "MD5"), BUFFER,
                log.config().maxMessageSize(), LOAD, NO_LIMIT, opened.clock, tp -> { });
            Map.Entry<Long, CleanerStats> result = cleaner.clean(work);
            from = result.getKey();
            passes++;
            checkpoint.write(Map.of(partition, from));
            opened.tasks.runDue();
        }
        opened.tasks.runDelayed();
        done.put("passes", passes).put("end_offset", from);
    }

    private static long offset(Object bounds, String name) throws Exception {
        Method found = bounds.getClass().getDeclaredMethod(name);
        found.setAccessible(true);
        return (Long) found.invoke(bounds);
    }
}
