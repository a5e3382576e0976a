"""Is there anything to read from an offset on, since when, or only what no reader is ever given?

Called by group_lag and gaps. Not every offset is a message: markers of transactions, records of aborted ones and what
compaction removed all count in a lag, and most clients never commit past them. Behind an open transaction nothing is
given out either. One reader of committed data that tries it knows more than any sum of offsets.
"""

from collections.abc import Mapping

from penstock.admin.cluster import Cluster
from penstock.clock import SystemClock
from penstock.model import TopicPartition

PARTITIONS_TRIED_MAX = 500
_POLL_S = 0.1
_FETCH_BYTES = 64 * 1024
# Of a message without a time of its own: written by a client older than Kafka 0.10.
NO_TIMESTAMP = -1


def first_messages(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """The timestamp (ms) of the first message from each position on, to a reader of committed data.

    None where that reader comes to the end without one; a partition that did not answer in time is left out.
    """
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE
    from confluent_kafka import TopicPartition as Start

    waiting = set(sorted(positions)[:PARTITIONS_TRIED_MAX])
    if not waiting:
        return {}
    consumer = cluster.consumer(
        {
            "group.id": cluster.client_id,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": _FETCH_BYTES,
        }
    )
    found: dict[TopicPartition, int | None] = {}
    clock = SystemClock()
    deadline_s = clock.monotonic() + cluster.timeout_s
    try:
        consumer.assign([Start(at.topic, at.partition, positions[at]) for at in waiting])
        while waiting and clock.monotonic() < deadline_s:
            event = consumer.poll(_POLL_S)
            if event is None or event.topic() is None:
                continue
            at = TopicPartition(event.topic(), event.partition())
            if at not in waiting:
                continue
            waiting.remove(at)
            consumer.pause([Start(at.topic, at.partition)])
            if event.error() is None:
                kind, timestamp_ms = event.timestamp()
                found[at] = NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms
            elif event.error().name() == "_PARTITION_EOF":
                found[at] = None
    finally:
        consumer.close()
    return found
