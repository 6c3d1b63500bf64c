import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Members of groups that stay until they are told to leave, transactions, and Kafka's tools. */
public final class Driver {
    private static final long SECONDS_MAX = 30;
    private static final Map<String, Member> MEMBERS = new HashMap<>();
    private static final List<KafkaProducer<byte[], byte[]>> OPEN = new ArrayList<>();

    private Driver() { }

    public static void main(String[] args) throws IOException {
        Exit.setExitProcedure((status, message) -> {
            throw new Exited();
        });
        Pipe.serve(Map.of("tool", Driver::tool, "join", Driver::join, "leave", Driver::leave,
            "commit", Driver::commit, "transact", Driver::transact));
    }

    /** What a tool would end its process with. */
    private static final class Exited extends RuntimeException { }

    /** What the class "tool" prints for "words". */
    private static void tool(JsonNode request, ObjectNode answer) throws Exception {
        List<String> words = new ArrayList<>();
        request.get("words").forEach(each -> words.add(each.asText()));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(bytes, true, StandardCharsets.UTF_8));
        try {
            Class.forName("org.apache.kafka.tools." + request.get("tool").asText())
                .getMethod("main", String[].class).invoke(null, (Object) words.toArray(new String[0]));
        } catch (java.lang.reflect.InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) throw thrown;
        } finally {
            System.setOut(before);
        }
        answer.put("out", bytes.toString(StandardCharsets.UTF_8));
    }

    private static Properties settings(JsonNode request) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", request.get("bootstrap").asText());
        request.path("client").fields().forEachRemaining(
            each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    // ---- groups ------------------------------------------------------------------------------

    /** A member that polls, each in a thread of its own. */
    private interface Member {
        void leave() throws Exception;
    }

    /** Let "name" join "group" of the "kind": classic, consumer, share or streams. */
    private static void join(JsonNode request, ObjectNode answer) throws Exception {
        Properties settings = settings(request);
        String group = request.get("group").asText(), topic = request.get("topic").asText();
        Member member = switch (request.get("kind").asText()) {
            case "share" -> share(settings, group, topic);
            case "streams" -> streams(settings, group, topic);
            default -> consumer(settings, group, topic, request.get("kind").asText());
        };
        MEMBERS.put(request.get("name").asText(), member);
    }

    private static void leave(JsonNode request, ObjectNode answer) throws Exception {
        MEMBERS.remove(request.get("name").asText()).leave();
    }

    private static Member consumer(Properties settings, String group, String topic, String kind) {
        settings.put("group.id", group);
        settings.put("group.protocol", kind);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        return polling(() -> {
            if (!consumer.poll(Duration.ofMillis(100)).isEmpty()) consumer.commitSync();
        }, consumer::close);
    }

    private static Member share(Properties settings, String group, String topic) {
        settings.put("group.id", group);
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(topic));
        return polling(() -> {
            consumer.poll(Duration.ofMillis(100));
            consumer.commitSync();
        }, consumer::close);
    }

    private static Member streams(Properties settings, String group, String topic) {
        settings.put("application.id", group);
        settings.put("group.protocol", "streams");
        settings.put("commit.interval.ms", "100");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.ByteArray().getClass());
        settings.put("default.value.serde", Serdes.ByteArray().getClass());
        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(topic).foreach((key, value) -> { });
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        return () -> streams.close(Duration.ofSeconds(SECONDS_MAX));
    }

    private static Member polling(Runnable turn, Runnable close) {
        AtomicBoolean ends = new AtomicBoolean();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        var done = thread.submit(() -> {
            while (!ends.get()) turn.run();
            close.run();
        });
        return () -> {
            ends.set(true);
            done.get(SECONDS_MAX, TimeUnit.SECONDS);
            thread.shutdown();
        };
    }

    /** Commit "offset" for a group without members. */
    private static void commit(JsonNode request, ObjectNode answer) {
        Properties settings = settings(request);
        settings.put("group.id", request.get("group").asText());
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.commitSync(offsets(request));
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode request) {
        return Map.of(new TopicPartition(request.get("topic").asText(), 0),
            new OffsetAndMetadata(request.get("offset").asLong(), "by hand"));
    }

    // ---- transactions ------------------------------------------------------------------------

    /** A transaction with a record, and an "offset" of "group" if given; "end" as it says, or not. */
    private static void transact(JsonNode request, ObjectNode answer) throws Exception {
        Properties settings = settings(request);
        settings.put("transactional.id", request.get("id").asText());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
            settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(request.get("topic").asText(), 0, null, new byte[] {1}));
        if (request.has("offset")) {
            producer.sendOffsetsToTransaction(
                offsets(request), new ConsumerGroupMetadata(request.get("group").asText()));
        }
        producer.flush();
        switch (request.path("end").asText("")) {
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> OPEN.add(producer);
        }
        if (request.has("end")) producer.close();
    }
}
