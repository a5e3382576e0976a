"""A decision of a consumer group in the making, and what it has to keep to.

Called by groups.consumer_group, groups.classic_members, groups.migration and groups.consumer_groups.
"""

from dataclasses import dataclass

from penstock.cluster.image import ClusterImage
from penstock.groups.consumer_facts import ConsumerFacts
from penstock.groups.consumer_group_records import ConsumerGroupRecord


@dataclass(frozen=True, slots=True)
class Terms:
    """What the broker's settings and the group's own allow it, and the topics there are."""

    image: ClusterImage
    topics_version: int  # rises whenever topics come, go or grow: a group then looks whether that concerns it
    session_timeout_ms: int
    heartbeat_interval_ms: int
    size_max: int
    assignors: tuple[str, ...]


class Draft:
    """A decision in the making: its records, and the facts as they are with them."""

    __slots__ = ("_before", "facts", "records", "topics_seen")

    def __init__(self, facts: ConsumerFacts) -> None:
        self._before = facts
        self.facts = facts
        self.records: list[ConsumerGroupRecord] = []
        self.topics_seen: int | None = None  # which version of the topics its facts were compared with, if any

    def write(self, record: ConsumerGroupRecord) -> None:
        if self.facts is self._before:
            # Only now: most heartbeats change nothing.
            self.facts = self._before.copy()
        self.facts.apply(record)
        self.records.append(record)
