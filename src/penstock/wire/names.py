"""Names of fields that some versions of a message have and others lack, so that a misspelt one is told from those.

Called by wire.messages when a mapping names a field that the version being written lacks. It is a table, since asking
the layouts means importing one version after another until the name is found: three more, 13 ms, with the first
Metadata. tests/unit/wire/test_names.py holds it to the layouts; a change of versions in wire.apis shows there.
"""

from typing import Literal

from penstock.wire.apis import ApiKey

Kind = Literal["request", "response"]

# A field inside a structure comes after the structure's name and a dot.
_REQUESTS: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "topic_data.name topic_data.topic_id",
    ApiKey.FETCH: (
        "cluster_id forgotten_topics_data forgotten_topics_data.partitions forgotten_topics_data.topic "
        "forgotten_topics_data.topic_id rack_id replica_id replica_state replica_state.replica_epoch "
        "replica_state.replica_id session_epoch session_id topics.partitions.current_leader_epoch "
        "topics.partitions.high_watermark topics.partitions.last_fetched_epoch topics.partitions.log_start_offset "
        "topics.partitions.replica_directory_id topics.topic topics.topic_id"
    ),
    ApiKey.LIST_OFFSETS: "isolation_level timeout topics.partitions.current_leader_epoch",
    ApiKey.METADATA: (
        "allow_auto_topic_creation include_cluster_authorized_operations include_topic_authorized_operations "
        "topics.topic_id"
    ),
    ApiKey.OFFSET_COMMIT: (
        "group_instance_id retention_time topics.name topics.partitions.committed_leader_epoch topics.topic_id"
    ),
    ApiKey.OFFSET_FETCH: (
        "group_id groups groups.group_id groups.member_epoch groups.member_id groups.topics groups.topics.name "
        "groups.topics.partition_indexes groups.topics.topic_id require_stable topics topics.name "
        "topics.partition_indexes"
    ),
    ApiKey.FIND_COORDINATOR: "coordinator_keys key key_type",
    ApiKey.JOIN_GROUP: "group_instance_id reason rebalance_timeout",
    ApiKey.HEARTBEAT: "group_instance_id",
    ApiKey.LEAVE_GROUP: "member_id members members.group_instance_id members.member_id members.reason",
    ApiKey.SYNC_GROUP: "group_instance_id protocol_name protocol_type",
    ApiKey.DESCRIBE_GROUPS: "include_authorized_operations",
    ApiKey.LIST_GROUPS: "states_filter types_filter",
    ApiKey.API_VERSIONS: "client_software_name client_software_version",
    ApiKey.DELETE_TOPICS: "topic_names topics topics.name topics.topic_id",
    ApiKey.INIT_PRODUCER_ID: "producer_epoch producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "replica_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        "transactions transactions.producer_epoch transactions.producer_id transactions.topics "
        "transactions.topics.name transactions.topics.partitions transactions.transactional_id "
        "transactions.verify_only v3_and_below_producer_epoch v3_and_below_producer_id v3_and_below_topics "
        "v3_and_below_topics.name v3_and_below_topics.partitions v3_and_below_transactional_id"
    ),
    ApiKey.WRITE_TXN_MARKERS: "markers.transaction_version",
    ApiKey.TXN_OFFSET_COMMIT: "generation_id group_instance_id member_id topics.partitions.committed_leader_epoch",
    ApiKey.DESCRIBE_CONFIGS: "include_documentation",
    ApiKey.ELECT_LEADERS: "election_type",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "allow_replication_factor_change",
    ApiKey.DESCRIBE_CLUSTER: "endpoint_type include_fenced_brokers",
    ApiKey.LIST_TRANSACTIONS: "duration_filter transactional_id_pattern",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "subscribed_topic_regex",
    ApiKey.LIST_CONFIG_RESOURCES: "resource_types",
}
_RESPONSES: dict[ApiKey, str] = {
    ApiKey.PRODUCE: (
        "node_endpoints node_endpoints.host node_endpoints.node_id node_endpoints.port node_endpoints.rack "
        "responses.name responses.partition_responses.current_leader "
        "responses.partition_responses.current_leader.leader_epoch "
        "responses.partition_responses.current_leader.leader_id responses.partition_responses.error_message "
        "responses.partition_responses.log_start_offset responses.partition_responses.record_errors "
        "responses.partition_responses.record_errors.batch_index "
        "responses.partition_responses.record_errors.batch_index_error_message responses.topic_id"
    ),
    ApiKey.FETCH: (
        "error_code node_endpoints node_endpoints.host node_endpoints.node_id node_endpoints.port "
        "node_endpoints.rack responses.partitions.current_leader responses.partitions.current_leader.leader_epoch "
        "responses.partitions.current_leader.leader_id responses.partitions.diverging_epoch "
        "responses.partitions.diverging_epoch.end_offset responses.partitions.diverging_epoch.epoch "
        "responses.partitions.log_start_offset responses.partitions.preferred_read_replica "
        "responses.partitions.snapshot_id responses.partitions.snapshot_id.end_offset "
        "responses.partitions.snapshot_id.epoch responses.topic responses.topic_id session_id"
    ),
    ApiKey.LIST_OFFSETS: "throttle_time topics.partitions.leader_epoch",
    ApiKey.METADATA: (
        "brokers.rack cluster_authorized_operations cluster_id controller_id error_code throttle_time "
        "topics.is_internal topics.partitions.leader_epoch topics.partitions.offline_replicas "
        "topics.topic_authorized_operations topics.topic_id"
    ),
    ApiKey.OFFSET_COMMIT: "throttle_time topics.name topics.topic_id",
    ApiKey.OFFSET_FETCH: (
        "error_code groups groups.error_code groups.group_id groups.topics groups.topics.name "
        "groups.topics.partitions groups.topics.partitions.committed_leader_epoch "
        "groups.topics.partitions.committed_offset groups.topics.partitions.error_code "
        "groups.topics.partitions.metadata groups.topics.partitions.partition_index groups.topics.topic_id "
        "throttle_time topics topics.name topics.partitions topics.partitions.committed_leader_epoch "
        "topics.partitions.committed_offset topics.partitions.error_code topics.partitions.metadata "
        "topics.partitions.partition_index"
    ),
    ApiKey.FIND_COORDINATOR: (
        "coordinators coordinators.error_code coordinators.error_message coordinators.host coordinators.key "
        "coordinators.node_id coordinators.port error_code error_message host node_id port throttle_time"
    ),
    ApiKey.JOIN_GROUP: "members.group_instance_id protocol_type skip_assignment throttle_time",
    ApiKey.HEARTBEAT: "throttle_time",
    ApiKey.LEAVE_GROUP: "members members.error_code members.group_instance_id members.member_id throttle_time",
    ApiKey.SYNC_GROUP: "protocol_name protocol_type throttle_time",
    ApiKey.DESCRIBE_GROUPS: (
        "groups.authorized_operations groups.error_message groups.members.group_instance_id throttle_time"
    ),
    ApiKey.LIST_GROUPS: "groups.group_state groups.group_type throttle_time",
    ApiKey.API_VERSIONS: (
        "finalized_features finalized_features.max_version_level finalized_features.min_version_level "
        "finalized_features.name finalized_features_epoch supported_features supported_features.max_version "
        "supported_features.min_version supported_features.name throttle_time zk_migration_ready"
    ),
    ApiKey.CREATE_TOPICS: (
        "topics.configs topics.configs.config_source topics.configs.is_sensitive topics.configs.name "
        "topics.configs.read_only topics.configs.value topics.num_partitions topics.replication_factor "
        "topics.topic_config_error_code topics.topic_id"
    ),
    ApiKey.DELETE_TOPICS: "responses.error_message responses.topic_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        "error_code results_by_topic_v3_and_below results_by_topic_v3_and_below.name "
        "results_by_topic_v3_and_below.results_by_partition "
        "results_by_topic_v3_and_below.results_by_partition.partition_error_code "
        "results_by_topic_v3_and_below.results_by_partition.partition_index results_by_transaction "
        "results_by_transaction.topic_results results_by_transaction.topic_results.name "
        "results_by_transaction.topic_results.results_by_partition "
        "results_by_transaction.topic_results.results_by_partition.partition_error_code "
        "results_by_transaction.topic_results.results_by_partition.partition_index "
        "results_by_transaction.transactional_id"
    ),
    ApiKey.END_TXN: "producer_epoch producer_id",
    ApiKey.DESCRIBE_CONFIGS: "results.configs.config_type results.configs.documentation",
    ApiKey.DESCRIBE_LOG_DIRS: "error_code results.is_cordoned results.total_bytes results.usable_bytes",
    ApiKey.ELECT_LEADERS: "error_code",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "allow_replication_factor_change",
    ApiKey.DESCRIBE_QUORUM: (
        "error_message nodes nodes.listeners nodes.listeners.host nodes.listeners.name nodes.listeners.port "
        "nodes.node_id topics.partitions.current_voters.last_caught_up_timestamp "
        "topics.partitions.current_voters.last_fetch_timestamp "
        "topics.partitions.current_voters.replica_directory_id topics.partitions.error_message "
        "topics.partitions.observers.last_caught_up_timestamp topics.partitions.observers.last_fetch_timestamp "
        "topics.partitions.observers.replica_directory_id"
    ),
    ApiKey.DESCRIBE_CLUSTER: "brokers.is_fenced endpoint_type",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "groups.members.member_type",
    ApiKey.LIST_CONFIG_RESOURCES: "config_resources.resource_type",
}


def varying_names(api_key: int, kind: Kind) -> frozenset[str]:
    """Of all versions served of one message."""
    table = _REQUESTS if kind == "request" else _RESPONSES
    return frozenset(table.get(ApiKey(api_key), "").split())
