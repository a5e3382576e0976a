"""Which partitions a source reads: topics by name, topics by pattern, or partitions one by one.

Called by options.py (parsing) and by the planners of batches and streams (asking the cluster).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.model import TopicPartition

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster

_JAVA_GROUP_NAME = re.compile(r"\(\?<([A-Za-z]\w*)>")


@dataclass(frozen=True, slots=True)
class Found:
    """What the cluster has of a subscription."""

    partitions: frozenset[TopicPartition]
    topic_ids: dict[str, UUID] = field(default_factory=dict[str, UUID])
    # Named, and not there: topics, or partitions of a topic that has fewer.
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscription:
    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()

    def find(self, cluster: "Cluster") -> Found:
        names = self.names or tuple(sorted({at.topic for at in self.assigned}))
        facts = cluster.topics(None if self.pattern is not None else names)
        if self.pattern is not None:
            matches = compile_pattern(self.pattern)
            facts = {topic: fact for topic, fact in facts.items() if matches.fullmatch(topic)}
        there = {topic: fact for topic, fact in facts.items() if fact is not None}
        partitions = {TopicPartition(topic, number) for topic, fact in there.items() for number in fact.leaders}
        missing = [topic for topic in names if facts.get(topic) is None]
        if self.assigned:
            missing += [str(at) for at in sorted(self.assigned - partitions) if at.topic in there]
            partitions &= self.assigned
        ids = {topic: fact.topic_id for topic, fact in there.items() if fact.topic_id is not None}
        return Found(frozenset(partitions), ids, tuple(missing))

    def covers(self, at: TopicPartition) -> bool:
        """Whether the partition is one to read, if it is there."""
        if self.pattern is not None:
            return compile_pattern(self.pattern).fullmatch(at.topic) is not None
        return at in self.assigned if self.assigned else at.topic in self.names

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern}"
        return ", ".join(self.names or _listed(self.assigned))


def compile_pattern(text: str) -> re.Pattern[str]:
    """A Java regex: Python's differ in how groups are named, in little else that a topic's name could show.

    Not RE2 as in the broker: patterns that leave topics out, (?!…), are common here, and whoever writes one waits for
    it himself. Raises re.error.
    """
    return re.compile(_JAVA_GROUP_NAME.sub(r"(?P<\1>", text))


def _listed(partitions: Iterable[TopicPartition]) -> list[str]:
    return [str(at) for at in sorted(partitions)]
