package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Apache Kafka's client behind the vocabulary of drivers, which ../driver.py tells: commands in, answers and events out. */
public final class Driver {
    /** What a command does with its arguments, and gives as its result. */
    interface Command {
        Object run(JsonNode arguments) throws Exception;
    }

    static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;

    private final Map<String, Command> commands = new HashMap<>();

    private Driver() {
        Consumers consumers = new Consumers();
        Producers producers = new Producers(consumers);
        Administration administration = new Administration();
        producers.addTo(commands);
        consumers.addTo(commands);
        administration.addTo(commands);
        commands.put("close_all", arguments -> {
            consumers.closeAll();
            producers.closeAll();
            administration.closeAll();
            return null;
        });
    }

    public static void main(String[] arguments) throws Exception {
        Driver driver = new Driver();
        ExecutorService side = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            side.execute(() -> driver.obey(command));
        }
        System.exit(0);
    }

    private void obey(JsonNode command) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", command.get("id").asLong());
        try {
            answer.put("result", commands.get(command.get("do").asText()).run(command.get("with")));
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            cause.printStackTrace();
            answer.put("error", cause.toString());
        }
        tell(answer);
    }

    static void tell(Map<String, Object> event) {
        try {
            String line = JSON.writeValueAsString(event);
            synchronized (OUT) {
                OUT.println(line);
                OUT.flush();
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** A client in a test comes back at once; the defaults wait up to a second and keep metadata for minutes. */
    static Properties settings(JsonNode arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments.get("bootstrap").asText());
        settings.put("reconnect.backoff.ms", "10");
        settings.put("reconnect.backoff.max.ms", "100");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "100");
        settings.put("metadata.max.age.ms", "300");
        return settings;
    }

    static String text(JsonNode arguments, String name, String otherwise) {
        return arguments.hasNonNull(name) ? arguments.get(name).asText() : otherwise;
    }

    static byte[] decoded(JsonNode value) {
        return value == null || value.isNull() ? null : Base64.getDecoder().decode(value.asText());
    }

    static String encoded(byte[] value) {
        return value == null ? null : Base64.getEncoder().encodeToString(value);
    }
}
