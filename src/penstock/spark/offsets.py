"""How far a streaming query has come, as Spark keeps it in the checkpoint: offsets per partition, and what beside them.

Called by stream_reader.py and stream_planning.py; pipelines read checkpoints with it. The text is that of Spark's
`kafka` source, {"orders":{"0":123}}, with one more key that no topic can be called, so that a checkpoint of that
source can be read here. Beside the offsets stand the ids of the topics (a topic made anew has another one), the name
the query goes by in its lag group's metadata, and where the batch that ends here begins in partitions whose start is
not simply the end of the batch before.
Laws:
- from_json(to_json(p)) == p; equal positions have equal text, for Spark compares text.
- A position is never changed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure

# Not a legal name of a topic.
BESIDE = "@penstock"

Json = dict[str, Any]


class BadPosition(SparkFailure):
    """A checkpoint that this source did not write."""


@dataclass(frozen=True, slots=True)
class Position:
    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict[str, UUID])
    # Of the batch that ends here: partitions new to it, and those that go on behind a gap.
    begins: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    query: str = ""

    def to_json(self) -> Json:
        beside: Json = {}
        if self.begins:
            beside["begins"] = _by_topic(self.begins)
        if self.topic_ids:
            beside["ids"] = {topic: str(self.topic_ids[topic]) for topic in sorted(self.topic_ids)}
        if self.query:
            beside["query"] = self.query
        return ({BESIDE: beside} if beside else {}) | _by_topic(self.offsets)

    @classmethod
    def from_json(cls, value: Any) -> "Position":
        # A source of one's own hands over dictionaries; the checkpoint of another may hold anything.
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                raise BadPosition("the checkpoint's offsets are not JSON: was it written by another source?") from None
        if not isinstance(value, dict):
            raise BadPosition("the checkpoint's offsets are not per topic: was it written by another source?")
        given = cast("Json", value)
        beside = given.get(BESIDE, {})
        try:
            return cls(
                offsets=_by_partition({topic: each for topic, each in given.items() if topic != BESIDE}),
                topic_ids={topic: UUID(text) for topic, text in beside.get("ids", {}).items()},
                begins=_by_partition(beside.get("begins", {})),
                query=str(beside.get("query", "")),
            )
        except (AttributeError, TypeError, ValueError):
            raise BadPosition(
                "the checkpoint's offsets are not per partition: was it written by another source?"
            ) from None

    def begin_of(self, at: TopicPartition, start: "Position") -> int | None:
        """Where the batch from `start` to here begins in a partition; None where neither says."""
        return self.begins.get(at, start.offsets.get(at))


def parse_per_partition(option: str, text: str, least: int) -> dict[TopicPartition, int]:
    """The value of startingOffsets and its like: {"orders":{"0":23}}. Raises ValueError with what is wrong."""
    form = f'{option} must be JSON like {{"orders":{{"0":23,"1":{least}}}}}'
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError(form) from None
    if not isinstance(value, dict) or not value:
        raise ValueError(form)
    found: dict[TopicPartition, int] = {}
    for topic, each in cast("Json", value).items():
        if not isinstance(each, dict) or not each:
            raise ValueError(form)
        for partition, number in cast("Json", each).items():
            if not partition.isdecimal() or isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"{form}; {topic} partition {partition} has {json.dumps(number)}")
            found[TopicPartition(topic, int(partition))] = number
    return found


def parse_assignment(text: str) -> frozenset[TopicPartition]:
    """The value of assign: {"orders":[0,1]}. Raises ValueError with what is wrong."""
    form = 'assign must be JSON like {"orders":[0,1]}'
    try:
        value = json.loads(text)
    except ValueError:
        raise ValueError(form) from None
    if not isinstance(value, dict):
        raise ValueError(form)
    found: set[TopicPartition] = set()
    for topic, partitions in cast("Json", value).items():
        if not isinstance(partitions, list):
            raise ValueError(form)
        for partition in cast("list[Any]", partitions):
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise ValueError(f"{form}; {topic} has {json.dumps(partition)}")
            found.add(TopicPartition(topic, partition))
    if not found:
        raise ValueError(f"{form}; it names no partition")
    return frozenset(found)


def _by_topic(numbers: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    # In the order of topics and of partition numbers: the text of equal positions is equal.
    topics: dict[str, dict[str, int]] = {}
    for at in sorted(numbers):
        topics.setdefault(at.topic, {})[str(at.partition)] = numbers[at]
    return topics


def _by_partition(topics: Json) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(number)
        for topic, each in topics.items()
        for partition, number in each.items()
    }
