"""Ends of partitions that hold nothing for a reader: a group that stands before one has read everything.

Called by admin.doctor, which would otherwise call such a group stuck.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from penstock.admin.cluster import Cluster
from penstock.admin.group_lag import GroupView
from penstock.admin.readable import PARTITIONS_TRIED_MAX, first_messages
from penstock.model import TopicPartition

_ROUNDS_MAX = 5


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
        empty = [at for at, first_ms in first_messages(cluster, highest).items() if first_ms is None]
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
