"""The nouns every room shares: ids, offsets, names.

Called by everything. Plain values only; nothing here does anything.
"""

from dataclasses import dataclass
from typing import NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
NodeId = NewType("NodeId", int)
ProducerId = NewType("ProducerId", int)
TopicId = UUID

NO_PRODUCER = ProducerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TOPIC_ID = UUID(int=0)

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request. Until a listener authenticates, everyone is ANONYMOUS."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
