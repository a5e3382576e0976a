"""What a streaming query reads next: from where it has come to, and what the cluster holds, to where the batch ends.

Called by stream_reader.py. Plain functions; the reader asks the cluster, and decides whether a loss fails the query.
Laws:
- Where nothing is to be read, next_step gives back the very position it was given: Spark compares text.
- What the plan of a batch needs is in its two positions: plan_ranges asks nobody, and so gives the same on replay.
- A loss is always among `losses`; the position behind it is where the query goes on if it may.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure
from penstock.spark.offsets import Position
from penstock.spark.planning import OffsetRange, share_limit

AskEarliest = Callable[[Collection[TopicPartition]], dict[TopicPartition, int]]
Covers = Callable[[TopicPartition], bool]


@dataclass(frozen=True, slots=True)
class View:
    """What the cluster has, at one moment: partitions and where each ends."""

    latest: dict[TopicPartition, int]
    topic_ids: dict[str, UUID]


@dataclass(frozen=True, slots=True)
class Step:
    position: Position
    losses: tuple[str, ...]
    # Offsets there are to read in all, whatever the limit.
    waiting: int


class OtherSource(SparkFailure):
    """Offsets of topics that are not read here: a checkpoint of another query, or sources that changed places."""

    def __init__(self, topics: Collection[str]) -> None:
        super().__init__(
            f"the checkpoint is of another source: it has offsets of {', '.join(sorted(topics))}, none of which is "
            "read here; give the query a checkpoint of its own, or its sources in the order they had"
        )


def next_step(start: Position, view: View, earliest: AskEarliest, covers: Covers, limit: int | None) -> Step:
    """Up to `limit` offsets on from `start`, or as far as the cluster goes."""
    if start.offsets and not any(covers(at) for at in start.offsets):
        # To let go of all of them would mean to read everything from its beginning, once more.
        raise OtherSource(_topics(start))
    losses: list[str] = []
    remade = _remade(start, view)
    offsets = dict(start.offsets)
    topic_ids = dict(start.topic_ids)
    for topic in sorted(remade):
        losses.append(f"topic {topic} was deleted and made anew; what was not read of the old one is gone")
        offsets = {at: offset for at, offset in offsets.items() if at.topic != topic}
    for at in sorted(offsets.keys() - view.latest.keys()):
        if covers(at):
            # Its offset is kept: should the same topic come back, the query goes on there.
            losses.append(f"{at} is gone; what was not read from offset {offsets[at]} on is lost")
        else:
            del offsets[at]
    rewound = [at for at in sorted(offsets.keys() & view.latest.keys()) if offsets[at] > view.latest[at]]
    for at in rewound:
        losses.append(
            f"{at} ends at offset {view.latest[at]}, but the query has read up to {offsets[at]}: the partition lost "
            "records, or its topic was made anew"
        )
        if at.topic in view.topic_ids:
            # The same topic, cut: what lies before its end was mostly read already.
            offsets[at] = view.latest[at]
        else:
            # Without ids this is how a topic made anew looks: all in it is new.
            del offsets[at]
    added = view.latest.keys() - offsets.keys()
    lagging = {at for at in offsets.keys() & view.latest.keys() if view.latest[at] > offsets[at]}
    first = earliest(sorted(added | lagging)) if added or lagging else {}
    begins = {at: first[at] for at in added}
    for at in sorted(lagging | added):
        known_from = offsets.get(at, 0 if at.topic in _topics(start) and at.topic not in remade else None)
        if known_from is not None and at not in rewound and first[at] > known_from:
            losses.append(_retention_loss(at, known_from, first[at]))
            begins[at] = first[at]
    lags = {at: max(view.latest[at] - begins.get(at, offsets.get(at, 0)), 0) for at in lagging | added}
    shares = lags if limit is None else share_limit(limit, lags)
    for at, share in shares.items():
        offsets[at] = begins.get(at, offsets.get(at, 0)) + share
    if not begins and offsets == start.offsets:
        return Step(start, tuple(losses), 0)
    topic_ids = {
        topic: id_ for topic, id_ in (topic_ids | view.topic_ids).items() if topic in {at.topic for at in offsets}
    }
    return Step(Position(offsets, topic_ids, begins, start.query), tuple(losses), sum(lags.values()))


def plan_ranges(start: Position, end: Position) -> list[OffsetRange]:
    """What the batch between two positions reads, a range per partition."""
    ranges: list[OffsetRange] = []
    if start == end:
        # Where the batch that ended here began says nothing of the next one.
        return ranges
    for at in sorted(end.offsets):
        begin = end.begin_of(at, start)
        # A position of Spark's own source says nothing of new partitions: they begin at 0, as they do there.
        begin = 0 if begin is None else begin
        if begin < end.offsets[at]:
            ranges.append(OffsetRange(at, end.topic_ids.get(at.topic), begin, end.offsets[at]))
    return ranges


def _remade(start: Position, view: View) -> set[str]:
    """Topics that have another id than they had."""
    return {topic for topic, id_ in start.topic_ids.items() if view.topic_ids.get(topic, id_) != id_}


def _topics(position: Position) -> set[str]:
    return {at.topic for at in position.offsets}


def _retention_loss(at: TopicPartition, wanted: int, first: int) -> str:
    return f"{at} begins at offset {first} now: offsets {wanted} to {first - 1} ({first - wanted}) were removed unread"
