package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

/** A consumer that polls by itself and tells what it is given. Other work is handed to its thread, between two polls. */
final class PollingConsumer extends Thread implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(50);

    private final String name;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final LinkedBlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
    private boolean isOpen = true;

    PollingConsumer(String name, KafkaConsumer<byte[], byte[]> consumer) {
        this.name = name;
        this.consumer = consumer;
        setDaemon(true);
    }

    void subscribe(JsonNode topics) {
        List<String> names = new ArrayList<>();
        topics.forEach(topic -> names.add(topic.asText()));
        consumer.subscribe(names, this);
    }

    void assign(JsonNode place) {
        TopicPartition partition = new TopicPartition(place.get("topic").asText(), place.get("partition").asInt());
        JsonNode start = place.get("start");
        consumer.assign(List.of(partition));
        if (start.isObject()) {
            long time = start.get("time").asLong();
            consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, time)).get(partition).offset());
        } else if (start.isNumber()) {
            consumer.seek(partition, start.asLong());
        } else if (start.asText().equals("beginning")) {
            consumer.seekToBeginning(List.of(partition));
        } else {
            consumer.seekToEnd(List.of(partition));
        }
        consumer.position(partition); // asks the broker now, not at the next poll
    }

    /** Have this thread do something with its consumer, and wait for it. */
    void run(Consumer<KafkaConsumer<byte[], byte[]>> task) throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        work.add(() -> {
            try {
                task.accept(consumer);
                done.complete(null);
            } catch (Throwable error) {
                done.completeExceptionally(error);
            }
        });
        done.get();
    }

    void close() throws Exception {
        run(mine -> {
            isOpen = false;
            mine.close();
        });
    }

    @Override
    public void run() {
        boolean hasFailed = false;
        while (isOpen) {
            try {
                if (hasFailed || !work.isEmpty()) {
                    work.take().run();
                    continue;
                }
                List<Object> records = new ArrayList<>();
                consumer.poll(POLL).forEach(record -> records.add(told(record)));
                if (!records.isEmpty()) {
                    Driver.tell(Map.of("consumer", name, "records", records));
                }
            } catch (Exception error) {
                error.printStackTrace();
                hasFailed = true; // polls no more, and waits to be closed
                Driver.tell(Map.of("consumer", name, "failed", error.toString()));
            }
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        Driver.tell(Map.of("consumer", name, "assigned", names(partitions)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Driver.tell(Map.of("consumer", name, "revoked", names(partitions)));
    }

    static List<List<Object>> names(Collection<TopicPartition> partitions) {
        List<List<Object>> names = new ArrayList<>();
        partitions.forEach(partition -> names.add(List.of(partition.topic(), partition.partition())));
        return names;
    }

    private static List<Object> told(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), Driver.encoded(header.value())));
        }
        return Arrays.asList(
            record.topic(), record.partition(), record.offset(), record.timestamp(),
            Driver.encoded(record.key()), Driver.encoded(record.value()), headers);
    }
}
