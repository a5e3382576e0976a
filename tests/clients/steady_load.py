"""A client at steady work at a cluster: it sends small batches without a pause, and reads them in a group.

Called by test_cluster, once for each client, side by side. What counts afterwards: which numbers were acknowledged
and where, what was read and where, and what the client complained of.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from client import WAIT_DEADLINE_S, Client, Producer, numbered
from driver import ClientError
from roster import Kind

PARTITIONS = 3
BATCH = 3 * PARTITIONS
# Between two batches, so that ten clients and three brokers leave some of two cores to each other.
PACE_S = 0.05
COMMITS_MAX = 5

Place = tuple[int, int]  # partition, offset


@dataclass(slots=True)
class Outcome:
    """What one client was told and has seen."""

    acknowledged: dict[int, Place | None] = field(
        default_factory=dict[int, Place | None]
    )  # None: it does not say where
    read: dict[Place, int] = field(default_factory=dict[Place, int])  # by place, so that reading twice is no news
    failures: list[str] = field(default_factory=list[str])  # sends that the client gave up


def group_of(topic: str) -> str:
    return f"{topic}-readers"


class Load(Protocol):
    def advance(self) -> None:
        """Return once batches that were begun after this call are acknowledged, to every partition."""
        ...

    def finish(self) -> Outcome:
        """Send no more, read all that was acknowledged, and tell. What was read is committed then."""
        ...


class Progress:
    """A number that grows, and can be waited for."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def grow(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for_more(self, more: int, who: str, is_over: Callable[[], bool]) -> None:
        with self._changed:
            wanted = self._count + more
            self._changed.wait_for(lambda: self._count >= wanted or is_over(), WAIT_DEADLINE_S)
            assert self._count >= wanted, f"{who}: {self._count} batches, waited in vain for {wanted}"


class SteadyLoad:
    def __init__(self, kind: Kind, client: Client, topic: str) -> None:
        self._name = kind.name
        self._sends_across_partitions = "sends_across_partitions" not in kind.lacks
        self._client = client
        self._topic = topic
        self._group = group_of(topic)
        self._outcome = Outcome()
        self._progress = Progress()
        self._is_over = threading.Event()
        self._member = client.member(self._group, topic)
        self._sending = threading.Thread(target=self._send, name=kind.name, daemon=True)
        self._sending.start()

    def advance(self) -> None:
        # One may have been under way; the next was begun after we were called.
        self._progress.wait_for_more(2, self._name, lambda: not self._sending.is_alive())

    def finish(self) -> Outcome:
        self._is_over.set()
        self._sending.join(WAIT_DEADLINE_S)
        outcome = self._outcome
        places = set(outcome.acknowledged.values())
        try:
            self._member.wait_until(lambda: places <= self._read().keys(), f"what {self._name} was told is kept")
            self._commit()
        except (AssertionError, ClientError) as error:
            outcome.failures.append(str(error))
        outcome.read = self._read()
        return outcome

    def _commit(self) -> None:
        """Some refuse while the group finds itself a new coordinator, and sarama does not say when it failed."""
        ends: dict[int, int] = {}
        for partition, offset in self._read():
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        for attempt in range(1, COMMITS_MAX + 1):
            try:
                self._member.commit()
            except ClientError:
                if attempt == COMMITS_MAX:
                    raise
            committed = self._client.admin("group_offsets", group=self._group)
            if {partition: offset for _, partition, offset in committed} == ends:
                return

    def _read(self) -> dict[Place, int]:
        return {
            (record.partition or 0, record.offset or 0): int(record.value or b"-1")
            for _, record in list(self._member.records)
        }

    def _send(self) -> None:
        producer, first = self._producer(), 0
        while not self._is_over.wait(PACE_S):
            numbers = range(first, first + BATCH)
            first += BATCH
            try:
                places = self._send_batch(producer, numbers.start)
            except ClientError as error:
                self._outcome.failures.append(str(error))
                producer = self._producer()  # one that gave a batch up may not go on
                continue
            self._outcome.acknowledged.update(zip(numbers, places, strict=True))
            self._progress.grow()

    def _send_batch(self, producer: Producer, first: int) -> list[Place]:
        records = numbered(BATCH, first, PARTITIONS)
        if self._sends_across_partitions:
            return producer.send(self._topic, records)
        places: list[Place] = [(0, 0)] * BATCH
        for partition in range(PARTITIONS):
            places[partition::PARTITIONS] = producer.send(self._topic, records[partition::PARTITIONS])
        return places

    def _producer(self) -> Producer:
        return self._client.producer(idempotent=True, acks="all")
