package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The commands of consumers; each has a thread, since a KafkaConsumer may be touched by one only. */
final class Consumers {
    private static final Map<String, String> STRATEGIES = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final Map<String, PollingConsumer> consumers = new ConcurrentHashMap<>();

    void addTo(Map<String, Driver.Command> commands) {
        commands.put("open_consumer", this::open);
        commands.put("commit", arguments -> {
            consumers.get(arguments.get("consumer").asText()).run(KafkaConsumer::commitSync);
            return null;
        });
        commands.put("close_consumer", arguments -> {
            consumers.remove(arguments.get("consumer").asText()).close();
            return null;
        });
    }

    /** What a transaction says about the group whose offsets it takes along. */
    ConsumerGroupMetadata groupOf(String name) throws Exception {
        AtomicReference<ConsumerGroupMetadata> group = new AtomicReference<>();
        consumers.get(name).run(mine -> group.set(mine.groupMetadata()));
        return group.get();
    }

    void closeAll() throws Exception {
        for (String name : new ArrayList<>(consumers.keySet())) {
            consumers.remove(name).close();
        }
    }

    private Object open(JsonNode arguments) throws Exception {
        String name = arguments.get("consumer").asText();
        Properties settings = Driver.settings(arguments);
        if (arguments.hasNonNull("group")) {
            settings.put("group.id", arguments.get("group").asText());
        }
        if (arguments.hasNonNull("instance_id")) {
            settings.put("group.instance.id", arguments.get("instance_id").asText());
        }
        settings.put("client.id", name);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", Driver.text(arguments, "reset", "earliest"));
        String protocol = Driver.text(arguments, "protocol", "classic");
        if (protocol.equals("classic")) {
            // In the consumer protocol all of this is the broker's business.
            settings.put("partition.assignment.strategy", STRATEGIES.get(Driver.text(arguments, "strategy", "range")));
            settings.put("session.timeout.ms", Driver.text(arguments, "session_timeout_ms", "10000"));
            settings.put("heartbeat.interval.ms", "200");
        } else {
            settings.put("group.protocol", protocol);
        }
        settings.put("isolation.level", Driver.text(arguments, "isolation", "read_uncommitted"));
        settings.put("fetch.max.wait.ms", "100"); // closing waits for the last fetch
        PollingConsumer consumer = new PollingConsumer(
            name, new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer()));
        consumers.put(name, consumer);
        if (arguments.hasNonNull("assign")) {
            consumer.assign(arguments.get("assign"));
        } else {
            consumer.subscribe(arguments.get("topics"));
        }
        consumer.start();
        return null;
    }
}
