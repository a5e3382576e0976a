"""The broker's settings: the table. Names, defaults and limits are those of Kafka 4.3 unless a row says otherwise.

Called by BrokerConfig, which fills it from file, command line and the cluster's metadata.
Read-only rows can be set at start only. Everything that names a path, an address or a program is read-only: whoever may
alter configs over the wire must not choose what this process opens.
"""

from dataclasses import dataclass

from penstock.config.addresses import collector_fault, http_fault, listeners_fault, overrides_fault
from penstock.config.metadata_address import metadata_fault
from penstock.config.setting import (
    CLUSTER_WIDE,
    HIGH,
    INT_MAX,
    LONG_MAX,
    LOW,
    PER_BROKER,
    choice,
    choices,
    double,
    flag,
    integer,
    items,
    long,
    optional_integer,
    optional_long,
    optional_text,
    settings_of,
    text,
)
from penstock.config.topic_config import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    DURABILITIES,
    SEGMENT_BYTES_MIN,
    TIMESTAMP_TYPES,
    TOPIC_NAME,
    gzip_level_fault,
)

# Kafka's names, so that a configuration moves over as it is.
REPLICA_SELECTORS = (
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "org.apache.kafka.common.replica.LeaderSelector",
)

SERVICE_NAME_CHARACTERS_MAX = 255


def _cluster_fault(name: str) -> str | None:
    is_word = name and all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)
    return None if is_word else "no name: letters, digits, '.', '_' and '-'"


def _one_directory_fault(directories: tuple[str, ...]) -> str | None:
    return None if len(directories) == 1 else "penstock keeps its data in one directory"


def _budget_fault(budget: int) -> str | None:
    return None if budget == -1 or budget > 0 else "neither -1 (no limit) nor a number of bytes"


def _service_fault(name: str) -> str | None:
    return None if 0 < len(name) <= SERVICE_NAME_CHARACTERS_MAX else "no name, or one that is too long"


def _assignors_fault(assignors: tuple[str, ...]) -> str | None:
    return None if assignors else "a group needs an assignor"


def _schema_topic_fault(name: str) -> str | None:
    return None if TOPIC_NAME.fullmatch(name) else "no name of a topic: up to 249 letters, digits, '.', '_' and '-'"


