"""What scenarios see of a client, whichever it is: producers, consumers, and administration, at one broker.

Called by the tests, through the fixture `client`. Waits have deadlines and no test sleeps.
"""

import itertools
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from driver import Driver, Event

WAIT_DEADLINE_S = 45.0

TopicPartition = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = 0
    offset: int | None = None

    def as_sent(self) -> dict[str, Any]:
        return {
            "value": _encoded(self.value),
            "key": _encoded(self.key),
            "headers": [[name, _encoded(value)] for name, value in self.headers],
            "timestamp": self.timestamp,
            "partition": self.partition,
        }


class Producer:
    def __init__(self, driver: Driver, name: str) -> None:
        self._driver = driver
        self._name = name

    def send(self, topic: str, records: Iterable[Record]) -> list[tuple[int, int]]:
        """Partition and offset of each record, once all are acknowledged."""
        answers = self.begin(topic, records).result(WAIT_DEADLINE_S)
        return [(partition, offset) for partition, offset in answers]

    def begin(self, topic: str, records: Iterable[Record]) -> "Future[Any]":
        """Send, and do not wait."""
        sent = [record.as_sent() for record in records]
        return self._driver.begin("send", producer=self._name, topic=topic, records=sent)

    def begin_transaction(self) -> None:
        self._driver.call("begin_transaction", producer=self._name)

    def send_offsets(self, consumer: "Consumer", group: str, offsets: dict[TopicPartition, int]) -> None:
        """Take the offsets that a member of a group has reached into the open transaction."""
        places = [[topic, partition, offset] for (topic, partition), offset in offsets.items()]
        self._driver.call("send_offsets", producer=self._name, consumer=consumer.name, group=group, offsets=places)

    def commit_transaction(self) -> None:
        self.begin_end(is_commit=True).result(WAIT_DEADLINE_S)

    def abort_transaction(self) -> None:
        self.begin_end(is_commit=False).result(WAIT_DEADLINE_S)

    def begin_end(self, *, is_commit: bool) -> "Future[Any]":
        """End the open transaction, and do not wait."""
        return self._driver.begin("end_transaction", producer=self._name, commit=is_commit)

    def close(self) -> None:
        self._driver.call("close_producer", producer=self._name)


class Consumer:
    """A consumer that polls by itself, in its driver, and tells what it is given."""

    def __init__(self, driver: Driver, name: str, changed: threading.Condition) -> None:
        self.records: list[tuple[str, Record]] = []
        self.assigned: set[TopicPartition] = set()
        self.revoked: list[TopicPartition] = []  # everything ever taken away, in order
        self.failure: str | None = None
        self.name = name
        self._driver = driver
        self._changed = changed
        driver.listen(name, self._hear)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for _, record in self.records]

    def wait_for_records(self, count: int) -> list[Record]:
        """The first `count` records; fails if more than that have come."""
        self.wait_until(lambda: len(self.records) >= count, f"{count} records")
        assert len(self.records) == count, f"{len(self.records)} records where {count} were sent"
        return [record for _, record in self.records]

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        with self._changed:
            met = self._changed.wait_for(lambda: holds() or self.failure is not None, WAIT_DEADLINE_S)
            assert self.failure is None or holds(), self.failure
            assert met, f"waited in vain for {what}: {len(self.records)} records, owns {sorted(self.assigned)}"

    def commit(self) -> None:
        """Commit what has been told so far."""
        self._driver.call("commit", consumer=self.name)

    def close(self) -> None:
        self._driver.call("close_consumer", consumer=self.name)

    def _hear(self, event: Event) -> None:
        with self._changed:
            for topic, partition in event.get("revoked", ()):
                self.assigned.discard((topic, partition))
                self.revoked.append((topic, partition))
            self.assigned.update((topic, partition) for topic, partition in event.get("assigned", ()))
            self.records.extend(_told(told) for told in event.get("records", ()))
            self.failure = event.get("failed", self.failure)
            self._changed.notify_all()


class Client:
    """One client library, pointed at one broker."""

    def __init__(self, driver: Driver, bootstrap: str) -> None:
        self._driver = driver
        self._bootstrap = bootstrap
        self._changed = threading.Condition()  # one for all consumers, so that a wait may look at several

    def producer(self, **settings: Any) -> Producer:
        """Settings: compression, acks, idempotent, transactional_id, batch_records, transaction_timeout_ms."""
        name = f"p{next(_numbers)}"
        self._driver.call("open_producer", producer=name, bootstrap=self._bootstrap, **settings)
        return Producer(self._driver, name)

    def produce(self, topic: str, records: Iterable[Record], **settings: Any) -> list[tuple[int, int]]:
        producer = self.producer(**settings)
        acknowledged = producer.send(topic, records)
        producer.close()
        return acknowledged

    def member(self, group: str, *topics: str, **settings: Any) -> Consumer:
        """A consumer in a group. Settings: strategy, instance_id, session_timeout_ms, reset, isolation, protocol."""
        return self._consumer(group=group, topics=topics, **settings)

    def reader(self, topic: str, start: Any, partition: int = 0, **settings: Any) -> Consumer:
        """A consumer of one partition, positioned: an offset, "beginning", "end", or {"time": milliseconds}."""
        return self._consumer(assign={"topic": topic, "partition": partition, "start": start}, **settings)

    def read(
        self, topic: str, count: int, start: Any = "beginning", partition: int = 0, **settings: Any
    ) -> list[Record]:
        reader = self.reader(topic, start, partition, **settings)
        records = reader.wait_for_records(count)
        reader.close()
        return records

    def admin(self, do: str, **arguments: Any) -> Any:
        return self._driver.call(do, bootstrap=self._bootstrap, **arguments)

    def create_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Settings of the topic with underscores for dots."""
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        self.admin("create_topic", topic=topic, partitions=partitions, configs=dotted)

    def close(self) -> None:
        self._driver.call("close_all")

    def _consumer(self, **settings: Any) -> Consumer:
        name = f"c{next(_numbers)}"
        consumer = Consumer(self._driver, name, self._changed)  # listens before there is anything to hear
        self._driver.call("open_consumer", consumer=name, bootstrap=self._bootstrap, **settings)
        return consumer


def numbered(count: int, start: int = 0, partitions: int = 1) -> list[Record]:
    """Records whose values are numbers, dealt to partitions in turn."""
    return [Record(b"%d" % number, partition=number % partitions) for number in range(start, start + count)]


def sorted_values(*consumers: Consumer) -> list[int]:
    """The numbers that have come to any of them, duplicates and all."""
    return sorted(int(value or b"-1") for consumer in consumers for value in consumer.values)


def wait_until_shared(members: Sequence[Consumer], partitions: set[TopicPartition]) -> None:
    """Return once the members own the partitions between them, each at least one and none twice."""

    def is_shared() -> bool:
        owned = [member.assigned for member in members]
        return all(owned) and sum(map(len, owned)) == len(partitions) and set().union(*owned) == partitions

    members[0].wait_until(is_shared, f"{len(members)} members to share {len(partitions)} partitions")


def partitions_of(topic: str, count: int) -> set[TopicPartition]:
    return {(topic, partition) for partition in range(count)}


def _told(told: Sequence[Any]) -> tuple[str, Record]:
    topic, partition, offset, timestamp, key, value, headers = told
    decoded = tuple((name, _decoded(header)) for name, header in headers)
    return topic, Record(_decoded(value), _decoded(key), decoded, timestamp, partition, offset)


def _encoded(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)
