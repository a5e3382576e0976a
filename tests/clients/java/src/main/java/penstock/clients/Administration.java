package penstock.clients;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** The commands of administration, through one Admin for each address. */
final class Administration {
    private interface Act {
        Object run(Admin admin, JsonNode arguments) throws Exception;
    }

    private final Map<String, Admin> admins = new ConcurrentHashMap<>();
    private Map<String, Driver.Command> commands;

    void addTo(Map<String, Driver.Command> commands) {
        this.commands = commands;
        add("create_topic", Administration::createTopic);
        add("delete_topic", (admin, with) -> admin.deleteTopics(List.of(text(with, "topic"))).all().get());
        add("create_partitions", (admin, with) -> admin.createPartitions(
            Map.of(text(with, "topic"), NewPartitions.increaseTo(with.get("count").asInt()))).all().get());
        add("list_topics", (admin, with) -> admin.listTopics().names().get());
        add("describe_topic", (admin, with) -> Map.of("partitions", admin.describeTopics(List.of(text(with, "topic")))
            .allTopicNames().get().get(text(with, "topic")).partitions().size()));
        add("describe_config", Administration::describeConfig);
        add("alter_config", Administration::alterConfig);
        add("list_groups", Administration::listGroups);
        add("describe_group", Administration::describeGroup);
        add("delete_group", (admin, with) -> admin.deleteConsumerGroups(List.of(text(with, "group"))).all().get());
        add("group_offsets", Administration::groupOffsets);
        add("alter_offsets", Administration::alterOffsets);
        add("delete_offsets", (admin, with) ->
            admin.deleteConsumerGroupOffsets(text(with, "group"), Set.of(place(with))).all().get());
        add("list_offset", Administration::listOffset);
        add("delete_records", (admin, with) -> admin.deleteRecords(
            Map.of(place(with), RecordsToDelete.beforeOffset(with.get("before").asLong())))
            .lowWatermarks().get(place(with)).get().lowWatermark());
        add("describe_cluster", Administration::describeCluster);
        add("elect_leader", (admin, with) -> admin.electLeaders(
            ElectionType.valueOf(text(with, "election")), Set.of(place(with))).all().get());
        add("reassign", Administration::reassign);
        add("reassignments", (admin, with) -> PollingConsumer.names(
            admin.listPartitionReassignments().reassignments().get().keySet()));
        add("log_dirs", Administration::logDirs);
        add("set_quota", Administration::setQuota);
        add("quotas", Administration::quotas);
    }

    void closeAll() {
        admins.values().forEach(Admin::close);
        admins.clear();
    }

    private void add(String name, Act act) {
        commands.put(name, arguments -> {
            Admin admin = admins.computeIfAbsent(
                arguments.get("bootstrap").asText(), bootstrap -> Admin.create(Driver.settings(arguments)));
            return act.run(admin, arguments);
        });
    }

