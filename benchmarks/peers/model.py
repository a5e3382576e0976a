"""What the comparison knows of a system: how it is had, how it is started in each mode, what it can do.

Every file of this folder holds one Peer; running.py starts what a Plan says; beside/ drives the workloads.
Laws:
- A peer that cannot be had, or does not offer a mode, answers Missing with a reason for the report; it never guesses.
- A Plan may be started again on the same folder: that is how restarts and recoveries are measured.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

HOST = "127.0.0.1"


class Mode(StrEnum):
    """What an acknowledgement means."""

    DEFAULT = "default"  # whatever the system does when nothing is configured
    FSYNC = "fsync"  # on stable storage before it is acknowledged
    PAGE_CACHE = "page-cache"  # in the kernel's hands


class Ability(StrEnum):
    """What a workload may ask of a peer; the value completes the sentence "it has no …"."""

    KAFKA = "Kafka's protocol"
    CHOICE_OF_ACKS = "choice of acks"
    COMPRESSION = "batches compressed by the producer"
    TRANSACTIONS = "transactions in the sense of Kafka's"
    GROUPS = "groups that rebalance partitions"
    CLUSTER = "three nodes here"
    MANY_PARTITIONS = "partitions by the thousand here"
    RESTART = "data after a restart in this mode"
    BROKER_PER_CORE = "need of a broker for each core"


class Driver(StrEnum):
    """Which client speaks to it: the name of a file in beside/drivers."""

    KAFKA = "kafka_driver"
    REDIS = "redis_driver"
    NATS = "nats_driver"
    RABBITMQ = "rabbitmq_driver"


@dataclass(frozen=True, slots=True)
class Missing:
    reason: str


@dataclass(frozen=True, slots=True)
class Node:
    command: tuple[str, ...]
    port: int  # where it listens once it is up
    folder: Path  # where it keeps its data
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Plan:
    address: str  # what its clients are given
    nodes: tuple[Node, ...]
    prepare: tuple[tuple[str, ...], ...] = ()  # commands run once, before the first start


class Peer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def driver(self) -> Driver: ...

    @property
    def abilities(self) -> frozenset[Ability]: ...

    def ready(self) -> Path | Missing:
        """Its home: fetched or built at the first call, found again later."""
        ...

    def version(self, home: Path) -> str: ...

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        """Writes its configuration into `folder`, which is new and empty."""
        ...


def lacks(peer: Peer, needs: frozenset[Ability]) -> str | None:
    """The sentence of the report for a peer that has not what a workload needs."""
    missing = sorted(needs - peer.abilities)
    return f"it has no {missing[0]}" if missing else None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
