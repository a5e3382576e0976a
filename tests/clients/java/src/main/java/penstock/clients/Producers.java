package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The commands of producers. */
final class Producers {
    // About what one of our numbered records takes in a batch, to turn their number into bytes.
    private static final int RECORD_BYTES = 24;

    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
    private final Consumers consumers; // who know the groups whose offsets go into a transaction

    Producers(Consumers consumers) {
        this.consumers = consumers;
    }

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("open_producer", this::open);
        commands.put("send", this::send);
        commands.put("begin_transaction", arguments -> {
            producers.get(arguments.get("producer").asText()).beginTransaction();
            return null;
        });
        commands.put("send_offsets", this::sendOffsets);
        commands.put("end_transaction", this::end);
        commands.put("close_producer", arguments -> {
            producers.remove(arguments.get("producer").asText()).close();
            return null;
        });
    }

    void closeAll() {
        for (String name : new ArrayList<>(producers.keySet())) {
            producers.remove(name).close(Duration.ZERO);
        }
    }

    private Object open(JsonNode arguments) {
        Properties settings = Driver.settings(arguments);
        String transactionalId = Driver.text(arguments, "transactional_id", null);
        boolean isIdempotent = arguments.path("idempotent").asBoolean(false) || transactionalId != null;
        settings.put("compression.type", Driver.text(arguments, "compression", "none"));
        settings.put("acks", Driver.text(arguments, "acks", "all"));
        settings.put("enable.idempotence", String.valueOf(isIdempotent));
        settings.put("max.block.ms", "40000");
        if (arguments.hasNonNull("batch_records")) {
            settings.put("batch.size", String.valueOf(arguments.get("batch_records").asInt() * RECORD_BYTES));
        }
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
            settings.put("transaction.timeout.ms", Driver.text(arguments, "transaction_timeout_ms", "60000"));
        }
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(arguments.get("producer").asText(), producer);
        if (transactionalId != null) {
            producer.initTransactions();
        }
        return null;
    }

    private Object send(JsonNode arguments) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(arguments.get("producer").asText());
        String topic = arguments.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : arguments.get("records")) {
            sent.add(producer.send(record(topic, record)));
        }
        List<List<Long>> places = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata place = future.get();
            places.add(List.of((long) place.partition(), place.offset()));
        }
        return places;
    }

    private Object sendOffsets(JsonNode arguments) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> reached = new HashMap<>();
        for (JsonNode place : arguments.get("offsets")) {
            TopicPartition partition = new TopicPartition(place.get(0).asText(), place.get(1).asInt());
            reached.put(partition, new OffsetAndMetadata(place.get(2).asLong()));
        }
        ConsumerGroupMetadata group = consumers.groupOf(arguments.get("consumer").asText());
        producers.get(arguments.get("producer").asText()).sendOffsetsToTransaction(reached, group);
        return null;
    }

    private Object end(JsonNode arguments) {
        KafkaProducer<byte[], byte[]> producer = producers.get(arguments.get("producer").asText());
        if (arguments.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return null;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), Driver.decoded(header.get(1))));
        }
        Integer partition = record.hasNonNull("partition") ? record.get("partition").asInt() : null;
        Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
        byte[] key = Driver.decoded(record.get("key"));
        return new ProducerRecord<>(topic, partition, timestamp, key, Driver.decoded(record.get("value")), headers);
    }
}