    private static Object createTopic(Admin admin, JsonNode with) throws Exception {
        Map<String, String> configs = new HashMap<>();
        with.get("configs").fields().forEachRemaining(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        NewTopic wanted = new NewTopic(text(with, "topic"), with.get("partitions").asInt(), (short) 1);
        return admin.createTopics(List.of(wanted.configs(configs))).all().get();
    }

    private static Object describeConfig(Admin admin, JsonNode with) throws Exception {
        Map<String, String> described = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource(with))).all().get().get(resource(with)).entries()) {
            described.put(entry.name(), entry.value());
        }
        return described;
    }

    private static Object alterConfig(Admin admin, JsonNode with) throws Exception {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        with.get("change").fields().forEachRemaining(entry -> {
            boolean isSet = !entry.getValue().isNull();
            changes.add(new AlterConfigOp(
                new ConfigEntry(entry.getKey(), isSet ? entry.getValue().asText() : null),
                isSet ? AlterConfigOp.OpType.SET : AlterConfigOp.OpType.DELETE));
        });
        return admin.incrementalAlterConfigs(Map.of(resource(with), changes)).all().get();
    }

    private static Object listGroups(Admin admin, JsonNode with) throws Exception {
        List<String> names = new ArrayList<>();
        admin.listConsumerGroups().all().get().forEach(group -> names.add(group.groupId()));
        return names;
    }

    private static Object describeGroup(Admin admin, JsonNode with) throws Exception {
        ConsumerGroupDescription described =
            admin.describeConsumerGroups(List.of(text(with, "group"))).all().get().get(text(with, "group"));
        List<Object> members = new ArrayList<>();
        described.members().forEach(member -> members.add(Map.of(
            "client_id", member.clientId(),
            "partitions", PollingConsumer.names(member.assignment().topicPartitions()))));
        return Map.of("state", described.state().toString(), "members", members);
    }

    private static Object groupOffsets(Admin admin, JsonNode with) throws Exception {
        List<Object> offsets = new ArrayList<>();
        admin.listConsumerGroupOffsets(text(with, "group")).partitionsToOffsetAndMetadata().get().forEach(
            (place, committed) -> offsets.add(List.of(place.topic(), place.partition(), committed.offset())));
        return offsets;
    }

    private static Object alterOffsets(Admin admin, JsonNode with) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        with.get("offsets").forEach(place -> wanted.put(
            new TopicPartition(place.get(0).asText(), place.get(1).asInt()), new OffsetAndMetadata(place.get(2).asLong())));
        return admin.alterConsumerGroupOffsets(text(with, "group"), wanted).all().get();
    }

    private static Object listOffset(Admin admin, JsonNode with) throws Exception {
        JsonNode at = with.get("at");
        OffsetSpec spec = at.isObject() ? OffsetSpec.forTimestamp(at.get("time").asLong())
            : at.asText().equals("earliest") ? OffsetSpec.earliest()
            : at.asText().equals("latest") ? OffsetSpec.latest()
            : OffsetSpec.maxTimestamp();
        return admin.listOffsets(Map.of(place(with), spec)).partitionResult(place(with)).get().offset();
    }

    private static Object describeCluster(Admin admin, JsonNode with) throws Exception {
        DescribeClusterResult described = admin.describeCluster();
        List<Object> brokers = new ArrayList<>();
        described.nodes().get().forEach(node -> brokers.add(List.of(node.id(), node.host(), node.port())));
        return Map.of(
            "cluster_id", described.clusterId().get(), "controller", described.controller().get().id(), "brokers", brokers);
    }

    private static Object reassign(Admin admin, JsonNode with) throws Exception {
        List<Integer> replicas = new ArrayList<>();
        with.get("replicas").forEach(replica -> replicas.add(replica.asInt()));
        NewPartitionReassignment wanted = new NewPartitionReassignment(replicas);
        return admin.alterPartitionReassignments(Map.of(place(with), Optional.of(wanted))).all().get();
    }

    private static Object logDirs(Admin admin, JsonNode with) throws Exception {
        List<Integer> brokers = new ArrayList<>();
        admin.describeCluster().nodes().get().forEach(node -> brokers.add(node.id()));
        List<Object> sizes = new ArrayList<>();
        admin.describeLogDirs(brokers).allDescriptions().get().values().forEach(folders ->
            folders.values().forEach(folder -> folder.replicaInfos().forEach((place, replica) ->
                sizes.add(List.of(place.topic(), place.partition(), replica.size())))));
        return sizes;
    }

    private static Object setQuota(Admin admin, JsonNode with) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, text(with, "client_id")));
        List<ClientQuotaAlteration.Op> limits = new ArrayList<>();
        with.get("limits").fields().forEachRemaining(entry -> limits.add(new ClientQuotaAlteration.Op(
            entry.getKey(), entry.getValue().isNull() ? null : entry.getValue().asDouble())));
        return admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, limits))).all().get();
    }

    private static Object quotas(Admin admin, JsonNode with) throws Exception {
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(List.of(
            ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, text(with, "client_id"))));
        Collection<Map<String, Double>> found = admin.describeClientQuotas(filter).entities().get().values();
        Optional<Map<String, Double>> first = found.stream().findFirst();
        return first.orElse(Map.of());
    }

    private static ConfigResource resource(JsonNode with) {
        boolean isTopic = text(with, "kind").equals("topic");
        return new ConfigResource(isTopic ? ConfigResource.Type.TOPIC : ConfigResource.Type.BROKER, text(with, "name"));
    }

    private static TopicPartition place(JsonNode with) {
        return new TopicPartition(text(with, "topic"), with.get("partition").asInt());
    }

    private static String text(JsonNode with, String name) {
        return with.get(name).asText();
    }
}
