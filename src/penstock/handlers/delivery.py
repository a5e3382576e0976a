"""What consumers have been given, counted without unpacking a record.

Called by handlers.fetch. A consumer that asks from a later offset than before has had the records between; a batch's
newest timestamp stands in its header.
"""

from struct import Struct

from penstock.handlers.context import HandlerContext, RawRequest
from penstock.replication.replicas import HostedTopic
from penstock.wire.fetch import FetchPartitionResult, FetchRequest

POSITIONS_MAX = 2_000  # of one connection
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_AT = 35


def count_records(context: HandlerContext, request: RawRequest, fetch: FetchRequest) -> None:
    """Count the records that this connection's consumer has moved past since it last named its partitions."""
    positions = request.connection.fetch_positions
    replicas = context.replicas
    for name, topic_id, partitions in fetch.topics:
        topic = replicas.topics.get(name) if name is not None else None
        if topic_id is not None:
            topic = replicas.topics_by_id.get(topic_id)
        if topic is None:
            continue
        for ask in partitions:
            partition = topic.partitions.get(ask.partition)
            key = (topic.id, ask.partition)
            # Any number can be named as a partition or an offset; only what exists is remembered and counted.
            if partition is None or (key not in positions and len(positions) >= POSITIONS_MAX):
                continue
            offset = min(ask.fetch_offset, partition.log.next_offset)
            moved = offset - positions.get(key, offset)
            if moved > 0:
                topic.traffic.messages_out.value += moved
            positions[key] = offset


def count_bytes(context: HandlerContext, topic: HostedTopic, result: FetchPartitionResult) -> None:
    """Count what leaves now, and how old its first batch is."""
    records = result.records
    assert isinstance(records, memoryview)
    topic.traffic.bytes_out.value += len(records)
    (newest,) = _MAX_TIMESTAMP.unpack_from(records, _MAX_TIMESTAMP_AT)
    if newest >= 0:
        context.metrics.end_to_end_latency.observe(max(0, context.clock.now_ms() - newest))
