"""Values that are looked up only when /metrics is read: connections, logs, groups, transactions, disk.

Called by broker once the parts are there. Nothing here is touched by a request.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator

from penstock.clock import Clock
from penstock.cluster.elections import effective_min_insync, preferred_order
from penstock.cluster.image import NO_LEADER, ClusterImage, PartitionState
from penstock.cluster.membership import Membership
from penstock.config.broker_settings import BrokerSettings
from penstock.disk import Disk
from penstock.groups.coordinator import GroupCoordinator
from penstock.log.compactor import Compactor
from penstock.metrics import BrokerMetrics
from penstock.metrics.lag_time import EndTimes
from penstock.metrics.process import disk_bytes
from penstock.metrics.registry import OTHER, Labels
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas
from penstock.server.listener import Listener
from penstock.transactions.coordinator import TransactionCoordinator

# Clients may call themselves anything; the rest of them is counted together.
SOFTWARE_ROWS_MAX = 50


def attach_gauges(
    metrics: BrokerMetrics, replicas: Replicas, groups: GroupCoordinator, listener: Listener, disk: Disk, clock: Clock
) -> None:
    end_times = EndTimes()

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

    def committed() -> Iterator[tuple[Labels, float]]:
        for group, topic, index, offset in groups.all_committed_offsets():
            yield (group, topic, str(index)), offset.offset

    def lag_seconds() -> Iterator[tuple[Labels, float]]:
        now, now_ms = clock.monotonic(), clock.now_ms()
        noted: set[Hashable] = set()
        for group, topic, index, offset in groups.all_committed_offsets():
            hosted = replicas.topics.get(topic)
            partition = hosted.partitions.get(index) if hosted is not None else None
            if partition is None:
                continue
            key = (partition.topic_id, index)
            if key not in noted:
                noted.add(key)
                end_times.note(key, partition.high_watermark, now)
            yield (group, topic, str(index)), _age_s(partition, offset.offset, end_times, now, now_ms)
        end_times.keep_only(noted)

    def replica_lag() -> Iterator[tuple[Labels, float]]:
        for partition in replicas.led():
            if partition.progress is not None:
                slowest = min(follower.next_offset for follower in partition.progress.followers.values())
                behind = partition.log.next_offset - max(slowest, partition.log.log_start)
                yield (partition.at.topic, str(partition.at.partition)), behind

    def replica_lag_seconds() -> float:
        slowest = 0.0
        # The followers' times are those of the loop, which is what the partition compares them with.
        now = asyncio.get_running_loop().time()
        for partition in replicas.led():
            if partition.progress is not None:
                for follower in partition.progress.followers.values():
                    if follower.next_offset < partition.log.next_offset:
                        slowest = max(slowest, now - follower.caught_up_at)
        return slowest

    def software() -> Iterator[tuple[Labels, float]]:
        counts: Counter[tuple[str, str]] = listener.software()
        shown = counts.most_common(SOFTWARE_ROWS_MAX)
        yield from shown
        rest = counts.total() - sum(count for _, count in shown)
        if rest:
            yield (OTHER, OTHER), rest

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
    metrics.at_min_isr.read = lambda: sum(_is_at_min_isr(partition) for partition in replicas.led())
    metrics.replica_lag.read = replica_lag
    metrics.replica_lag_seconds.read = replica_lag_seconds
    metrics.offline_partitions.read = lambda: len(replicas.failures())
    metrics.log_bytes.read = each(lambda partition: partition.log.size)
    metrics.log_segments.read = each(lambda partition: len(partition.log.segments))
    metrics.log_start_offset.read = each(lambda partition: partition.log.log_start)
    metrics.log_end_offset.read = each(lambda partition: partition.log.next_offset)
    metrics.high_watermark.read = each(lambda partition: partition.high_watermark)
    metrics.groups.read = lambda: (((state,), count) for state, count in groups.groups_by_state().items())
    metrics.group_members.read = lambda: (((state,), count) for state, count in groups.members_by_state().items())
    metrics.consumer_lag.read = lag
    metrics.consumer_lag_seconds.read = lag_seconds
    metrics.committed_offset.read = committed
    metrics.rebalances.read = lambda: (((kind.value,), count) for kind, count in groups.rebalances.items())
    metrics.offset_commits.read = lambda: groups.offset_commits
    metrics.waiting_requests.read = waiting_fetches
    metrics.disk_free_bytes.read = lambda: disk.free_bytes(replicas.logs.root)
    metrics.disk_bytes.read = lambda: disk_bytes(replicas.logs.root)
    metrics.logs_bytes.read = lambda: sum(partition.log.size for partition in replicas.partitions())
    metrics.retention_bytes.read = lambda: (
        ((topic.name,), topic.config.retention_bytes)
        for topic in replicas.topics.values()
        if topic.config.delete and topic.config.retention_bytes >= 0
    )
    metrics.retention_seconds.read = lambda: (
        ((topic.name,), topic.config.retention_ms / 1000)
        for topic in replicas.topics.values()
        if topic.config.delete and topic.config.retention_ms >= 0
    )
    metrics.network_bytes_in.read = lambda: listener.received_bytes
    metrics.network_bytes_out.read = lambda: listener.sent_bytes
    metrics.connections_by_software.read = software


def attach_cluster_gauges(
    metrics: BrokerMetrics, image: ClusterImage, membership: Membership, compactor: Compactor
) -> None:
    def counted_by_controller(is_counted: Callable[[PartitionState], bool]) -> Callable[[], float]:
        """One broker of the cluster looks at all partitions; a sum over brokers is then right."""

        def count() -> float:
            if not membership.is_controller:
                return 0
            return sum(is_counted(state) for topic in image.topics.values() for state in topic.partitions)

        return count

    metrics.brokers.read = lambda: len(image.brokers)
    metrics.is_controller.read = lambda: int(membership.is_controller)
    metrics.controller_epoch.read = lambda: image.controller_epoch
    metrics.metadata_revision.read = lambda: image.revision
    metrics.is_registered.read = lambda: int(membership.is_registered)
    metrics.leaderless_partitions.read = counted_by_controller(lambda state: state.leader == NO_LEADER)
    metrics.unbalanced_leaders.read = counted_by_controller(lambda state: state.leader != preferred_order(state)[0])
    metrics.reassigning_partitions.read = counted_by_controller(lambda state: bool(state.adding or state.removing))
    metrics.compaction_dirty_ratio.read = lambda: max((ratio for ratio, _ in compactor.backlog()), default=0.0)
    metrics.compaction_backlog.read = lambda: sum(is_due for _, is_due in compactor.backlog())


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


def _is_at_min_isr(partition: Partition) -> bool:
    """Only where there could be more: a partition of one replica has nothing to lose."""
    if partition.state is None or len(partition.state.replicas) < 2:
        return False
    minimum = effective_min_insync(partition.log.config.min_insync_replicas, partition.state.replicas)
    return partition.in_sync_count == minimum < len(partition.state.replicas)


def _age_s(partition: Partition, offset: int, end_times: EndTimes, now: float, now_ms: int) -> float:
    """How long the record at `offset` has been there. No file is read for it."""
    if offset >= partition.high_watermark:
        return 0.0
    age_s = end_times.age_s((partition.topic_id, partition.at.partition), offset, now)
    # Older than what was noted since the start: at least as old as the newest record of its segment, if that is known.
    for segment in partition.log.segments[:-1]:
        if segment.next_offset > offset:
            return max(age_s, (now_ms - segment.max_timestamp) / 1000) if segment.max_timestamp > 0 else age_s
    return age_s


def _has_open_since_before(partition: Partition, before_ms: int) -> bool:
    # Most partitions have nothing open, and may still remember very many producers.
    if partition.last_stable_offset == partition.high_watermark:
        return False
    return any(
        state.current_txn_start_offset >= 0 and state.txn_since_ms < before_ms
        for state in partition.log.producer_states()
    )
