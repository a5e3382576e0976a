"""Where reading starts and ends, as options say it, and what that is in offsets once the cluster is asked.

Called by options.py (parsing, with Spark's precedence) and by the planners of batches and streams (resolving).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.model import TopicPartition
from penstock.spark.errors import BadOption
from penstock.spark.offsets import parse_per_partition

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster

Isolation = Literal["read_committed", "read_uncommitted"]
Unmatched = Literal["error", "latest"]

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
NUMBER_MAX = (1 << 63) - 1  # of the 64 bits that Kafka has for offsets and times


@dataclass(frozen=True, slots=True)
class Bound:
    """One number for all partitions, or one for each; offsets, or times in milliseconds."""

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    is_time: bool = False

    def resolve(
        self, cluster: "Cluster", partitions: Collection[TopicPartition], isolation: Isolation, unmatched: Unmatched
    ) -> dict[TopicPartition, int]:
        wanted = self._wanted(partitions)
        if self.is_time:
            return self._resolve_times(cluster, wanted, isolation, unmatched)
        asked = {at: number for at, number in wanted.items() if number < 0}
        answers = cluster.list_offsets(asked, isolation) if asked else {}
        return {at: answers[at][0] if number < 0 else number for at, number in wanted.items()}

    def _wanted(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.each is None:
            assert self.everywhere is not None
            return dict.fromkeys(partitions, self.everywhere)
        unnamed = ", ".join(str(at) for at in sorted(set(partitions) - self.each.keys()))
        unknown = ", ".join(str(at) for at in sorted(self.each.keys() - set(partitions)))
        if unnamed or unknown:
            said = f"leaves out {unnamed}" if unnamed else f"names {unknown}, which is not read or not there"
            advice = "" if self.is_time else " (-2 is the earliest offset, -1 the latest)"
            raise BadOption(f"{self.option} {said}: it must name each partition that is read{advice}")
        return dict(self.each)

    def _resolve_times(
        self, cluster: "Cluster", wanted: dict[TopicPartition, int], isolation: Isolation, unmatched: Unmatched
    ) -> dict[TopicPartition, int]:
        answers = cluster.list_offsets(wanted, isolation)
        too_old = [at for at in sorted(wanted) if answers[at][0] < 0]
        if too_old and unmatched == "error":
            raise BadOption(
                f"{self.option}: {too_old[0]} has no record as young as {wanted[too_old[0]]}; give an earlier time, or "
                "set startingOffsetsByTimestampStrategy to latest"
            )
        latest = cluster.list_offsets(dict.fromkeys(too_old, LATEST_OFFSET), isolation) if too_old else {}
        return {at: latest[at][0] if at in latest else answers[at][0] for at in wanted}


def parse_bound(options: Mapping[str, str], side: Literal["starting", "ending"], default: str) -> Bound:
    """Spark's precedence: a time for all, then times for each, then offsets. Names come in lower case."""
    by_time, by_times, by_offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if (text := options.get(by_time.lower())) is not None:
        if not text.strip().isdecimal() or int(text) > NUMBER_MAX:
            raise BadOption(f"{by_time} is {text}; it must be a number of milliseconds since 1970")
        return Bound(by_time, everywhere=int(text), is_time=True)
    try:
        if (text := options.get(by_times.lower())) is not None:
            return Bound(by_times, each=_each(by_times, text, 0), is_time=True)
        text = options.get(by_offsets.lower(), default).strip()
        if text.lower() == "earliest":
            return Bound(by_offsets, everywhere=EARLIEST_OFFSET)
        if text.lower() == "latest":
            return Bound(by_offsets, everywhere=LATEST_OFFSET)
        return Bound(by_offsets, each=_each(by_offsets, text, EARLIEST_OFFSET))
    except ValueError as why:
        raise BadOption(str(why)) from None


def check_batch_bounds(start: Bound, end: Bound) -> None:
    """What Spark's connector refuses of a batch."""
    for bound, forbidden, word in ((start, LATEST_OFFSET, "latest"), (end, EARLIEST_OFFSET, "earliest")):
        if bound.is_time:
            continue
        if bound.everywhere == forbidden:
            raise BadOption(f"{bound.option} cannot be {word} in a batch: nothing would be read")
        for at, number in (bound.each or {}).items():
            if number == forbidden:
                raise BadOption(f"{bound.option} cannot be {word} ({forbidden}) for {at} in a batch")
    if start.each is not None and end.each is not None and start.is_time == end.is_time:
        if start.each.keys() != end.each.keys():
            raise BadOption(f"{start.option} and {end.option} must name the same partitions")
        for at, first in start.each.items():
            if 0 <= end.each[at] < first:
                raise BadOption(f"{at} would start at {first} and end at {end.each[at]}")


def _each(option: str, text: str, least: int) -> dict[TopicPartition, int]:
    numbers = parse_per_partition(option, text, least)
    for at, number in numbers.items():
        if number > NUMBER_MAX:
            raise ValueError(f"{option} has {number} for {at}; the largest number is {NUMBER_MAX}")
    return numbers
