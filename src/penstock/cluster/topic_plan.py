"""From a wish for a topic to the keys that make it one: names, counts and assignments checked, nothing written.

Called by controller. Plain functions from the image and the wish to a plan or an error.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cluster.elections import first_state
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.layout import Layout, encode
from penstock.cluster.placement import Candidate, place
from penstock.cluster.store import Put
from penstock.config import BrokerConfig
from penstock.config.setting import Scope
from penstock.config.validation import validate_change
from penstock.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopicName,
    PolicyViolation,
    TopicAlreadyExists,
)
from penstock.model import TopicId

NAME_LENGTH_MAX = 249
NAME_PATTERN = re.compile(r"[a-zA-Z0-9._-]+")
# Kafka's limit for one request: past it a single message could fill the metadata store.
PARTITIONS_PER_REQUEST_MAX = 10_000
# Room is left below the store's 128 for the fence and whatever else a transaction compares.
OPERATIONS_PER_TXN = 100
BYTES_PER_TXN = 1_000_000
CONFIG_BYTES_MAX = 500_000
# From this many replicas on one may be away and two still hold what is acknowledged (TRAPS R11).
REPLICAS_FOR_TWO_IN_SYNC = 3


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic asked for. Counts are those wanted, defaults already put in; with an assignment both are -1."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    assignment: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The keys of one new topic: `early` ones are written ahead in pieces, `puts` at once, the topic's own key last.

    `guard` is the key that keeps the early ones from being taken for orphans.
    """

    topic: Topic
    key: str
    guard: str
    early: list[list[Put]]
    puts: list[Put]
    size: int


def check_name(name: str) -> None:
    if not name:
        raise InvalidTopicName("a topic's name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic cannot be named {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopicName(f"a topic's name has at most {NAME_LENGTH_MAX} characters, this one has {len(name)}")
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidTopicName(f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'")


def check_new_name(image: ClusterImage, name: str) -> None:
    check_name(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"topic {name!r} already exists")
    if (other := image.colliding_name(name)) is not None:
        raise InvalidTopicName(
            f"topic {name!r} collides with topic {other!r}: '.' and '_' are the same in metric names"
        )


def plan_topic(image: ClusterImage, new: NewTopic, topic_id: TopicId, start: int, config: BrokerConfig) -> TopicPlan:
    """The keys that create the topic; raises the error a client should see. The name is checked already."""
    assignment = choose_assignment(image, new, start)
    configs = _check_configs(new)
    min_insync = default_min_insync(len(assignment[0]), config)
    if min_insync is not None:
        configs.setdefault("min.insync.replicas", str(min_insync))
    live = image.live
    topic = Topic(new.name, topic_id, tuple(first_state(replicas, live) for replicas in assignment), configs)
    value = encode(topic.as_json())
    if len(value) > CONFIG_BYTES_MAX:
        raise InvalidConfig(f"the settings of topic {new.name!r} take {len(value)} bytes, {CONFIG_BYTES_MAX} allowed")
    key = image.layout.topic(new.name)
    puts = partition_puts(image.layout, topic_id, enumerate(topic.partitions))
    # The last piece goes with the topic's key and is at least one short of full, to have room for it.
    whole = (len(puts) // OPERATIONS_PER_TXN) * OPERATIONS_PER_TXN
    early = [puts[at : at + OPERATIONS_PER_TXN] for at in range(0, whole, OPERATIONS_PER_TXN)]
    last = [*puts[whole:], Put(key, value)]
    size = sum(len(put.key) + len(put.value) for put in last)
    return TopicPlan(topic, key, image.layout.creating(topic_id), early, last, size)


def choose_assignment(image: ClusterImage, new: NewTopic, start: int) -> list[tuple[int, ...]]:
    if new.assignment is None:
        if new.partitions < 1:
            raise InvalidPartitions(f"a topic needs at least 1 partition, not {new.partitions}")
        if new.partitions > PARTITIONS_PER_REQUEST_MAX:
            raise too_many_partitions(new.partitions)
        return place(candidates(image), new.partitions, new.replication_factor, start)
    if new.partitions != -1 or new.replication_factor != -1:
        raise InvalidRequest("with an assignment of replicas, neither partitions nor replication factor can be given")
    if not new.assignment or sorted(new.assignment) != list(range(len(new.assignment))):
        raise InvalidReplicaAssignment("assigned partitions must be numbered from 0 on without gaps")
    assignment = [tuple(new.assignment[index]) for index in range(len(new.assignment))]
    check_assignment(image, assignment, len(assignment[0]))
    return assignment


def check_assignment(image: ClusterImage, assignment: Sequence[Sequence[int]], replication_factor: int) -> None:
    for replicas in assignment:
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"replicas {list(replicas)} are empty or name a broker twice")
        if len(replicas) != replication_factor:
            raise InvalidReplicaAssignment("all partitions must have the same number of replicas")
        if unknown := [node for node in replicas if node not in image.brokers]:
            raise InvalidReplicaAssignment(f"no broker {unknown[0]} is registered")
        if not image.live.intersection(replicas):
            raise InvalidReplicaAssignment(f"all of the brokers {list(replicas)} are stopping")


def pack(plans: Iterable[TopicPlan]) -> list[list[TopicPlan]]:
    """Plans grouped so that each group's last pieces fit into one transaction."""
    groups: list[list[TopicPlan]] = []
    operations = size = 0
    for plan in plans:
        needed = len(plan.puts) + bool(plan.early)  # the guard is deleted
        full = operations + needed > OPERATIONS_PER_TXN or size + plan.size > BYTES_PER_TXN
        if not groups or full:
            groups.append([])
            operations = size = 0
        groups[-1].append(plan)
        operations += needed
        size += plan.size
    return groups


def candidates(image: ClusterImage) -> list[Candidate]:
    return [Candidate(broker.id, broker.rack) for broker in image.brokers.values() if not broker.is_stopping]


def default_min_insync(replicas: int, config: BrokerConfig) -> int | None:
    """What a topic of so many replicas gets that says nothing itself; None leaves it to the broker's setting."""
    is_chosen = config.is_set("min.insync.replicas")
    return None if is_chosen or replicas < REPLICAS_FOR_TWO_IN_SYNC else 2


def partition_puts(layout: Layout, topic_id: TopicId, states: Iterable[tuple[int, PartitionState]]) -> list[Put]:
    return [Put(layout.partition(topic_id, index), encode(state.as_json())) for index, state in states]


def too_many_partitions(count: int) -> PolicyViolation:
    return PolicyViolation(f"{count} partitions in one request, {PARTITIONS_PER_REQUEST_MAX} allowed")


def _check_configs(new: NewTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for name, value in new.configs.items():
        if value is None:
            raise InvalidConfig(f"{name} of topic {new.name!r} has no value")
        validate_change(Scope.TOPIC, new.name, name, value)
        configs[name] = value
    return configs
