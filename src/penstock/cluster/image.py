"""What this broker knows of the cluster, in memory: topics, brokers, settings, quotas.

Read by every request; changed only by feed, which applies the store's revisions in order.
Invariants:
- `apply` is the only way it changes, and it is a plain call: no reader sees half a revision.
- Topic and PartitionState are replaced, never altered, so one that a caller holds stays what it was.
- A topic is here exactly while its key is in the store; partition keys without a topic key are orphans and invisible.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from penstock.cluster.layout import Layout, QuotaEntity, decode, parse_config_path, parse_quota_path
from penstock.cluster.store import Change, KeyValue, Revision, Snapshot
from penstock.model import Endpoint

NO_LEADER = -1
NO_CONTROLLER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    # Replicas out of sync that hold all that is committed, since nothing was while they were away (KIP-966).
    elr: tuple[int, ...] = ()
    # What a reassignment brings and takes; both are among `replicas` until it is done.
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    # The store's revision of this key: what a compare-and-swap of it names.
    mod_revision: int = 0

    def as_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
            "replicas": self.replicas,
            "partition_epoch": self.partition_epoch,
        }
        # Rare, and thousands of partitions are read at every start.
        fields |= {name: nodes for name in ("elr", "adding", "removing") if (nodes := getattr(self, name))}
        return fields


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: UUID
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str]
    create_revision: int = 0
    mod_revision: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id.hex, "partitions": len(self.partitions), "configs": self.configs}


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: int
    endpoint: Endpoint
    rack: str | None
    epoch: int
    is_stopping: bool = False
    directory: str = ""


@dataclass(slots=True)
class ImageChanges:
    """What one `apply` did. Partitions are named by their topic, as it is now, and their index."""

    revision: int
    topics_created: list[Topic] = field(default_factory=list[Topic])
    topics_deleted: list[Topic] = field(default_factory=list[Topic])
    partitions_added: list[tuple[Topic, int]] = field(default_factory=list[tuple[Topic, int]])
    partitions_changed: list[tuple[Topic, int]] = field(default_factory=list[tuple[Topic, int]])
    topic_configs_changed: list[Topic] = field(default_factory=list[Topic])
    broker_configs_changed: set[str] = field(default_factory=set[str])
    group_configs_changed: set[str] = field(default_factory=set[str])
    brokers_changed: bool = False
    controller_changed: bool = False
    quotas_changed: bool = False


class ClusterImage:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.revision = 0
        self.cluster_id = ""
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.brokers: dict[int, BrokerInfo] = {}
        # Overrides by node id as text; "" holds those of all brokers.
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.group_configs: dict[str, dict[str, str]] = {}
        # Subscriptions to what clients measure, by name, and the revision that last changed one of them.
        self.client_metrics_configs: dict[str, dict[str, str]] = {}
        self.client_metrics_revision = 0
        self.client_quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._topic_items: dict[str, KeyValue] = {}
        # By the id's text, as the keys have it: making a UUID of each would be a quarter of the load time.
        self._partitions: dict[str, dict[int, PartitionState]] = {}
        self._names_by_id_text: dict[str, str] = {}
        self._names_by_metric: dict[str, str] = {}

    def load(self, snapshot: Snapshot) -> ImageChanges:
        """Become what the snapshot says; what was known before and is not in it counts as deleted."""
        present = {item.key for item in snapshot.items}
        gone = [Change(key, None) for key in self._keys() if key not in present]
        return self.apply(Revision(snapshot.revision, (*gone, *(Change(item.key, item) for item in snapshot.items))))

    def apply(self, revision: Revision) -> ImageChanges:
        assert revision.number >= self.revision, (revision.number, self.revision)
        self.revision = revision.number
        changes = ImageChanges(revision.number)
        touched: dict[str, None] = {}
        for change in revision.changes:
            family, rest = self.layout.split(change.key)
            match family:
                case "partitions":
                    id_text = self._apply_partition(rest, change.item)
                    if (name := self._names_by_id_text.get(id_text)) is not None:
                        touched[name] = None
                case "topics":
                    if change.item is None:
                        self._topic_items.pop(rest, None)
                    else:
                        self._topic_items[rest] = change.item
                    touched[rest] = None
                case _:
                    self._apply_other(family, rest, change.item, changes)
        # Last, because a load may bring a topic's key before those of its partitions.
        for name in touched:
            self._rebuild_topic(name, changes)
        return changes

    def orphans(self, topic_id: UUID | None = None) -> list[tuple[UUID, int]]:
        """Partition keys that belong to no topic: what a creation or deletion cut short has left."""
        ids = self._partitions if topic_id is None else [topic_id.hex]
        return [
            (UUID(id_text), index)
            for id_text in ids
            if id_text not in self._names_by_id_text
            for index in self._partitions.get(id_text, ())
        ]

    def partition(self, topic_id: UUID, index: int) -> PartitionState | None:
        topic = self.topics_by_id.get(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    @property
    def live(self) -> frozenset[int]:
        """Brokers that may lead: registered, and not about to stop."""
        return frozenset(broker.id for broker in self.brokers.values() if not broker.is_stopping)

    def colliding_name(self, name: str) -> str | None:
        """An existing topic whose metrics would have the same name, as "." and "_" are the same there."""
        other = self._names_by_metric.get(metric_name(name))
        return other if other != name else None

    def _apply_partition(self, rest: str, item: KeyValue | None) -> str:
        id_text, _, index_text = rest.partition("/")
        index = int(index_text)
        states = self._partitions.setdefault(id_text, {})
        if item is not None:
            states[index] = partition_state(item)
        else:
            states.pop(index, None)
            if not states:
                del self._partitions[id_text]
        return id_text

    def _rebuild_topic(self, name: str, changes: ImageChanges) -> None:
        old = self.topics.get(name)
        item = self._topic_items.get(name)
        new = None
        if item is not None:
            fields = decode(item.value) if old is None or old.mod_revision != item.mod_revision else old.as_json()
            states, count = self._partitions.get(fields["id"], {}), fields["partitions"]
            partitions = tuple([states[index] for index in range(count) if index in states])
            assert len(partitions) == count, f"topic {name} has {len(partitions)} of its {count} partition keys"
            new = Topic(
                name, UUID(fields["id"]), partitions, fields["configs"], item.create_revision, item.mod_revision
            )
        if old is not None and (new is None or new.id != old.id):
            del self.topics[name], self.topics_by_id[old.id], self._names_by_id_text[old.id.hex]
            self._names_by_metric.pop(metric_name(name), None)
            changes.topics_deleted.append(old)
            old = None
        if new is None:
            return
        self.topics[name] = self.topics_by_id[new.id] = new
        self._names_by_id_text[new.id.hex] = name
        self._names_by_metric[metric_name(name)] = name
        if old is None:
            changes.topics_created.append(new)
            return
        if new.configs != old.configs:
            changes.topic_configs_changed.append(new)
        for index, state in enumerate(new.partitions):
            if index >= len(old.partitions):
                changes.partitions_added.append((new, index))
            elif state is not old.partitions[index] and state != old.partitions[index]:
                changes.partitions_changed.append((new, index))

    def _apply_other(self, family: str, rest: str, item: KeyValue | None, changes: ImageChanges) -> None:
        match family:
            case "brokers":
                node_id = int(rest)
                if item is None:
                    self.brokers.pop(node_id, None)
                else:
                    fields = decode(item.value)
                    endpoint = Endpoint(*fields["endpoint"])
                    self.brokers[node_id] = BrokerInfo(
                        node_id,
                        endpoint,
                        fields["rack"],
                        item.mod_revision,
                        fields.get("stopping", False),
                        fields.get("directory", ""),
                    )
                changes.brokers_changed = True
            case "controller":
                self.controller_id = NO_CONTROLLER if item is None else decode(item.value)["broker"]
                changes.controller_changed = True
            case "controller-epoch":
                self.controller_epoch = 0 if item is None else decode(item.value)["epoch"]
            case "cluster-id":
                self.cluster_id = "" if item is None else decode(item.value)["id"]
            case "configs":
                self._apply_configs(*parse_config_path(rest), item, changes)
            case "quotas":
                if item is None:
                    self.client_quotas.pop(parse_quota_path(rest), None)
                else:
                    self.client_quotas[parse_quota_path(rest)] = decode(item.value)
                changes.quotas_changed = True
            case _:
                # Counters, and families a newer broker may add: nothing a request asks the image for.
                pass

    def _apply_configs(self, kind: str, name: str, item: KeyValue | None, changes: ImageChanges) -> None:
        match kind:
            case "broker":
                configs, changed = self.broker_configs, changes.broker_configs_changed
            case "group":
                configs, changed = self.group_configs, changes.group_configs_changed
            case "client-metrics":
                configs, changed = self.client_metrics_configs, set[str]()
                self.client_metrics_revision = changes.revision
            case _:
                return
        if item is None:
            configs.pop(name, None)
        else:
            configs[name] = decode(item.value)
        changed.add(name)

    def _keys(self) -> Iterator[str]:
        layout = self.layout
        yield from (layout.topic(name) for name in self._topic_items)
        for id_text, states in self._partitions.items():
            yield from (layout.partition(UUID(id_text), index) for index in states)
        yield from (layout.broker(node_id) for node_id in self.brokers)
        yield from (layout.config("broker", name) for name in self.broker_configs)
        yield from (layout.config("group", name) for name in self.group_configs)
        yield from (layout.config("client-metrics", name) for name in self.client_metrics_configs)
        yield from (layout.quota(entity) for entity in self.client_quotas)
        if self.controller_id != NO_CONTROLLER:
            yield layout.controller


def partition_state(item: KeyValue) -> PartitionState:
    return PartitionState(*_partition_fields(item.value), mod_revision=item.mod_revision)


@lru_cache(maxsize=4096)
def _partition_fields(value: bytes) -> tuple[Any, ...]:
    """Kept by value, because thousands of partitions have the very same: they are read once and share their tuples."""
    fields = decode(value)
    return (
        fields["leader"],
        fields["leader_epoch"],
        tuple(fields["isr"]),
        tuple(fields["replicas"]),
        fields["partition_epoch"],
        *(tuple(fields.get(name, ())) for name in ("elr", "adding", "removing")),
    )


def metric_name(topic: str) -> str:
    return topic.replace(".", "_")
