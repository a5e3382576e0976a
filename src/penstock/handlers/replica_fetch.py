"""Fetch as followers ask it: what they have is noted before anything is read, and a log that differs is told where.

Called by handlers.fetch for requests that name a replica.
Laws (TRAPS R1-R4, R8):
- A follower says which epoch it follows; one that is behind or ahead of ours is told so and counts for nothing.
- One that is not in sync and over the leader's throttle is given nothing for now; that it asked counts all the same.
- Where its last record is not the one we have, the answer is the place where the logs part, and nothing is noted: its
  offset speaks of records that are not ours.
"""

from penstock.errors import FencedLeaderEpoch, OffsetOutOfRange
from penstock.handlers.context import HandlerContext
from penstock.model import NO_EPOCH, LeaderEpoch, Offset
from penstock.replication.partition import Partition
from penstock.replication.replicas import HostedTopic
from penstock.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest


def admit_replica(
    context: HandlerContext, partition: Partition, fetch: FetchRequest, ask: FetchPartition
) -> tuple[int, int] | None:
    """Note how far the follower is. The epoch and its end at which its log parts from ours, if it does."""
    if not partition.is_leader:
        raise partition.not_leader()
    if ask.current_leader_epoch < 0:
        raise FencedLeaderEpoch(f"{partition.at}: a replica must say which epoch it follows")
    parting = divergence(partition, Offset(ask.fetch_offset), LeaderEpoch(ask.last_fetched_epoch))
    if parting is not None:
        return parting
    log = partition.log
    if not log.log_start <= ask.fetch_offset <= log.next_offset:
        raise OffsetOutOfRange(ask.fetch_offset, log.log_start, log.next_offset)
    start = Offset(ask.log_start_offset)
    broker = context.image.brokers.get(fetch.replica_id)
    is_leaving = broker is None or broker.is_stopping
    if partition.heard(fetch.replica_id, fetch.replica_epoch, Offset(ask.fetch_offset), start, is_leaving=is_leaving):
        context.in_sync.add(partition, fetch.replica_id)
    return None


def divergence(partition: Partition, offset: Offset, last_epoch: LeaderEpoch) -> tuple[int, int] | None:
    if last_epoch == NO_EPOCH:
        return None
    log = partition.log
    epoch, end = log.epochs.end_of(last_epoch, log.next_offset)
    if epoch == NO_EPOCH:
        # Older than all that is left here: it begins anew.
        raise OffsetOutOfRange(offset, log.log_start, log.next_offset)
    return (epoch, end) if epoch < last_epoch or end < offset else None


def held_back_s(context: HandlerContext, partition: Partition, follower: int) -> float:
    """How long the follower is to be given nothing of the partition; 0 if it may have all it asks for."""
    return context.leader_throttle.wait_s(partition, follower, context.clock.monotonic())


def count_given(context: HandlerContext, topic: HostedTopic, result: FetchPartitionResult, follower: int) -> None:
    context.metrics.replication_bytes_out.value += len(result.records)
    partition = topic.partitions.get(result.partition)
    if partition is not None:
        context.leader_throttle.count(partition, follower, len(result.records))


def diverging_result(index: int, parting: tuple[int, int]) -> FetchPartitionResult:
    return FetchPartitionResult(index, 0, -1, diverging_epoch=parting)
