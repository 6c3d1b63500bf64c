import java.lang.reflect.Proxy;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;

/** Tasks that run when they are told to, periodic ones never: two runs of the same are the same. */
final class Held implements Scheduler {
    /** Kafka asks nothing of it but to cancel. */
    private static final ScheduledFuture<?> TICKET = (ScheduledFuture<?>) Proxy.newProxyInstance(
        Held.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class},
        (ticket, method, given) -> method.getName().equals("cancel") ? true : null);

    private final Queue<Runnable> due = new ArrayDeque<>();
    private final Queue<Runnable> delayed = new ArrayDeque<>();

    void runDue() {
        while (!due.isEmpty()) due.poll().run();
    }

    /** Deletion of `.deleted` files, mostly. */
    void runDelayed() {
        for (runDue(); !delayed.isEmpty(); runDue()) delayed.poll().run();
    }

    @Override public void startup() { }

    @Override public void shutdown() { }

    @Override public void resizeThreadPool(int size) { }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (periodMs < 0) (delayMs > 0 ? delayed : due).add(task);
        return TICKET;
    }

    /** The time that a request says. */
    static final class Clock implements Time {
        long now;

        @Override public long milliseconds() {
            return now;
        }

        @Override public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override public void sleep(long ms) {
            now += ms;
        }

        @Override public void waitObject(Object held, Supplier<Boolean> until, long deadlineMs) {
            throw new UnsupportedOperationException("nothing waits here");
        }
    }
}