# No repr: a broker's settings in a log line or a traceback would show its secrets.
@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class BrokerSettings:
    # A row reads as name, default, meaning, limits; one argument a line would hide the table.
    # fmt: off

    # This node.
    node_id: int = integer("node.id", 1, "This broker's id in the cluster.", low=0, importance=HIGH)
    broker_rack: str | None = optional_text("broker.rack", "Where this broker stands; replicas are spread over racks.")
    listeners: tuple[str, ...] = items(
        "listeners", ("PLAINTEXT://127.0.0.1:9092",), "The address to listen at, as PLAINTEXT://host:port or "
        "host:port. Port 0 takes a free one.", check=listeners_fault, importance=HIGH)
    advertised_listeners: tuple[str, ...] = items(
        "advertised.listeners", (), "The address clients are told to use, when it is not the one listened at.",
        check=listeners_fault, importance=HIGH)
    log_dirs: tuple[str, ...] = items(
        "log.dirs", ("penstock-data",), "The directory that holds the logs and the metadata. One, where Kafka takes "
        "several.", check=_one_directory_fault, importance=HIGH)
    penstock_http_listen: str = text(
        "penstock.http.listen", "127.0.0.1:9644", "The address of /metrics and /health; empty for none.",
        check=http_fault)
    penstock_gateway_listen: str = text(
        "penstock.gateway.listen", "127.0.0.1:8080",
        "The address of the gateway that `penstock serve` starts beside the broker: console, REST, schema registry; "
        "empty for none. Where nobody named it and it cannot be had, the broker runs without.", check=http_fault)
    penstock_scheduler_slice_us: int = integer(
        "penstock.scheduler.slice.us", 100, "How long a turn on a core `penstock serve` asks of the scheduler for its "
        "threads: the shorter, the sooner they get one (Linux 6.12 or later). Their share of the processor stays. "
        "0 leaves it to the system.", low=0, high=100_000)

    # Where the cluster's metadata is.
    penstock_metadata: str = text(
        "penstock.metadata", "", "The metadata store: sqlite:FILE or etcd://HOST:PORT,HOST:PORT (etcds:// with TLS; "
        "user:password@ may stand before the hosts); empty for SQLite in the data directory.", check=metadata_fault,
        sensitive=True, importance=HIGH)
    penstock_metadata_user: str = text("penstock.metadata.user", "", "The user to be in etcd.")
    penstock_metadata_password: str = text(
        "penstock.metadata.password", "", "The password of that user.", sensitive=True)
    penstock_metadata_tls_ca: str = text(
        "penstock.metadata.tls.ca", "", "A file with the certificates that vouch for etcd's; empty for those the "
        "system trusts.")
    penstock_metadata_tls_cert: str = text(
        "penstock.metadata.tls.cert", "", "A file with the certificate to show to etcd.")
    penstock_metadata_tls_key: str = text("penstock.metadata.tls.key", "", "A file with the key of that certificate.")
    penstock_metadata_connect_timeout_ms: int = integer(
        "penstock.metadata.connect.timeout.ms", 30_000, "How long a starting broker waits for an etcd that does not "
        "answer.", low=1)

    # The cluster and its replicas.
    penstock_cluster: str = text(
        "penstock.cluster", "default", "The cluster's name in its metadata store, which several clusters may share.",
        check=_cluster_fault)
    broker_session_timeout_ms: int = integer(
        "broker.session.timeout.ms", 6_000, "A broker whose signs of life have been missing for this long is taken for "
        "gone, and others lead in its place. Kafka's is 9000.", low=100)
    controlled_shutdown_enable: bool = flag(
        "controlled.shutdown.enable", True, "Before it stops, a broker hands over what it leads.")
    replica_lag_time_max_ms: int = long(
        "replica.lag.time.max.ms", 30_000, "A follower that has not been at the end of the log for this long is no "
        "longer in sync.", low=1, importance=HIGH)
    replica_fetch_max_bytes: int = integer(
        "replica.fetch.max.bytes", 1 << 20, "The most a follower asks for of one partition; a larger batch still comes "
        "whole.", low=0)
    replica_fetch_response_max_bytes: int = integer(
        "replica.fetch.response.max.bytes", 10 << 20, "The most a follower asks for in one request.", low=0)
    replica_fetch_wait_max_ms: int = integer(
        "replica.fetch.wait.max.ms", 500, "How long a leader may keep a follower waiting for new records.", low=1,
        importance=HIGH)
    replica_fetch_backoff_ms: int = integer(
        "replica.fetch.backoff.ms", 1_000, "How long a follower waits after a fetch that failed.", low=0)
    replica_high_watermark_checkpoint_interval_ms: int = long(
        "replica.high.watermark.checkpoint.interval.ms", 5_000, "How often the high watermarks are written.", low=1,
        importance=HIGH)
    replica_selector_class: str = choice(
        "replica.selector.class", REPLICA_SELECTORS[0], REPLICA_SELECTORS, "Where a consumer that tells its rack reads "
        "from: a replica in that rack, or from the leader always, which is Kafka's default.")
    auto_leader_rebalance_enable: bool = flag(
        "auto.leader.rebalance.enable", True, "Give leadership back to the first of a partition's replicas when too "
        "few lead what they should.", importance=HIGH)
    leader_imbalance_check_interval_seconds: int = long(
        "leader.imbalance.check.interval.seconds", 300, "How often that is looked at.", low=1, importance=HIGH)
    leader_imbalance_per_broker_percentage: int = integer(
        "leader.imbalance.per.broker.percentage", 10, "How many of the partitions that should be a broker's to lead, "
        "in percent, may have another leader.", low=0, importance=HIGH)

    # Topics that do not say otherwise.
    num_partitions: int = integer("num.partitions", 1, "Partitions of a topic created without a number.", low=1)
    default_replication_factor: int = integer(
        "default.replication.factor", 1, "Replicas of a topic created without a number.", low=1)
    auto_create_topics_enable: bool = flag(
        "auto.create.topics.enable", True, "Create a topic when a client asks for one that is not there.",
        importance=HIGH)
    delete_topic_enable: bool = flag("delete.topic.enable", True, "Let clients delete topics.", importance=HIGH)
    log_segment_bytes: int = integer(
        "log.segment.bytes", 1 << 30, "Default of the topic setting `segment.bytes`.", low=SEGMENT_BYTES_MIN,
        dynamic=CLUSTER_WIDE, importance=HIGH)
    log_roll_ms: int | None = optional_long(
        "log.roll.ms", "Default of the topic setting `segment.ms`; unset, `log.roll.hours` counts.", low=1,
        dynamic=CLUSTER_WIDE, importance=HIGH)
    log_roll_hours: int = integer("log.roll.hours", 168, "`log.roll.ms` in hours.", low=1, importance=HIGH)
    log_roll_jitter_ms: int | None = optional_long(
        "log.roll.jitter.ms", "Default of the topic setting `segment.jitter.ms`; unset, `log.roll.jitter.hours` "
        "counts.", low=0, dynamic=CLUSTER_WIDE)
    log_roll_jitter_hours: int = integer("log.roll.jitter.hours", 0, "`log.roll.jitter.ms` in hours.", low=0)
    log_retention_ms: int | None = optional_long(
        "log.retention.ms", "Default of the topic setting `retention.ms`; unset, `log.retention.minutes` counts. -1 is "
        "no limit.", low=-1, dynamic=CLUSTER_WIDE, importance=HIGH)
    log_retention_minutes: int | None = optional_integer(
        "log.retention.minutes", "`log.retention.ms` in minutes; unset, `log.retention.hours` counts.", low=-1,
        importance=HIGH)
    log_retention_hours: int = integer(
        "log.retention.hours", 168, "`log.retention.ms` in hours.", low=-1, importance=HIGH)
    log_retention_bytes: int = long(
        "log.retention.bytes", -1, "Default of the topic setting `retention.bytes`.", low=-1, dynamic=CLUSTER_WIDE,
        importance=HIGH)
    log_cleanup_policy: frozenset[str] = choices(
        "log.cleanup.policy", frozenset({"delete"}), CLEANUP_POLICIES, "Default of the topic setting `cleanup.policy`.",
        dynamic=CLUSTER_WIDE)
    log_index_interval_bytes: int = integer(
        "log.index.interval.bytes", 4096, "Default of the topic setting `index.interval.bytes`.", low=0,
        dynamic=CLUSTER_WIDE)
    log_index_size_max_bytes: int = integer(
        "log.index.size.max.bytes", 10 << 20, "Default of the topic setting `segment.index.bytes`.", low=4,
        dynamic=CLUSTER_WIDE)
    log_flush_interval_messages: int = long(
        "log.flush.interval.messages", LONG_MAX, "Default of the topic setting `flush.messages`.", low=1,
        dynamic=CLUSTER_WIDE, importance=HIGH)
    log_flush_interval_ms: int | None = optional_long(
        "log.flush.interval.ms", "Default of the topic setting `flush.ms`; unset, `log.flush.scheduler.interval.ms` "
        "counts.", low=0, dynamic=CLUSTER_WIDE, importance=HIGH)
    log_flush_scheduler_interval_ms: int = long(
        "log.flush.scheduler.interval.ms", LONG_MAX, "How often logs are looked at for `flush.ms`.", low=1)
    log_preallocate: bool = flag(
        "log.preallocate", False, "Default of the topic setting `preallocate`.", dynamic=CLUSTER_WIDE,
        honoured=False)
    log_segment_delete_delay_ms: int = long(
        "log.segment.delete.delay.ms", 60_000, "Default of the topic setting `file.delete.delay.ms`.", low=0,
        dynamic=CLUSTER_WIDE)
    log_message_timestamp_type: str = choice(
        "log.message.timestamp.type", "CreateTime", TIMESTAMP_TYPES,
        "Default of the topic setting `message.timestamp.type`.", dynamic=CLUSTER_WIDE)
    log_message_timestamp_before_max_ms: int = long(
        "log.message.timestamp.before.max.ms", LONG_MAX, "Default of the topic setting "
        "`message.timestamp.before.max.ms`.", low=0, dynamic=CLUSTER_WIDE)
    log_message_timestamp_after_max_ms: int = long(
        "log.message.timestamp.after.max.ms", 3_600_000, "Default of the topic setting "
        "`message.timestamp.after.max.ms`.", low=0, dynamic=CLUSTER_WIDE)
    message_max_bytes: int = integer(
        "message.max.bytes", 1_048_588, "Default of the topic setting `max.message.bytes`.", low=0,
        dynamic=CLUSTER_WIDE, importance=HIGH)
    compression_type: str = choice(
        "compression.type", "producer", COMPRESSION_TYPES, "Default of the topic setting `compression.type`.",
        dynamic=CLUSTER_WIDE, importance=HIGH)
    compression_gzip_level: int = integer(
        "compression.gzip.level", -1, "Default of the topic setting `compression.gzip.level`.", check=gzip_level_fault,
        dynamic=CLUSTER_WIDE)
    compression_lz4_level: int = integer(
        "compression.lz4.level", 9, "Default of the topic setting `compression.lz4.level`.", low=1, high=17,
        dynamic=CLUSTER_WIDE)
    compression_zstd_level: int = integer(
        "compression.zstd.level", 3, "Default of the topic setting `compression.zstd.level`.", low=-131072, high=22,
        dynamic=CLUSTER_WIDE)
    min_insync_replicas: int = integer(
        "min.insync.replicas", 1, "Default of the topic setting `min.insync.replicas`. While it is not set, a topic "
        "created with three replicas or more gets 2.", low=1, dynamic=CLUSTER_WIDE, importance=HIGH)
    unclean_leader_election_enable: bool = flag(
        "unclean.leader.election.enable", False, "Default of the topic setting `unclean.leader.election.enable`.",
        dynamic=CLUSTER_WIDE, importance=HIGH)
    penstock_durability: str = choice(
        "penstock.durability", "fsync", DURABILITIES, "Default of the topic setting `penstock.durability`.",
        dynamic=CLUSTER_WIDE, importance=HIGH)
    log_local_retention_ms: int = long(
        "log.local.retention.ms", -2, "Default of the topic setting `local.retention.ms`.", low=-2,
        dynamic=CLUSTER_WIDE, honoured=False)
    log_local_retention_bytes: int = long(
        "log.local.retention.bytes", -2, "Default of the topic setting `local.retention.bytes`.", low=-2,
        dynamic=CLUSTER_WIDE, honoured=False)

    # Housekeeping of logs.
    log_retention_check_interval_ms: int = long(
        "log.retention.check.interval.ms", 300_000, "How often logs are looked at for segments past their retention.",
        low=1)
    log_flush_offset_checkpoint_interval_ms: int = integer(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often the recovery points are written; after a crash "
        "the log is checked from there on.", low=1)
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        "log.flush.start.offset.checkpoint.interval.ms", 60_000, "How often the log start offsets are written. "
        "They are written with the recovery points.", low=1, honoured=False)
    log_cleaner_enable: bool = flag("log.cleaner.enable", True, "Compact logs at all.")
    log_cleaner_backoff_ms: int = long(
        "log.cleaner.backoff.ms", 15_000, "How long to wait when no log needs compaction.", low=0, dynamic=CLUSTER_WIDE)
    log_cleaner_dedupe_buffer_size: int = long(
        "log.cleaner.dedupe.buffer.size", 128 << 20, "Memory for the keys of one pass of compaction, in its own "
        "process.", low=1 << 20, dynamic=CLUSTER_WIDE)
    log_cleaner_min_cleanable_ratio: float = double(
        "log.cleaner.min.cleanable.ratio", 0.5, "Default of the topic setting `min.cleanable.dirty.ratio`.", low=0,
        high=1, dynamic=CLUSTER_WIDE)
    log_cleaner_delete_retention_ms: int = long(
        "log.cleaner.delete.retention.ms", 86_400_000, "Default of the topic setting `delete.retention.ms`.", low=0,
        dynamic=CLUSTER_WIDE)
    log_cleaner_min_compaction_lag_ms: int = long(
        "log.cleaner.min.compaction.lag.ms", 0, "Default of the topic setting `min.compaction.lag.ms`.", low=0,
        dynamic=CLUSTER_WIDE)
    log_cleaner_max_compaction_lag_ms: int = long(
        "log.cleaner.max.compaction.lag.ms", LONG_MAX, "Default of the topic setting `max.compaction.lag.ms`.", low=1,
        dynamic=CLUSTER_WIDE)
    log_cleaner_threads: int = integer(
        "log.cleaner.threads", 1, "Compaction runs in one process of its own.", low=0, dynamic=CLUSTER_WIDE,
        honoured=False)

    # Connections and requests.
    socket_request_max_bytes: int = integer(
        "socket.request.max.bytes", 100 << 20, "The largest request accepted.", low=1)
    sasl_server_max_receive_size: int = integer(
        "sasl.server.max.receive.size", 512 << 10, "The largest request accepted before a client has authenticated.",
        low=1, honoured=False)
    penstock_frame_timeout_ms: int = long(
        "penstock.frame.timeout.ms", 30_000, "A request whose bytes have not all come after this time closes its "
        "connection.", low=1)
    queued_max_request_bytes: int = long(
        "queued.max.request.bytes", 64 << 20, "Bytes of requests held in memory over all connections; past it the "
        "broker stops reading. One request is always let in. -1 is no limit, which is Kafka's default.",
        check=_budget_fault)
    penstock_schema_topic: str = text(
        "penstock.schema.topic", "_schemas", "The topic of the schema registry whose schemas topics with "
        "`penstock.schema.validation` are validated by.", check=_schema_topic_fault)
    penstock_decompression_ratio_max: int = integer(
        "penstock.decompression.ratio.max", 32, "A batch may not decompress to more than `max.message.bytes` times "
        "this.", low=1)
    max_connections: int = integer("max.connections", INT_MAX, "Connections in all.", low=0, dynamic=CLUSTER_WIDE)
    max_connections_per_ip: int = integer(
        "max.connections.per.ip", INT_MAX, "Connections from one address.", low=0, dynamic=CLUSTER_WIDE)
    max_connections_per_ip_overrides: tuple[str, ...] = items(
        "max.connections.per.ip.overrides", (), "Addresses with a limit of their own, as address:count.",
        check=overrides_fault, dynamic=CLUSTER_WIDE)
    max_connection_creation_rate: int = integer(
        "max.connection.creation.rate", INT_MAX, "New connections a second.", low=0, dynamic=CLUSTER_WIDE)
    connections_max_idle_ms: int = long(
        "connections.max.idle.ms", 600_000, "A connection silent for this long is closed; negative never.")
    socket_listen_backlog_size: int = integer(
        "socket.listen.backlog.size", 1024, "Connections the kernel keeps waiting to be accepted. Kafka's is 50.",
        low=1)
    socket_send_buffer_bytes: int = integer(
        "socket.send.buffer.bytes", -1, "The kernel's send buffer; -1 leaves it to the kernel. Kafka's is 102400.",
        low=-1)
    socket_receive_buffer_bytes: int = integer(
        "socket.receive.buffer.bytes", -1, "The kernel's receive buffer; -1 leaves it to the kernel. Kafka's is "
        "102400.", low=-1)
    fetch_max_bytes: int = integer(
        "fetch.max.bytes", 55 << 20, "The most one fetch returns, whatever the client asks for.", low=1024)
    max_incremental_fetch_session_cache_slots: int = integer(
        "max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept at a time.", low=0)
    max_request_partition_size_limit: int = integer(
        "max.request.partition.size.limit", 2000, "Partitions in one answer to DescribeTopicPartitions.", low=1)
    num_network_threads: int = integer(
        "num.network.threads", 3, "One event loop serves all connections.", low=1, dynamic=CLUSTER_WIDE, honoured=False)
    num_io_threads: int = integer(
        "num.io.threads", 8, "One event loop handles all requests.", low=1, dynamic=CLUSTER_WIDE, honoured=False)
    background_threads: int = integer(
        "background.threads", 10, "Background work runs as tasks of the event loop.", low=1, dynamic=CLUSTER_WIDE,
        honoured=False)

    # Groups and committed offsets.
    group_min_session_timeout_ms: int = integer(
        "group.min.session.timeout.ms", 6_000, "The shortest session time-out a member may ask for.", low=0)
    group_max_session_timeout_ms: int = integer(
        "group.max.session.timeout.ms", 1_800_000, "The longest session time-out a member may ask for.", low=0)
    group_initial_rebalance_delay_ms: int = integer(
        "group.initial.rebalance.delay.ms", 3_000, "How long an empty group waits for more members before it starts.",
        low=0)
    group_max_size: int = integer("group.max.size", INT_MAX, "Members of one group.", low=1)
    group_consumer_session_timeout_ms: int = integer(
        "group.consumer.session.timeout.ms", 45_000, "How long a member of the consumer protocol may be silent, where "
        "its group does not say.", low=1)
    group_consumer_min_session_timeout_ms: int = integer(
        "group.consumer.min.session.timeout.ms", 45_000, "The shortest such time a group may have.", low=1)
    group_consumer_max_session_timeout_ms: int = integer(
        "group.consumer.max.session.timeout.ms", 60_000, "The longest such time a group may have.", low=1)
    group_consumer_heartbeat_interval_ms: int = integer(
        "group.consumer.heartbeat.interval.ms", 5_000, "How often a member of the consumer protocol reports, where its "
        "group does not say.", low=1)
    group_consumer_min_heartbeat_interval_ms: int = integer(
        "group.consumer.min.heartbeat.interval.ms", 5_000, "The shortest such interval a group may have.", low=1)
    group_consumer_max_heartbeat_interval_ms: int = integer(
        "group.consumer.max.heartbeat.interval.ms", 15_000, "The longest such interval a group may have.", low=1)
    group_consumer_max_size: int = integer(
        "group.consumer.max.size", INT_MAX, "Members of one group of the consumer protocol.", low=1)
    group_consumer_assignors: tuple[str, ...] = items(
        "group.consumer.assignors", ("uniform", "range"), "Assignors that members may ask for; the first is for groups "
        "that ask for none.", one_of=("uniform", "range"), check=_assignors_fault)
    group_consumer_migration_policy: str = choice(
        "group.consumer.migration.policy", "bidirectional", ("bidirectional", "upgrade", "downgrade", "disabled"),
        "Which groups may change their protocol while they run: from classic to consumer (`upgrade`), back "
        "(`downgrade`), both or neither.")
    group_consumer_regex_refresh_interval_ms: int = integer(
        "group.consumer.regex.refresh.interval.ms", 600_000, "How often the patterns members subscribe with are "
        "matched again. Here that happens whenever topics come or go, and needs no other time.", low=10_000,
        honoured=False)
    offsets_topic_num_partitions: int = integer(
        "offsets.topic.num.partitions", 50, "Partitions of `__consumer_offsets`; must not change once it exists.",
        low=1, importance=HIGH)
    offsets_topic_replication_factor: int = integer(
        "offsets.topic.replication.factor", 3, "Replicas of `__consumer_offsets`, as far as there are brokers.", low=1,
        importance=HIGH)
    offsets_topic_segment_bytes: int = integer(
        "offsets.topic.segment.bytes", 100 << 20, "Segment size of `__consumer_offsets`.", low=SEGMENT_BYTES_MIN,
        importance=HIGH)
    offsets_retention_minutes: int = integer(
        "offsets.retention.minutes", 10_080, "How long offsets outlive the last member of their group.", low=1,
        importance=HIGH)
    offsets_retention_check_interval_ms: int = long(
        "offsets.retention.check.interval.ms", 600_000, "How often groups are looked at for expired offsets.", low=1)
    offset_metadata_max_bytes: int = integer(
        "offset.metadata.max.bytes", 4096, "The longest note a client may store with an offset.", low=0)
    offsets_commit_timeout_ms: int = integer(
        "offsets.commit.timeout.ms", 5_000, "How long a commit waits for the log.", low=1)

    # Producers and transactions.
    producer_id_expiration_ms: int = integer(
        "producer.id.expiration.ms", 86_400_000, "How long an idle producer's sequence state is kept.", low=1,
        dynamic=CLUSTER_WIDE, importance=LOW)
    producer_id_expiration_check_interval_ms: int = integer(
        "producer.id.expiration.check.interval.ms", 600_000, "How often idle producers are looked for.", low=1,
        importance=LOW)
    transactional_id_expiration_ms: int = integer(
        "transactional.id.expiration.ms", 604_800_000, "How long an idle transactional id is kept.", low=1)
    transaction_max_timeout_ms: int = integer(
        "transaction.max.timeout.ms", 900_000, "The longest transaction a producer may ask for.", low=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, "How often transactions are looked at "
        "for those whose time is up.", low=1, importance=LOW)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, "How often transactional ids are "
        "looked at for idle ones.", low=1, importance=LOW)
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        "add.partitions.to.txn.retry.backoff.max.ms", 100, "How long a new transaction waits in the broker for the one "
        "before it to be complete.", low=0)
    transaction_state_log_num_partitions: int = integer(
        "transaction.state.log.num.partitions", 50, "Partitions of `__transaction_state`; must not change once it "
        "exists.", low=1, importance=HIGH)
    transaction_state_log_replication_factor: int = integer(
        "transaction.state.log.replication.factor", 3, "Replicas of `__transaction_state`, as far as there are "
        "brokers.", low=1, importance=HIGH)
    transaction_state_log_min_isr: int = integer(
        "transaction.state.log.min.isr", 2, "`min.insync.replicas` of `__transaction_state`.", low=1, importance=HIGH)
    transaction_state_log_segment_bytes: int = integer(
        "transaction.state.log.segment.bytes", 100 << 20, "Segment size of `__transaction_state`.",
        low=SEGMENT_BYTES_MIN, importance=HIGH)

    # Quotas.
    quota_window_num: int = integer(
        "quota.window.num", 11, "Windows over which a client's rate is measured.", low=1, importance=LOW)
    quota_window_size_seconds: int = integer(
        "quota.window.size.seconds", 1, "The length of one such window.", low=1, importance=LOW)
    controller_quota_window_num: int = integer(
        "controller.quota.window.num", 11, "`quota.window.num` for changes of topics and partitions.", low=1,
        importance=LOW)
    controller_quota_window_size_seconds: int = integer(
        "controller.quota.window.size.seconds", 1, "`quota.window.size.seconds` for changes of topics and partitions.",
        low=1, importance=LOW)
    leader_replication_throttled_rate: int = long(
        "leader.replication.throttled.rate", LONG_MAX, "Bytes a second a leader sends to throttled replicas.", low=0,
        dynamic=PER_BROKER)
    follower_replication_throttled_rate: int = long(
        "follower.replication.throttled.rate", LONG_MAX, "Bytes a second throttled replicas fetch.", low=0,
        dynamic=PER_BROKER)

    # Metrics that clients push (KIP-714).
    telemetry_max_bytes: int = integer(
        "telemetry.max.bytes", 1 << 20, "The most a client may push at once, compressed.", low=1, high=4 << 20)

    # Traces.
    penstock_tracing_endpoint: str = text(
        "penstock.tracing.endpoint", "", "Where spans of produce, append, replicate and fetch go by OTLP/HTTP, as "
        "http://host:4318; /v1/traces is added where there is no path. Empty for no traces. Needs penstock[tracing].",
        check=collector_fault, sensitive=True)
    penstock_tracing_sample_ratio: float = double(
        "penstock.tracing.sample.ratio", 0.01, "The share of requests that are traced. Of a producer that sends a "
        "`traceparent` header with its records, those are that it sampled itself.", low=0, high=1, dynamic=CLUSTER_WIDE)
    penstock_tracing_service_name: str = text(
        "penstock.tracing.service.name", "penstock", "The `service.name` of these spans.", check=_service_fault)
    # fmt: on


BROKER_SETTINGS = settings_of(BrokerSettings)
