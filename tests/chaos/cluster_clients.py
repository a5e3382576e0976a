"""The stock clients that load a cluster while it is mistreated, each a thread that remembers what it was told.

Used by cluster_load, in a process of its own. All of them are librdkafka's; none gives up, and an outcome they were
not told is kept as unknown.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cluster_checkers import UNTOLD, Commit, Leg, Outcome, Read, Value
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

QUEUE, ACCOUNTS = "queue", "accounts"
QUEUE_PARTITIONS = 3
ACCOUNT_COUNT = 6
OPENING_BALANCE = 1000
ABORTED_SHARE = 0.1
VALUE_BYTES = 512
OUTSTANDING_MAX = 2000
CALL_S = 20.0
# Clients go on at once when a broker is back, and give a silent one up before the run is over.
QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 250,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.interval.ms": 2000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


class Ack(NamedTuple):
    value: Value
    partition: int
    offset: int
    sent_at: float  # time.monotonic(), the same clock for every process of this machine
    acked_at: float


def encode_value(value: Value) -> bytes:
    return f"{value.producer} {value.serial} ".encode().ljust(VALUE_BYTES, b".")


def decode_value(content: bytes) -> Value:
    producer, serial, _ = content.split(b" ", 2)
    return Value(int(producer), int(serial))


class QueueProducer(threading.Thread):
    """Idempotent, acks=all; numbers its records and spreads them over the partitions in turn."""

    def __init__(self, bootstrap: str, number: int, rate: float, stopping: threading.Event) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self._brokers = bootstrap
        self.number = number
        self._rate = rate
        self._stopping = stopping
        self.serial = 0
        self.acked: list[Ack] = []
        self.unknown: list[str] = []
        self.fatal: str | None = None
        self._told_count = 0

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._brokers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 90_000,
                "request.timeout.ms": 5000,
                "socket.timeout.ms": 6000,
                "error_cb": self._on_error,
                **QUICK,
            }
        )
        began = time.monotonic()
        while not self._stopping.is_set() and self.fatal is None:
            due = int((time.monotonic() - began) * self._rate)
            while self.serial < due and self.serial - self._told_count < OUTSTANDING_MAX:
                self._send(producer)
            if self.serial < due:
                began += (due - self.serial) / self._rate  # what could not be sent in time is not made up for
            producer.poll(0.01)
        producer.flush(100)

    def _send(self, producer: Producer) -> None:
        value = Value(self.number, self.serial)
        sent_at = time.monotonic()

        def told(error: KafkaError | None, message: Message) -> None:
            self._told_count += 1
            if error is None:
                offset = message.offset()
                # A batch so old that the broker only knows it has it: safe, but where is not told.
                place = UNTOLD if offset is None or offset < 0 else offset
                self.acked.append(Ack(value, message.partition() or 0, place, sent_at, time.monotonic()))
            else:
                self.unknown.append(f"{value} {error.name()}")

        producer.produce(QUEUE, encode_value(value), partition=self.serial % QUEUE_PARTITIONS, on_delivery=told)
        self.serial += 1

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = f"producer {self.number}: {error.name()} {error.str()}"


class Transferrer(threading.Thread):
    """Moves money between two accounts in each transaction, and gives a tenth of them up."""

    def __init__(self, bootstrap: str, number: int, seed: int, stopping: threading.Event) -> None:
        super().__init__(name=f"transferrer-{number}", daemon=True)
        self._brokers = bootstrap
        self._stopping = stopping
        self._chance = random.Random(f"{seed} {number}")
        self.outcomes: dict[str, Outcome] = {}
        self.troubles: list[str] = []
        self._producer: Producer | None = None

    def run(self) -> None:
        serial = 0
        while not self._stopping.is_set():
            source, target = self._chance.sample(range(ACCOUNT_COUNT), 2)
            amount = self._chance.randint(1, 100)
            is_commit = self._chance.random() >= ABORTED_SHARE
            self.transfer(f"{self.name}-{serial}", {source: -amount, target: amount}, is_commit=is_commit)
            serial += 1

    def transfer(self, name: str, amounts: dict[int, int], *, is_commit: bool) -> bool:
        """One transaction; true if it is known to be committed."""
        try:
            producer = self._ready()
            producer.begin_transaction()
        except KafkaException as error:
            self._begin_anew(error)
            return False
        self.outcomes[name] = Outcome.ABORTED  # until we ask for more: nothing is committed that nobody asked for
        try:
            for account, amount in amounts.items():
                producer.produce(ACCOUNTS, json.dumps([name, len(amounts), amount]), partition=account)
            if is_commit:
                self.outcomes[name] = Outcome.UNKNOWN
                insist(lambda: producer.commit_transaction(CALL_S))
                self.outcomes[name] = Outcome.COMMITTED
            else:
                insist(lambda: producer.abort_transaction(CALL_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._abort(producer, name)
            else:
                self._begin_anew(error)
        return self.outcomes[name] is Outcome.COMMITTED

    def _abort(self, producer: Producer, name: str) -> None:
        try:
            insist(lambda: producer.abort_transaction(CALL_S))
            self.outcomes[name] = Outcome.ABORTED
        except KafkaException as error:
            self._begin_anew(error)

    def _ready(self) -> Producer:
        if self._producer is None:
            producer = Producer(
                {
                    "bootstrap.servers": self._brokers,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 20_000,
                    "linger.ms": 0,
                    "request.timeout.ms": 5000,
                    "socket.timeout.ms": 6000,
                    **QUICK,
                }
            )
            insist(lambda: producer.init_transactions(CALL_S))
            self._producer = producer
        return self._producer

    def _begin_anew(self, error: KafkaException) -> None:
        self.troubles.append(str(error))
        self._producer = None


class TailReader(threading.Thread):
    """Reads the queue as it grows, without a group, and keeps every record with its place."""

    def __init__(self, bootstrap: str, stopping: threading.Event) -> None:
        super().__init__(name="tail", daemon=True)
        self._stopping = stopping
        self.reads: list[Read] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "tail", "enable.auto.commit": False, **QUICK}
        )

    def run(self) -> None:
        self._consumer.assign([TopicPartition(QUEUE, partition, 0) for partition in range(QUEUE_PARTITIONS)])
        while not self._stopping.is_set():
            self.reads += [to_read(message) for message in self._consumer.consume(500, 0.3) if message.error() is None]
        self._consumer.close()


class Member(threading.Thread):
    """One member of a group: reads, commits what it has read, now and then leaves and comes back."""

    def __init__(self, bootstrap: str, group: "Group", number: int, seed: int, stopping: threading.Event) -> None:
        super().__init__(name=f"{group.name}-{number}", daemon=True)
        self._brokers = bootstrap
        self._group = group
        self._stopping = stopping
        self._chance = random.Random(f"{seed} {self.name}")

    def run(self) -> None:
        while not self._stopping.is_set():
            consumer = Consumer(
                {
                    "bootstrap.servers": self._brokers,
                    "group.id": self._group.name,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    **self._group.settings,
                    **QUICK,
                }
            )
            consumer.subscribe([QUEUE])
            leaves_at = time.monotonic() + self._chance.uniform(15, 40)
            while not self._stopping.is_set() and time.monotonic() < leaves_at:
                self._turn(consumer)
            consumer.close()

    def _turn(self, consumer: Consumer) -> None:
        reads = [to_read(message) for message in consumer.consume(500, 0.3) if message.error() is None]
        self._group.delivered.update(read.value for read in reads)
        ends = {read.partition: read.offset + 1 for read in reads}
        if not ends:
            return
        offsets = [TopicPartition(QUEUE, partition, end) for partition, end in ends.items()]
        # Kept before it is tried: whoever looks meanwhile may see it.
        attempts = [Commit(partition, end, False) for partition, end in ends.items()]
        self._group.attempts += attempts
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT):
                return
        self._group.settle(attempts)


class Group:
    """What a group's members did, and what was seen of its commits."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.settings = settings
        self.delivered: set[Value] = set()
        self.attempts: list[Commit] = []
        self.observed: list[tuple[int, int]] = []

    def settle(self, attempts: list[Commit]) -> None:
        self.attempts += [attempt._replace(is_certain=True) for attempt in attempts]
        for attempt in attempts:
            self.attempts.remove(attempt)


