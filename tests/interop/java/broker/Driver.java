import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients before a running broker, whose address is "bootstrap" in each request; and its
 * dump tool, which needs none.
 */
public final class Driver {
    private static final long SECONDS_MAX = 30;

    private Driver() { }

    public static void main(String[] args) throws IOException {
        Map<String, Pipe.Operation> operations = new HashMap<>(Map.of(
            "create", Driver::create, "delete", Driver::delete, "leaders", Driver::leaders,
            "configure", Driver::configure, "describe", Driver::describe,
            "delete_records", Driver::deleteRecords,
            "offsets", Driver::offsets, "produce", Driver::produce, "consume", Driver::consume,
            "dump", Dump::dump));
        operations.put("tool", Tools::run);
        Pipe.serve(operations);
    }

    private static Properties settings(JsonNode request) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", request.get("bootstrap").asText());
        request.path("client").fields().forEachRemaining(
            each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.path("partition").asInt());
    }

    private static <T> T done(KafkaFuture<T> future) throws Exception {
        return future.get(SECONDS_MAX, TimeUnit.SECONDS);
    }

    private static Map<String, String> texts(JsonNode fields) {
        Map<String, String> texts = new HashMap<>();
        fields.fields().forEachRemaining(
            each -> texts.put(each.getKey(), each.getValue().asText()));
        return texts;
    }

    // ---- topics ------------------------------------------------------------------------------

    /** A topic of as many "partitions", with its "configs". */
    private static void create(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = Admin.create(settings(request))) {
            NewTopic topic = new NewTopic(request.get("topic").asText(),
                Optional.of(request.path("partitions").asInt(1)), Optional.of((short) 1));
            done(admin.createTopics(List.of(topic.configs(texts(request.path("configs"))))).all());
        }
    }

    /** The node that leads each partition, null for none. */
    private static void leaders(JsonNode request, ObjectNode answer) throws Exception {
        String topic = request.get("topic").asText();
        ArrayNode leaders = answer.putArray("leaders");
        try (Admin admin = Admin.create(settings(request))) {
            done(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions()
                .forEach(each -> leaders.add(each.leader() == null ? null : each.leader().id()));
        }
    }

    private static void delete(JsonNode request, ObjectNode answer) throws Exception {
        try (Admin admin = Admin.create(settings(request))) {
            done(admin.deleteTopics(List.of(request.get("topic").asText())).all());
        }
    }

    /** Let the partition begin at "before". */
    private static void deleteRecords(JsonNode request, ObjectNode answer) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
        try (Admin admin = Admin.create(settings(request))) {
            done(admin.deleteRecords(Map.of(partition(request), before)).all());
        }
    }

    /** Set "configs" of the topic, or of a "broker" ("" for all); null takes one away. */
    private static void configure(JsonNode request, ObjectNode answer) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        request.path("configs").fields().forEachRemaining(each -> changes.add(new AlterConfigOp(
            new ConfigEntry(each.getKey(), each.getValue().asText()),
            each.getValue().isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        try (Admin admin = Admin.create(settings(request))) {
            done(admin.incrementalAlterConfigs(Map.of(configured(request), changes)).all());
        }
    }

    /** Value and source of each setting, as kafka-configs --describe --all prints them. */
    private static void describe(JsonNode request, ObjectNode answer) throws Exception {
        ObjectNode found = answer.putObject("configs");
        try (Admin admin = Admin.create(settings(request))) {
            ConfigResource asked = configured(request);
            done(admin.describeConfigs(List.of(asked)).all()).get(asked).entries().forEach(
                each -> found.putArray(each.name()).add(each.value()).add(each.source().name()));
        }
    }

    private static ConfigResource configured(JsonNode request) {
        return request.has("broker")
            ? new ConfigResource(ConfigResource.Type.BROKER, request.get("broker").asText())
            : new ConfigResource(ConfigResource.Type.TOPIC, request.get("topic").asText());
    }

    /** Offset and timestamp for each of "specs": "earliest", "latest", "max", or a time. */
    private static void offsets(JsonNode request, ObjectNode answer) throws Exception {
        ListOffsetsOptions options = new ListOffsetsOptions(committed(request)
            ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
        ArrayNode found = answer.putArray("offsets");
        try (Admin admin = Admin.create(settings(request))) {
            for (JsonNode spec : request.get("specs")) {
                OffsetSpec asked = switch (spec.asText()) {
                    case "earliest" -> OffsetSpec.earliest();
                    case "latest" -> OffsetSpec.latest();
                    case "max" -> OffsetSpec.maxTimestamp();
                    default -> OffsetSpec.forTimestamp(spec.asLong());
                };
                var info = done(admin.listOffsets(Map.of(partition(request), asked), options)
                    .partitionResult(partition(request)));
                found.addArray().add(info.offset()).add(info.timestamp());
            }
        }
    }

    private static boolean committed(JsonNode request) {
        return request.path("isolation").asText().equals("read_committed");
    }

    // ---- records -----------------------------------------------------------------------------

    /**
     * Send "groups", each as few batches as hold it. With "transactional_id" each is a transaction
     * that ends as its "end" says: "commit" or "abort".
     */
    private static void produce(JsonNode request, ObjectNode answer) throws Exception {
        Properties settings = settings(request);
        settings.putIfAbsent("linger.ms", "60000");
        String transactional = request.path("transactional_id").asText(null);
        if (transactional != null) settings.put("transactional.id", transactional);
        ArrayNode offsets = answer.putArray("offsets");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactional != null) producer.initTransactions();
            for (JsonNode group : request.get("groups")) {
                if (transactional != null) producer.beginTransaction();
                send(producer, partition(request), group.get("records"), offsets.addArray());
                if (transactional == null) continue;
                if (group.path("end").asText("commit").equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, TopicPartition partition,
            JsonNode records, ArrayNode offsets) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : records) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode pair : record.path("headers")) {
                headers.add(new RecordHeader(pair.get(0).asText(), Pipe.bytes(pair.get(1))));
            }
            JsonNode time = record.path("timestamp");
            Integer number = partition.partition() < 0 ? null : partition.partition();
            sent.add(producer.send(new ProducerRecord<>(partition.topic(), number,
                time.isNumber() ? time.asLong() : null, Pipe.bytes(record.get("key")),
                Pipe.bytes(record.get("value")), headers)));
        }
        producer.flush();
        for (Future<RecordMetadata> each : sent) offsets.add(each.get().offset());
    }

    /** Every record of the partition that "isolation" lets see. */
    private static void consume(JsonNode request, ObjectNode answer) {
        Properties settings = settings(request);
        settings.put("isolation.level", committed(request) ? "read_committed" : "read_uncommitted");
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        TopicPartition partition = partition(request);
        ArrayNode records = answer.putArray("records");
        long deadline = System.currentTimeMillis() + SECONDS_MAX * 1_000;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end && System.currentTimeMillis() < deadline) {
                consumer.poll(Duration.ofMillis(200)).forEach(each -> told(each, records));
            }
            answer.put("complete", consumer.position(partition) >= end);
        }
    }

    private static void told(ConsumerRecord<byte[], byte[]> record, ArrayNode records) {
        ArrayNode told = records.addArray().add(record.offset()).add(record.timestamp());
        told.add(binary(record.key())).add(binary(record.value()));
        ArrayNode headers = told.addArray();
        record.headers().forEach(
            each -> headers.addArray().add(each.key()).add(binary(each.value())));
    }

    private static JsonNode binary(byte[] value) {
        return Pipe.binary(value == null ? null : ByteBuffer.wrap(value));
    }
}
