"""Which replica a consumer should read from: one in its own rack, if it has all that is asked for (KIP-392).

Called by handlers.fetch, when a consumer says where it is (`client.rack`).
"""

from penstock.handlers.context import HandlerContext
from penstock.replication.partition import Partition
from penstock.wire.fetch import FetchPartitionResult

NEAREST = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearer_replica(context: HandlerContext, partition: Partition, rack: str, offset: int) -> int | None:
    """A follower in sync in the consumer's rack that has the offset; None to read here."""
    progress = partition.progress
    if progress is None or not partition.is_leader or context.config.replica_selector_class != NEAREST:
        return None
    if context.node.rack == rack:
        return None
    brokers = context.image.brokers
    near = [
        (follower.next_offset, node)
        for node, follower in progress.followers.items()
        if node in progress.state.isr
        and (broker := brokers.get(node)) is not None
        and broker.rack == rack
        and not broker.is_stopping
        and offset <= follower.next_offset
    ]
    return max(near)[1] if near else None


def redirection(partition: Partition, index: int, node: int) -> FetchPartitionResult:
    log = partition.log
    return FetchPartitionResult(
        index,
        0,
        partition.high_watermark,
        partition.last_stable_offset,
        log.log_start,
        preferred_read_replica=node,
    )
