"""What must hold in a cluster at every moment, and at the end of every seed.

Called by simulate: `look` every few virtual milliseconds and after every fault, `check_end` once, after the heal.
Invariants, each told as a problem of the world with the time it was seen at:
- one leader per epoch, and epochs that only rise (from the history of the store);
- the high watermark of a replica never falls while it lives;
- below the high watermark no batch ever changes, and any two replicas have the same;
- whoever the store names in sync, or eligible, holds all that any replica has shown as committed;
- acknowledged is present, where it was said to be, once, in the order it was sent (at the end, by reading).
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.simulation.cluster import Node, SimulatedCluster
from tests.simulation.model import Model

from penstock.cluster.store import Revision
from penstock.model import TopicPartition
from penstock.records.batch import HEADER_BYTES, read_header

READ_BYTES = 1 << 20
# The topic of transactions, each of which writes to all of its partitions.
LEDGER = "ledger"


class Committed(NamedTuple):
    """A batch as the first replica that showed it below its high watermark had it."""

    crc: int
    next_offset: int
    leader_epoch: int


class Checks:
    def __init__(self, cluster: SimulatedCluster, model: Model) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.model = model
        self.looks = 0
        self.elections = 0
        self.in_sync_changes = 0
        # Only of what was read to its end can be said that something is missing.
        self.is_all_read = False
        self._leaders: dict[tuple[str, int], int] = {}
        self._states: dict[str, dict[str, Any]] = {}
        self._committed: dict[tuple[str, TopicPartition], dict[int, Committed]] = {}
        self._states_by_place: dict[tuple[str, int], dict[str, Any]] = {}
        self._highest: dict[tuple[str, TopicPartition], int] = {}
        self._high_watermarks: dict[tuple[str, TopicPartition], tuple[object, int]] = {}
        # How far each replica, in this life, has been compared.
        self._compared: dict[tuple[str, TopicPartition], tuple[object, int]] = {}
        cluster.store.on_revision = self._on_revision

    # The store's history

    def _on_revision(self, revision: Revision) -> None:
        for change in revision.changes:
            if "/partitions/" in change.key:
                if change.item is None:
                    self._states.pop(change.key, None)
                else:
                    self._partition_changed(change.key, json.loads(change.item.value))

    def _partition_changed(self, key: str, state: dict[str, Any]) -> None:
        leader, epoch = state["leader"], state["leader_epoch"]
        before = self._states.get(key)
        self._states[key] = state
        name = key.rpartition("/partitions/")[2]
        topic_id, _, index = name.partition("/")
        self._states_by_place[topic_id, int(index)] = state
        if leader >= 0:
            was = self._leaders.setdefault((key, epoch), leader)
            if was != leader:
                self.world.problem(f"{name}: epoch {epoch} was led by {was}, and now by {leader}")
            if leader not in state["isr"]:
                self.world.problem(f"{name}: its leader {leader} is not in sync: {state}")
        if before is None:
            return
        if epoch < before["leader_epoch"] or state["partition_epoch"] <= before["partition_epoch"]:
            self.world.problem(f"{name}: epochs fall: {before} -> {state}")
        if leader != before["leader"] and leader >= 0 and epoch == before["leader_epoch"]:
            self.world.problem(f"{name}: a new leader without a new epoch: {before} -> {state}")
        if leader != before["leader"]:
            self.elections += 1
        if state["isr"] != before["isr"]:
            self.in_sync_changes += 1
        brief = {field: state[field] for field in state if field != "replicas"}
        self.world.tell(f"{name[-8:]}: {brief}")

    def states(self) -> Iterator[dict[str, Any]]:
        yield from self._states.values()

    # The replicas, now

    def look(self) -> None:
        self.looks += 1
        for node in self.cluster.nodes:
            if node.is_serving:
                for partition in _partitions(node):
                    self._look_at(node, partition)
        for node in self.cluster.nodes:
            if node.is_serving:
                for partition in _partitions(node):
                    self._check_holds_committed(node, partition)

    def _check_holds_committed(self, node: Node, partition: Any) -> None:
        state = self._states_by_place.get((partition.topic_id.hex, partition.at.partition))
        if state is None or node.id not in (*state["isr"], *state.get("elr", ())):
            return
        if len(state["replicas"]) == 1:
            return
        committed = self._highest.get((partition.topic_id.hex, partition.at), 0)
        if partition.log.failure is None and partition.log.next_offset < committed:
            self.world.problem(
                f"{node.host}: {partition.at} ends at {partition.log.next_offset} though {committed} are committed, "
                f"and the store has {state}"
            )

    def _look_at(self, node: Node, partition: Any) -> None:
        assert node.host is not None
        replica = (node.host.name, partition.at)
        high_watermark = partition.high_watermark
        seen, before = self._high_watermarks.get(replica, (partition, 0))
        if seen is partition and high_watermark < before:
            self.world.problem(
                f"{node.host}: {partition.at}: the high watermark fell from {before} to {high_watermark}"
            )
        self._high_watermarks[replica] = (partition, high_watermark)
        place = (partition.topic_id.hex, partition.at)
        self._highest[place] = max(self._highest.get(place, 0), high_watermark)
        log, compared = self._compared.get(replica, (partition.log, 0))
        if log is not partition.log:
            compared = 0
        # Alone, a broker shows what it has written; it promises what it has acknowledged, which is synced.
        is_promised = len(self.cluster.nodes) > 1 and not node.disk.is_rotten
        if partition.log.failure is None and high_watermark > compared and is_promised:
            self._compared[replica] = (partition.log, self._compare(node, partition, compared, high_watermark))

    def _compare(self, node: Node, partition: Any, start: int, end: int) -> int:
        """Hold a replica's batches below its high watermark against what other replicas had there."""
        committed = self._committed.setdefault((partition.topic_id.hex, partition.at), {})
        for base_offset, batch in _batches(partition.log, max(start, partition.log.log_start), end):
            was = committed.setdefault(base_offset, batch)
            if was != batch:
                self.world.problem(
                    f"{node.host}: {partition.at}: the batch at {base_offset}, below the high watermark {end}, "
                    f"is {batch}, and was {was}"
                )
            start = batch.next_offset
        return start

    # The end

    def check_end(self) -> None:
        """After the heal: all replicas whole and equal, everything acknowledged read back once and in order."""
        self.look()
        for (topic, index), known in self.model.partitions.items():
            name = f"{topic}-{index}"
            places: dict[bytes, list[int]] = {}
            for offset in sorted(known.read):
                places.setdefault(known.read[offset], []).append(offset)
            lost = [value for value in known.acknowledged if value not in places]
            if lost and self.is_all_read:
                self.world.problem(f"{name}: {len(lost)} acknowledged records are gone, the first is {lost[0]!r}")
            twice = [(value, offsets) for value, offsets in places.items() if len(offsets) > 1]
            if twice:
                self.world.problem(f"{name}: {len(twice)} records are there twice, the first is {twice[0]}")
            for value, offset in known.acknowledged.items():
                if offset >= 0 and value in places and places[value] != [offset]:
                    self.world.problem(f"{name}: {value!r} was acknowledged at {offset} and is at {places[value]}")
                    break
            self._check_order(name, known.read)
        if self.is_all_read:
            self._check_transactions()

    def _check_transactions(self) -> None:
        """Whole or not at all; not at all where an abort was asked for."""
        seen: dict[int, set[str]] = {}
        places = {f"{topic}-{index}" for topic, index in self.model.partitions if topic == LEDGER}
        for (topic, index), known in self.model.partitions.items():
            if topic == LEDGER:
                for value in known.read.values():
                    seen.setdefault(int(value.rpartition(b"/")[2]), set()).add(f"{topic}-{index}")
        for number, found in seen.items():
            if number in self.model.aborted:
                self.world.problem(f"transaction {number} was aborted, and is seen in {sorted(found)}")
            elif found != places:
                self.world.problem(f"transaction {number} is seen in {sorted(found)} only")

    def _check_order(self, name: str, read: dict[int, bytes]) -> None:
        last: dict[bytes, int] = {}
        for offset in sorted(read):
            producer, _, number = read[offset].rpartition(b"/")
            if int(number) < last.get(producer, -1):
                self.world.problem(f"{name}: {read[offset]!r} comes after number {last[producer]} of its producer")
                return
            last[producer] = int(number)

    def check_settled(self) -> str | None:
        """Why the cluster has not yet settled after the heal; None once all replicas are in sync and at one end."""
        for key, state in self._states.items():
            if state["leader"] < 0 or sorted(state["isr"]) != sorted(state["replicas"]):
                return f"{key.rpartition('/partitions/')[2]}: {state}"
        ends: dict[TopicPartition, set[tuple[int, int]]] = {}
        for node in self.cluster.nodes:
            if not node.is_serving:
                return f"node {node.id} does not serve"
            for partition in _partitions(node):
                ends.setdefault(partition.at, set()).add((partition.log.next_offset, partition.high_watermark))
        for at, found in ends.items():
            if len(found) > 1 or any(end != high_watermark for end, high_watermark in found):
                return f"{at}: ends and high watermarks differ: {sorted(found)}"
        return None


def _partitions(node: Node) -> Iterator[Any]:
    assert node.broker is not None
    return node.broker.replicas.partitions()


def _batches(log: Any, start: int, end: int) -> Iterator[tuple[int, Committed]]:
    while start < end:
        chunk = log.read(start, READ_BYTES, end, cached_only=False)
        if not chunk:
            return
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            header = read_header(chunk, at)
            if at + header.size > len(chunk) or header.base_offset >= end:
                break
            yield header.base_offset, Committed(header.crc, header.next_offset, header.leader_epoch)
            at += header.size
            start = header.next_offset
        if at == 0:
            return
