"""From where to where a query reads each partition: asked once, before it begins.

Called by cli.sql and sql.views. All tables of a query are cut at the same moment, so that joining a topic with itself
sees the same rows twice, and a count run beside a producer ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.model import TopicPartition

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster

Isolation = Literal["read_committed", "read_uncommitted"]

_LATEST, _EARLIEST = -1, -2


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of what is read: `value` is an offset, ms since 1970, or how many before the end (back)."""

    kind: Literal["earliest", "latest", "offset", "time", "back"]
    value: int = 0


BEGINNING = Edge("earliest")
END = Edge("latest")


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition: from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def resolve(
    cluster: "Cluster", partitions: list[TopicPartition], begin: Edge, until: Edge, isolation: Isolation
) -> dict[TopicPartition, Span]:
    """Never outside of what the log holds now, and never backwards."""
    earliest = cluster.list_offsets(dict.fromkeys(partitions, _EARLIEST), isolation)
    latest = cluster.list_offsets(dict.fromkeys(partitions, _LATEST), isolation)
    log = {at: Span(earliest[at][0], max(earliest[at][0], latest[at][0])) for at in partitions}
    starts = _place(cluster, log, begin, isolation)
    ends = _place(cluster, log, until, isolation)
    return {at: Span(starts[at], max(starts[at], ends[at])) for at in partitions}


def _place(
    cluster: "Cluster", log: Mapping[TopicPartition, Span], edge: Edge, isolation: Isolation
) -> dict[TopicPartition, int]:
    if edge.kind == "time":
        found = cluster.list_offsets(dict.fromkeys(log, edge.value), isolation)
        # No offset: nothing is that young.
        wanted = {at: span.end if found[at][0] < 0 else found[at][0] for at, span in log.items()}
    elif edge.kind == "back":
        wanted = {at: span.end - edge.value for at, span in log.items()}
    elif edge.kind == "offset":
        wanted = dict.fromkeys(log, edge.value)
    else:
        wanted = {at: span.start if edge.kind == "earliest" else span.end for at, span in log.items()}
    return {at: min(max(wanted[at], span.start), span.end) for at, span in log.items()}


def as_option(spans: Mapping[TopicPartition, Span], side: Literal["start", "end"]) -> str:
    """As `startingOffsets` and `endingOffsets` have it: {"topic": {"0": 23}}."""
    import json

    topics: dict[str, dict[str, int]] = {}
    for at in sorted(spans):
        span = spans[at]
        topics.setdefault(at.topic, {})[str(at.partition)] = span.start if side == "start" else span.end
    return json.dumps(topics)