class CommitObserver(threading.Thread):
    """Asks again and again how far the groups have committed."""

    def __init__(self, bootstrap: str, groups: list[Group], stopping: threading.Event) -> None:
        super().__init__(name="observer", daemon=True)
        self._stopping = stopping
        self._groups = groups
        self._consumers = {
            group.name: Consumer({"bootstrap.servers": bootstrap, "group.id": group.name, **QUICK}) for group in groups
        }

    def run(self) -> None:
        wanted = [TopicPartition(QUEUE, partition) for partition in range(QUEUE_PARTITIONS)]
        while not self._stopping.wait(0.5):
            for group in self._groups:
                try:
                    found = self._consumers[group.name].committed(wanted, 3.0)
                except KafkaException:
                    continue
                group.observed += [(part.partition, part.offset) for part in found if part.offset >= 0]


def to_read(message: Message) -> Read:
    return Read(message.partition() or 0, message.offset() or 0, decode_value(message.value() or b""))


def to_leg(message: Message) -> Leg:
    name, legs, amount = json.loads(message.value() or b"")
    return Leg(name, legs, message.partition() or 0, amount)


def insist(act: Callable[[], object], deadline_s: float = 120.0) -> None:
    """Do it until it is done: a call that ran out of time may be made again, and librdkafka says so."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            act()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return
