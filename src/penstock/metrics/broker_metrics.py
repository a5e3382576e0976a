"""What a broker measures: every metric's name and meaning, in one place.

Called by broker.py, which makes one, hands its counters to the parts and gives the gauges their `read`; a gauge whose
value only another room knows is defined here and read there.
"""

from penstock.clock import Clock
from penstock.metrics.process import cpu_seconds, open_files, open_files_max, resident_bytes
from penstock.metrics.registry import Counter, Family, Rate, Registry
from penstock.metrics.runtime import collections

LATENCY_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
END_TO_END_MS = (1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 60_000)
FSYNC_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
PAUSE_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
# Client ids are their users' to invent; those past the limit are counted together.
CLIENT_IDS_MAX = 200


class BrokerMetrics:
    def __init__(self, clock: Clock) -> None:
        self.registry = registry = Registry()

        # Traffic. One counter per topic; the rates are read off their sums.
        self.messages_in = registry.counters("mq_messages_in_total", "Messages written by producers.", "topic")
        self.messages_out = registry.counters("mq_messages_out_total", "Messages sent to consumers.", "topic")
        self.batches_in = registry.counters("mq_batches_in_total", "Record batches written by producers.", "topic")
        self.bytes_in = registry.counters("mq_bytes_in_total", "Bytes of record batches written by producers.", "topic")
        self.bytes_out = registry.counters("mq_bytes_out_total", "Bytes of record batches sent to consumers.", "topic")
        self._rate(
            "mq_messages_in_per_sec", "Messages produced per second, over the last minute.", self.messages_in, clock
        )
        self._rate(
            "mq_messages_out_per_sec", "Messages consumed per second, over the last minute.", self.messages_out, clock
        )
        self._rate("mq_bytes_in_per_sec", "Bytes produced per second, over the last minute.", self.bytes_in, clock)
        self._rate("mq_bytes_out_per_sec", "Bytes consumed per second, over the last minute.", self.bytes_out, clock)

        self.replication_bytes_in = registry.counter(
            "mq_replication_bytes_in_total", "Bytes of record batches fetched from leaders."
        )
        self.replication_bytes_out = registry.counter(
            "mq_replication_bytes_out_total", "Bytes of record batches sent to followers."
        )
        self.network_bytes_in = registry.gauge("mq_network_bytes_in_total", "Bytes received from all connections.")
        self.network_bytes_out = registry.gauge("mq_network_bytes_out_total", "Bytes sent to all connections.")
        self.client_requests = registry.counters(
            "mq_requests_by_client_total", "Requests, by client id.", "client_id", limit=CLIENT_IDS_MAX
        )
        self.client_request_bytes = registry.counters(
            "mq_request_bytes_by_client_total", "Bytes of requests, by client id.", "client_id", limit=CLIENT_IDS_MAX
        )
        self.client_fetch_bytes = registry.counters(
            "mq_fetch_bytes_by_client_total",
            "Bytes of record batches sent to consumers, by client id.",
            "client_id",
            limit=CLIENT_IDS_MAX,
        )

        # Latency.
        self.produce_latency = registry.histogram(
            "mq_produce_latency_ms",
            "From a produce request's last byte to its answer, waiting for acks included.",
            LATENCY_MS,
        )
        self.end_to_end_latency = registry.histogram(
            "mq_end_to_end_latency_ms",
            "From a batch's newest timestamp to its first byte on the way to a consumer.",
            END_TO_END_MS,
        )
        self.fsync_latency = registry.histogram("mq_fsync_latency_ms", "Time of one fsync of a log.", FSYNC_MS)

        # Requests.
        self.requests = registry.counters("mq_requests_total", "Requests answered.", "api")
        self.request_errors = registry.counters("mq_request_errors_total", "Errors in answers.", "api", "error")
        self.request_latency = registry.histograms(
            "mq_request_latency_ms", "From a request's last byte to its answer.", LATENCY_MS, "api"
        )
        self.throttled_requests = registry.counters("mq_throttled_requests_total", "Requests over a quota.", "quota")
        self.throttle_ms = registry.counters("mq_throttle_ms_total", "Time clients were told to wait.", "quota")
        self.requests_in_flight = registry.gauges(
            "mq_requests_in_flight", "Requests taken and not yet answered.", "api"
        )
        self.request_bytes_held = registry.gauge("mq_request_bytes_held", "Bytes of requests in memory.")
        self.fetch_sessions = registry.gauge("mq_fetch_sessions", "Fetch sessions kept.")
        self.waiting_requests = registry.gauges("mq_waiting_requests", "Requests waiting for data or acks.", "api")

        # Connections.
        self.connections = registry.gauge("mq_connections", "Open connections.")
        self.connections_by_software = registry.gauges(
            "mq_connections_by_software", "Open connections, by what the client calls itself.", "software", "version"
        )
        self.connections_accepted = registry.counter("mq_connections_accepted_total", "Connections accepted.")
        self.connections_refused = registry.counters("mq_connections_refused_total", "Connections refused.", "reason")
        self.connections_closed = registry.counters(
            "mq_connections_closed_total", "Connections the broker closed.", "reason"
        )

        # Logs.
        self.topics = registry.gauge("mq_topics", "Topics.")
        self.partitions = registry.gauge("mq_partitions", "Partitions this broker leads.")
        self.replicas = registry.gauge("mq_replicas", "Partitions this broker leads or follows.")
        self.under_replicated = registry.gauge(
            "mq_under_replicated_partitions", "Partitions with fewer replicas in sync than they should have.", lambda: 0
        )
        self.under_min_isr = registry.gauge(
            "mq_under_min_isr_partitions", "Partitions with too few replicas in sync for acks=all.", lambda: 0
        )
        self.at_min_isr = registry.gauge(
            "mq_at_min_isr_partitions", "Partitions that could not lose one more replica in sync."
        )
        self.leaderships = registry.counter(
            "mq_leader_elections_total", "Times this broker became the leader of a partition."
        )
        self.unclean_elections = registry.counter(
            "mq_unclean_leader_elections_total", "Of these, those without having been in sync: records may be lost."
        )
        self.isr_shrinks = registry.counter(
            "mq_isr_shrinks_total", "Replicas dropped from an in-sync set by leaders here."
        )
        self.isr_expands = registry.counter("mq_isr_expands_total", "Replicas added to an in-sync set by leaders here.")
        self.replicas_rebuilt = registry.counter(
            "mq_replicas_rebuilt_total", "Damaged replicas set aside, to be fetched anew from their leaders."
        )
        self.replica_lag = registry.gauges(
            "mq_replica_lag_records",
            "Records the slowest follower of a partition led here does not have yet.",
            "topic",
            "partition",
        )
        self.replica_lag_seconds = registry.gauge(
            "mq_replica_lag_seconds_max", "How long the slowest follower of a partition led here has not had all."
        )
        self.offline_partitions = registry.gauge("mq_offline_partitions", "Partitions that cannot be written or read.")
        self.log_bytes = registry.gauges("mq_log_bytes", "Size of a partition's log.", "topic", "partition")
        self.log_segments = registry.gauges("mq_log_segments", "Segments of a partition's log.", "topic", "partition")
        self.log_start_offset = registry.gauges("mq_log_start_offset", "First offset kept.", "topic", "partition")
        self.log_end_offset = registry.gauges("mq_log_end_offset", "Next offset to be written.", "topic", "partition")
        self.high_watermark = registry.gauges(
            "mq_high_watermark", "First offset not yet committed.", "topic", "partition"
        )
        self.disk_free_bytes = registry.gauge("mq_disk_free_bytes", "Free space where the logs are.")
        self.disk_bytes = registry.gauge("mq_disk_bytes", "Size of the file system where the logs are.")
        self.logs_bytes = registry.gauge("mq_logs_bytes", "Size of all logs here.")
        self.retention_bytes = registry.gauges(
            "mq_topic_retention_bytes", "How large a partition may grow, where there is a limit.", "topic"
        )
        self.retention_seconds = registry.gauges(
            "mq_topic_retention_seconds", "How long records are kept, where there is a limit.", "topic"
        )
        self.segments_deleted = registry.counter("mq_segments_deleted_total", "Segments dropped by retention.")
        self.compactions = registry.counter("mq_compactions_total", "Passes of compaction over a partition.")
        self.compaction_failures = registry.counter("mq_compaction_failures_total", "Passes of compaction that failed.")
        self.compaction_backlog = registry.gauge(
            "mq_compaction_backlog_partitions", "Partitions that are dirtier than their topic lets them be."
        )
        self.compaction_dirty_ratio = registry.gauge(
            "mq_compaction_dirty_ratio_max", "The largest share of a compacted log that was never compacted."
        )
        self.compacted_bytes = registry.counter("mq_compacted_bytes_total", "Bytes that compaction removed.")

        # Transactions. Counts begin anew with the process.
        self.transactions_open = registry.gauge("mq_transactions_open", "Transactions begun and not ended.")
        self.transaction_oldest_open_seconds = registry.gauge(
            "mq_transaction_oldest_open_seconds", "How long the oldest of them has been open; 0 if there is none."
        )
        self.transactions_committed = registry.gauge("mq_transactions_committed_total", "Transactions committed.")
        self.transactions_aborted = registry.gauge("mq_transactions_aborted_total", "Transactions aborted.")
        self.transactions_timed_out = registry.gauge(
            "mq_transactions_timed_out_total", "Of the aborted, those that ran out of time."
        )
        self.overdue_transaction_partitions = registry.gauge(
            "mq_overdue_transaction_partitions",
            "Partitions where a transaction is open for longer than transaction.max.timeout.ms lets any be.",
        )

        # Groups.
        self.groups = registry.gauges("mq_groups", "Groups.", "state")
        self.group_members = registry.gauges("mq_group_members", "Members of groups, by their groups' state.", "state")
        self.consumer_lag = registry.gauges(
            "mq_consumer_lag_messages", "Messages a group has yet to commit.", "group", "topic", "partition"
        )
        self.consumer_lag_seconds = registry.gauges(
            "mq_consumer_lag_seconds",
            "How long the first message a group has yet to commit has been there.",
            "group",
            "topic",
            "partition",
        )
        self.committed_offset = registry.gauges(
            "mq_group_committed_offset", "The offset a group will go on from.", "group", "topic", "partition"
        )
        self.rebalances = registry.gauges("mq_rebalances_total", "Rebalances begun.", "cause")
        self.offset_commits = registry.gauge("mq_offset_commits_total", "Offsets committed.")

        # The cluster, as this broker sees it.
        self.is_ready = registry.gauge("mq_ready", "1 while /health/ready says so.")
        self.broker_info = registry.gauges(
            "mq_broker_info", "1; its labels say who this is.", "node_id", "rack", "cluster_id", "version"
        )
        self.brokers = registry.gauge("mq_brokers", "Brokers registered in the cluster.")
        self.is_controller = registry.gauge("mq_active_controller", "1 on the broker that is the controller, else 0.")
        self.controller_epoch = registry.gauge("mq_controller_epoch", "Controllers the cluster has had.")
        self.leaderless_partitions = registry.gauge(
            "mq_leaderless_partitions", "Partitions of the cluster without a leader, counted by the controller."
        )
        self.unbalanced_leaders = registry.gauge(
            "mq_unbalanced_leaders", "Partitions not led by their first replica, counted by the controller."
        )
        self.reassigning_partitions = registry.gauge(
            "mq_reassigning_partitions", "Partitions on their way to other brokers, counted by the controller."
        )
        self.is_registered = registry.gauge("mq_broker_registered", "1 while the cluster counts this broker as alive.")
        self.metadata_revision = registry.gauge("mq_metadata_revision", "The newest metadata this broker knows.")
        self.metadata_contact_age = registry.gauge(
            "mq_metadata_contact_age_seconds", "How long ago the metadata store last answered."
        )
        self.metadata_latency = registry.histograms(
            "mq_metadata_latency_ms", "Time of one call of the metadata store.", LATENCY_MS, "operation"
        )
        self.metadata_errors = registry.counters(
            "mq_metadata_errors_total", "Calls of the metadata store that failed.", "operation", "error"
        )

        # Validation by schema, for topics that ask for it. Batches that are sent again are counted again.
        self.schema_records_checked = registry.counters(
            "mq_schema_validation_checked_total", "Records held against schemas.", "topic"
        )
        self.schema_records_refused = registry.counters(
            "mq_schema_validation_refused_total", "Of these, those whose batches were refused for them.", "topic"
        )
        self.schema_records_dead_lettered = registry.counters(
            "mq_schema_validation_dead_lettered_total", "Of these, those written to a dead-letter topic.", "topic"
        )
        self.schema_records_marked = registry.counters(
            "mq_schema_validation_marked_total", "Of these, those written with a header that says why.", "topic"
        )

        # What clients push of their own (KIP-714); the values themselves are shown as mq_client_…
        self.client_instances = registry.gauge("mq_telemetry_instances", "Clients that ask what to push, or push.")
        self.client_series = registry.gauge("mq_telemetry_series", "Values of clients that are kept and shown.")
        self.client_pushes = registry.counters(
            "mq_telemetry_pushes_total", "Pushes of metrics by clients, by what was answered.", "error"
        )
        self.client_points_left_out = registry.counter(
            "mq_telemetry_points_left_out_total", "Values in pushes that were not kept: too many, or of no known kind."
        )

        # Traces, where they are switched on.
        self.trace_spans = registry.gauge("mq_trace_spans_total", "Spans that were delivered to the collector.")
        self.trace_spans_dropped = registry.gauge(
            "mq_trace_spans_dropped_total",
            "Spans that were not: too many at once, or the collector did not take them.",
        )

        # What holds the event loop up.
        self.loop_lag = registry.histogram(
            "mq_event_loop_lag_ms", "How late the event loop came to something it was asked to do.", PAUSE_MS
        )
        self.gc_pauses = registry.histogram(
            "mq_gc_pause_ms", "Time of one collection of garbage, but for the youngest generation.", PAUSE_MS
        )
        registry.gauges("mq_gc_collections_total", "Collections of garbage.", "generation", read=collections)

        # The process, under the names every Prometheus client library gives them.
        registry.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident_bytes)
        registry.gauge("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", cpu_seconds)
        registry.gauge("process_open_fds", "Number of open file descriptors.", open_files)
        registry.gauge("process_max_fds", "Maximum number of open file descriptors.", open_files_max)
        registry.gauge("mq_time_seconds", "The broker's clock: seconds since 1970.", lambda: clock.now_ms() / 1000)
        started_ms, started = clock.now_ms(), clock.monotonic()
        registry.gauge("process_start_time_seconds", "Start time since 1970 in seconds.", lambda: started_ms / 1000)
        registry.gauge("mq_uptime_seconds", "Seconds since the broker started.", lambda: clock.monotonic() - started)

    def render(self) -> str:
        return self.registry.render()

    def forget_topic(self, topic: str) -> None:
        """A deleted topic's counters leave the page; their sum stays in the rest."""
        for family in (self.messages_in, self.messages_out, self.batches_in, self.bytes_in, self.bytes_out):
            family.remove(topic)
        for family in (
            self.schema_records_checked,
            self.schema_records_refused,
            self.schema_records_dead_lettered,
            self.schema_records_marked,
        ):
            family.remove(topic)

    def _rate(self, name: str, text: str, family: Family[Counter], clock: Clock) -> None:
        rate = Rate(lambda: sum(counter.value for _, counter in family.children()), clock)
        self.registry.gauge(name, text, rate.read)
