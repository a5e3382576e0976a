"""What a cluster knows about its topics without reading them: offsets by time, sizes of logs, settings.

Called by cli.report. A report of a thousand partitions over thirty days is some eighty requests a broker, and no record
is read. Sizes and settings are extras: a cluster that does not tell them (or not to this user) leaves them unknown,
and the report says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure
from penstock.spark.report.buckets import Log, edges, fill
from penstock.spark.report.facts import DAY_MS, HOUR_MS, Bucket, Settings, Topic
from penstock.spark.report.sizes import LogSizes

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster

_LATEST, _EARLIEST = -1, -2
# Of a log's first record with a time at all.
_ANY_TIME_MS = 0

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Extras:
    """What is known beside the offsets; all of it may be missing."""

    sizes: LogSizes = field(default_factory=LogSizes)
    settings: Mapping[str, Settings] = field(default_factory=dict[str, Settings])


def find_partitions(cluster: "Cluster", names: Sequence[str]) -> dict[str, list[TopicPartition]]:
    """The partitions of the topics named, or of all but internal ones. One that is not there is a SparkFailure."""
    found = cluster.topics(list(names) or None)
    missing = sorted(name for name, facts in found.items() if facts is None)
    if missing:
        raise SparkFailure(f"there is no topic {missing[0]}; `penstock topics list` shows which there are")
    return {
        name: [TopicPartition(name, partition) for partition in sorted(facts.leaders)]
        for name, facts in sorted(found.items())
        if facts is not None
    }


def survey(
    cluster: "Cluster",
    topics: Mapping[str, list[TopicPartition]],
    extras: Extras,
    now_ms: int,
    days: int,
    hours: int,
) -> list[Topic]:
    every = [at for partitions in topics.values() for at in partitions]
    if not every:
        return [_describe(name, {}, extras, None, (), ()) for name in topics]
    starts = _ask(cluster, every, _EARLIEST)
    ends = _ask(cluster, every, _LATEST)
    logs = {at: Log(starts[at], max(starts[at], ends[at]), extras.sizes.one_copy.get(at)) for at in every}
    oldest_ms = _oldest(cluster, [at for at, log in logs.items() if log.rows])
    by_day = _Timeline(cluster, logs, edges(now_ms, DAY_MS, days))
    by_hour = _Timeline(cluster, logs, edges(now_ms, HOUR_MS, hours))
    found: list[Topic] = []
    for name, partitions in topics.items():
        own = {at: logs[at] for at in partitions}
        times = [oldest_ms[at] for at in partitions if at in oldest_ms]
        oldest = min(times) if times else None
        found.append(_describe(name, own, extras, oldest, by_day.buckets(own, oldest), by_hour.buckets(own, oldest)))
    return found


class _Timeline:
    """Where every partition stood at some moments; asked for all topics at once."""

    def __init__(self, cluster: "Cluster", logs: Mapping[TopicPartition, Log], starts_ms: Sequence[int]) -> None:
        self._starts_ms = starts_ms
        filled = [at for at, log in logs.items() if log.rows]
        self._offsets: list[Offsets] = [_ask(cluster, filled, start_ms) for start_ms in starts_ms]

    def buckets(self, logs: Mapping[TopicPartition, Log], oldest_ms: int | None) -> tuple[Bucket, ...]:
        return fill(logs, self._starts_ms, self._offsets, oldest_ms)


def _describe(
    name: str,
    logs: Mapping[TopicPartition, Log],
    extras: Extras,
    oldest_ms: int | None,
    days: tuple[Bucket, ...],
    hours: tuple[Bucket, ...],
) -> Topic:
    sizes = [log.bytes for log in logs.values() if log.bytes is not None]
    # One partition of unknown size makes the sum wrong, and a wrong sum is worse than none.
    size = sum(sizes) if sizes and len(sizes) == len(logs) else None
    stored = sum(extras.sizes.all_copies.get(at, 0) for at in logs) if size is not None else None
    return Topic(
        name,
        len(logs),
        stored / size if size and stored is not None else None,
        sum(log.rows for log in logs.values()),
        size,
        stored,
        oldest_ms,
        days,
        hours,
        extras.settings.get(name, Settings()),
    )


def _oldest(cluster: "Cluster", partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(partitions, _ANY_TIME_MS)
    if not wanted:
        return {}
    found = cluster.list_offsets(wanted, "read_uncommitted")
    return {at: timestamp for at, (offset, timestamp) in found.items() if offset >= 0 and timestamp >= 0}


def _ask(cluster: "Cluster", partitions: Sequence[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
    if not partitions:
        return {}
    try:
        found = cluster.list_offsets(dict.fromkeys(partitions, at_ms), "read_uncommitted")
    except PenstockError as error:
        raise SparkFailure(f"the offsets of {len(partitions)} partitions could not be asked for: {error}") from None
    return {at: offset for at, (offset, _) in found.items()}
