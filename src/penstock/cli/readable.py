"""Is there anything to read from an offset on, or only what no reader is ever given?

Called by cli.doctor. Not every offset is a message: markers of transactions, records of aborted ones and what
compaction removed all count in a lag, and most clients never commit past them. Behind an open transaction nothing is
given out either. One reader of committed data that tries it knows more than any sum of offsets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.cli.cluster import Cluster
from penstock.cli.group_lag import GroupView
from penstock.clock import SystemClock
from penstock.model import TopicPartition

PARTITIONS_TRIED_MAX = 500
_ROUNDS_MAX = 5
_POLL_S = 0.1
_FETCH_BYTES = 64 * 1024


class Gap(NamedTuple):
    """Offsets without a message for anybody: from the first up to the end, as it was."""

    first: int
    end: int


def find_gaps(cluster: Cluster, views: Iterable[GroupView]) -> dict[TopicPartition, Gap]:
    """Where groups stand before a gap at the end of a partition; in doubt there is none."""
    positions: dict[TopicPartition, set[int]] = {}
    ends: dict[TopicPartition, int] = {}
    for one in (one for view in views for one in view.partitions):
        if one.committed is not None and one.end is not None and one.lag:
            positions.setdefault(one.at, set()).add(one.committed)
            ends[one.at] = one.end
    gaps: dict[TopicPartition, Gap] = {}
    wanted = dict(sorted(positions.items())[:PARTITIONS_TRIED_MAX])
    for _ in range(_ROUNDS_MAX):
        # From the end backwards: where one group finds something, so do all that stand before it.
        highest = {at: max(offsets) for at, offsets in wanted.items() if offsets}
        empty = _without_messages(cluster, highest)
        for at in empty:
            gaps[at] = Gap(highest[at], ends[at])
        wanted = {at: wanted[at] - {highest[at]} for at in empty}
    return gaps


def skip_gaps(view: GroupView, gaps: Mapping[TopicPartition, Gap]) -> GroupView:
    """The group as if it had committed past what no reader is given."""
    partitions = (
        replace(one, committed=max(one.committed, gap.end))
        if (gap := gaps.get(one.at)) is not None and one.committed is not None and one.committed >= gap.first
        else one
        for one in view.partitions
    )
    return replace(view, partitions=tuple(partitions))


def _without_messages(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """The partitions whose end a reader of committed data reaches from there without a message."""
    from confluent_kafka import TopicPartition as Start

    waiting = set(positions)
    if not waiting:
        return set()
    consumer = cluster.consumer(
        {
            "group.id": "penstock-cli",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": _FETCH_BYTES,
        }
    )
    ended: set[TopicPartition] = set()
    clock = SystemClock()
    deadline_s = clock.monotonic() + cluster.timeout_s
    try:
        consumer.assign([Start(at.topic, at.partition, offset) for at, offset in positions.items()])
        while waiting and clock.monotonic() < deadline_s:
            event = consumer.poll(_POLL_S)
            if event is None or event.topic() is None:
                continue
            at = TopicPartition(event.topic(), event.partition())
            if at in waiting:
                waiting.remove(at)
                consumer.pause([Start(at.topic, at.partition)])
                if event.error() is not None and event.error().name() == "_PARTITION_EOF":
                    ended.add(at)
    finally:
        consumer.close()
    return ended
