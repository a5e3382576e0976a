"""A look at the cluster for a streaming query: which partitions there are of its subscription, and where they end.

Called by stream_reader.py. Two questions make a look, and a topic may be deleted between them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.model import TopicPartition
from penstock.spark.bounds import EARLIEST_OFFSET, LATEST_OFFSET, Isolation
from penstock.spark.data_loss import report_losses
from penstock.spark.errors import BadOption
from penstock.spark.stream_planning import View

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster
    from penstock.spark.subscription import Subscription


def look(cluster: "Cluster", subscription: "Subscription", isolation: Isolation) -> tuple[View, tuple[str, ...]]:
    """What there is; and what was named and is not there."""
    from penstock.spark.fetching import TopicGone

    found = subscription.find(cluster)
    deleted: set[str] = set()
    latest: dict[TopicPartition, int] = {}
    while wanted := [at for at in sorted(found.partitions) if at.topic not in deleted]:
        try:
            answers = cluster.list_offsets(dict.fromkeys(wanted, LATEST_OFFSET), isolation)
        except TopicGone as gone:
            deleted.add(gone.at.topic)
            continue
        latest = {at: offset for at, (offset, _) in answers.items()}
        break
    view = View(latest, {topic: id_ for topic, id_ in found.topic_ids.items() if topic not in deleted})
    # Of a pattern nothing can be missing.
    return view, found.missing if subscription.pattern is not None else (*found.missing, *sorted(deleted))


def checked_start(
    cluster: "Cluster", written: dict[TopicPartition, int], is_failing: bool
) -> dict[TopicPartition, int]:
    """Offsets that somebody wrote down as startingOffsets, moved to the beginning where they are gone."""
    if not written:
        return {}
    first = cluster.list_offsets(dict.fromkeys(sorted(written), EARLIEST_OFFSET), "read_uncommitted")
    # Up to the very end: what is held back by an open transaction is there, and will be read.
    ends = cluster.list_offsets(dict.fromkeys(sorted(written), LATEST_OFFSET), "read_uncommitted")
    losses: list[str] = []
    for at, offset in written.items():
        earliest, end = first[at][0], ends[at][0]
        if offset > end:
            raise BadOption(f"startingOffsets has {offset} for {at}, whose offsets are {earliest} to {end}")
        if offset < earliest:
            losses.append(f"{at} begins at offset {earliest}; offsets {offset} to {earliest - 1} are gone")
    report_losses(losses, is_failing)
    return {at: max(offset, first[at][0]) for at, offset in written.items()}


def without_topic(view: View, topic: str) -> View:
    return View(
        {at: offset for at, offset in view.latest.items() if at.topic != topic},
        {name: id_ for name, id_ in view.topic_ids.items() if name != topic},
    )


def topics_of(partitions: Iterable[TopicPartition]) -> set[str]:
    return {at.topic for at in partitions}


def unread(missing: Iterable[str], read: Iterable[TopicPartition]) -> list[str]:
    """Of topics and partitions that are not there, those that never were."""
    known = {name for at in read for name in (at.topic, str(at))}
    return [name for name in missing if name not in known]
