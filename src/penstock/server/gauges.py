"""Values that are looked up only when /metrics is read: connections, logs, groups, transactions, disk.

Called by broker once the parts are there. Nothing here is touched by a request.
"""

from collections.abc import Callable, Iterator

from penstock.clock import Clock
from penstock.config.broker_settings import BrokerSettings
from penstock.disk import Disk
from penstock.groups.coordinator import GroupCoordinator
from penstock.metrics import BrokerMetrics
from penstock.metrics.registry import Labels
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas
from penstock.server.listener import Listener
from penstock.transactions.coordinator import TransactionCoordinator


def attach_gauges(
    metrics: BrokerMetrics, replicas: Replicas, groups: GroupCoordinator, listener: Listener, disk: Disk
) -> None:
    def each(value: Callable[[Partition], float]) -> Callable[[], Iterator[tuple[Labels, float]]]:
        def rows() -> Iterator[tuple[Labels, float]]:
            for partition in replicas.partitions():
                yield (partition.at.topic, str(partition.at.partition)), value(partition)

        return rows

    def lag() -> Iterator[tuple[Labels, float]]:
        for group, topic, index, committed in groups.all_committed_offsets():
            hosted = replicas.topics.get(topic)
            partition = hosted.partitions.get(index) if hosted is not None else None
            if partition is not None:
                yield (group, topic, str(index)), max(0, partition.high_watermark - committed.offset)

    def replica_lag() -> Iterator[tuple[Labels, float]]:
        for partition in replicas.led():
            if partition.progress is not None:
                slowest = min(follower.next_offset for follower in partition.progress.followers.values())
                behind = partition.log.next_offset - max(slowest, partition.log.log_start)
                yield (partition.at.topic, str(partition.at.partition)), behind

    def waiting_fetches() -> Iterator[tuple[Labels, float]]:
        waits = {wait for partition in replicas.partitions() for wait in partition.waiting}
        yield ("Fetch",), len(waits)

    metrics.connections.read = lambda: listener.connection_count
    metrics.request_bytes_held.read = lambda: listener.held_bytes
    metrics.topics.read = lambda: len(replicas.topics)
    metrics.partitions.read = lambda: len(replicas.led())
    metrics.replicas.read = lambda: sum(len(topic.partitions) for topic in replicas.topics.values())
    metrics.under_replicated.read = lambda: sum(_is_under_replicated(partition) for partition in replicas.led())
    metrics.under_min_isr.read = lambda: sum(
        partition.in_sync_count < partition.log.config.min_insync_replicas for partition in replicas.led()
    )
    metrics.replica_lag.read = replica_lag
    metrics.offline_partitions.read = lambda: len(replicas.failures())
    metrics.log_bytes.read = each(lambda partition: partition.log.size)
    metrics.log_segments.read = each(lambda partition: len(partition.log.segments))
    metrics.log_start_offset.read = each(lambda partition: partition.log.log_start)
    metrics.log_end_offset.read = each(lambda partition: partition.log.next_offset)
    metrics.high_watermark.read = each(lambda partition: partition.high_watermark)
    metrics.groups.read = lambda: (((state,), count) for state, count in groups.groups_by_state().items())
    metrics.consumer_lag.read = lag
    metrics.rebalances.read = lambda: (((kind.value,), count) for kind, count in groups.rebalances.items())
    metrics.offset_commits.read = lambda: groups.offset_commits
    metrics.waiting_requests.read = waiting_fetches
    metrics.disk_free_bytes.read = lambda: disk.free_bytes(replicas.logs.root)


def attach_transaction_gauges(
    metrics: BrokerMetrics,
    transactions: TransactionCoordinator,
    replicas: Replicas,
    config: BrokerSettings,
    clock: Clock,
) -> None:
    def oldest_open_seconds() -> float:
        since_ms = transactions.oldest_open_since_ms()
        # Wall time may be set back while a transaction is open.
        return 0 if since_ms is None else max(0, clock.now_ms() - since_ms) / 1000

    def overdue_partitions() -> int:
        before_ms = clock.now_ms() - config.transaction_max_timeout_ms
        return sum(_has_open_since_before(partition, before_ms) for partition in replicas.partitions())

    metrics.transactions_open.read = transactions.open_count
    metrics.transaction_oldest_open_seconds.read = oldest_open_seconds
    metrics.transactions_committed.read = lambda: transactions.committed
    metrics.transactions_aborted.read = lambda: transactions.aborted
    metrics.transactions_timed_out.read = lambda: transactions.timed_out
    metrics.overdue_transaction_partitions.read = overdue_partitions


def _is_under_replicated(partition: Partition) -> bool:
    return partition.state is not None and partition.in_sync_count < len(partition.state.replicas)


def _has_open_since_before(partition: Partition, before_ms: int) -> bool:
    # Most partitions have nothing open, and may still remember very many producers.
    if partition.last_stable_offset == partition.high_watermark:
        return False
    return any(
        state.current_txn_start_offset >= 0 and state.txn_since_ms < before_ms
        for state in partition.log.producer_states()
    )
