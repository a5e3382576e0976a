"""The load of a chaos run: producers, transactions and groups in one process, until they are told to finish.

    python cluster_load.py BOOTSTRAP HISTORY RATE SEED

Started by cluster_run, which reads a line of JSON every half second (what has been done so far) and ends the load by
closing its input. Then everything is drained and read once more, and the history is written as a pickle.
"""

import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cluster_checkers import Commit, Leg, Outcome, Read, Value
from cluster_clients import (
    ACCOUNT_COUNT,
    ACCOUNTS,
    OPENING_BALANCE,
    QUEUE,
    QUEUE_PARTITIONS,
    QUICK,
    Ack,
    CommitObserver,
    Group,
    Member,
    QueueProducer,
    TailReader,
    Transferrer,
    to_leg,
    to_read,
)
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

PRODUCERS = 2
TRANSFERRERS = 2
MEMBERS = 2
DRAIN_DEADLINE_S = 120.0
T = TypeVar("T")


@dataclass(slots=True)
class History:
    """Everything the clients were told, for the checkers."""

    acked: list[Ack] = field(default_factory=list[Ack])
    sent: dict[int, int] = field(default_factory=dict[int, int])
    unknown: list[str] = field(default_factory=list[str])
    fatal: list[str] = field(default_factory=list[str])
    tail: list[Read] = field(default_factory=list[Read])
    final: list[Read] = field(default_factory=list[Read])
    again: list[Read] = field(default_factory=list[Read])
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    troubles: list[str] = field(default_factory=list[str])
    legs: list[Leg] = field(default_factory=list[Leg])
    delivered: dict[str, set[Value]] = field(default_factory=dict[str, set[Value]])
    attempts: dict[str, list[Commit]] = field(default_factory=dict[str, list[Commit]])
    observed: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, list[tuple[int, int]]])
    ends: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])


class Load:
    def __init__(self, bootstrap: str, rate: float, seed: int) -> None:
        self.bootstrap = bootstrap
        self._stopping_writers, self._stopping_readers = threading.Event(), threading.Event()
        self.producers = [
            QueueProducer(bootstrap, number, rate / PRODUCERS, self._stopping_writers) for number in range(PRODUCERS)
        ]
        self.transferrers = [
            Transferrer(bootstrap, number, seed, self._stopping_writers) for number in range(TRANSFERRERS)
        ]
        self.groups = [
            Group("classic", {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}),
            Group("modern", {"group.protocol": "consumer"}),
        ]
        self.tail = TailReader(bootstrap, self._stopping_readers)
        self._readers: list[threading.Thread] = [
            self.tail,
            CommitObserver(bootstrap, self.groups, self._stopping_readers),
            *(
                Member(bootstrap, group, number, seed, self._stopping_readers)
                for group in self.groups
                for number in range(MEMBERS)
            ),
        ]

    def begin(self) -> None:
        bank = self.transferrers[0]
        while not bank.transfer(
            f"opening-{time.monotonic()}", dict.fromkeys(range(ACCOUNT_COUNT), OPENING_BALANCE), is_commit=True
        ):
            pass
        for thread in (*self.producers, *self.transferrers, *self._readers):
            thread.start()

    def status(self) -> dict[str, Any]:
        outcomes = [outcome for one in self.transferrers for outcome in list(one.outcomes.values())]
        return {
            "acked": sum(len(producer.acked) for producer in self.producers),
            "newest": [producer.acked[-1].acked_at for producer in self.producers if producer.acked],
            "committed": outcomes.count(Outcome.COMMITTED),
            "delivered": {group.name: len(group.delivered) for group in self.groups},
        }

    def drain(self) -> History:
        """Writers end, readers catch up, everything is read twice from the start."""
        self._stopping_writers.set()
        for thread in (*self.producers, *self.transferrers):
            thread.join(DRAIN_DEADLINE_S)
        history = History()
        for producer in self.producers:
            history.acked += producer.acked
            history.sent[producer.number] = producer.serial
            history.unknown += producer.unknown
            history.fatal += [producer.fatal] if producer.fatal is not None else []
        acked = {ack.value for ack in history.acked}
        deadline = time.monotonic() + DRAIN_DEADLINE_S
        while time.monotonic() < deadline and not all(acked <= group.delivered for group in self.groups):
            time.sleep(0.2)
        self._stopping_readers.set()
        for thread in self._readers:
            thread.join(DRAIN_DEADLINE_S)
        for transferrer in self.transferrers:
            history.outcomes |= transferrer.outcomes
            history.troubles += transferrer.troubles
        history.tail = self.tail.reads
        history.final = self._read_all(QUEUE, QUEUE_PARTITIONS, to_read)
        history.again = self._read_all(QUEUE, QUEUE_PARTITIONS, to_read)
        history.legs = self._read_all(ACCOUNTS, ACCOUNT_COUNT, to_leg)
        for group in self.groups:
            history.delivered[group.name] = group.delivered
            history.attempts[group.name] = group.attempts
            history.observed[group.name] = group.observed
        history.ends = self._ends()
        return history

    def _read_all(self, topic: str, partitions: int, convert: Callable[[Message], T]) -> list[T]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "final",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                **QUICK,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[T] = []
        ended: set[int] = set()
        deadline = time.monotonic() + DRAIN_DEADLINE_S
        while len(ended) < partitions and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.5):
                error = message.error()
                if error is None:
                    found.append(convert(message))
                    # A reader may be told "the end" by a leader that was just elected; there was more.
                    ended.discard(message.partition() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
        consumer.close()
        return found

    def _ends(self) -> dict[str, tuple[int, int]]:
        """High watermark and last stable offset of every partition, once they meet or patience ends."""
        readers = {
            level: Consumer(
                {"bootstrap.servers": self.bootstrap, "group.id": "ends", "isolation.level": level, **QUICK}
            )
            for level in ("read_uncommitted", "read_committed")
        }
        names = [(QUEUE, index) for index in range(QUEUE_PARTITIONS)]
        names += [(ACCOUNTS, index) for index in range(ACCOUNT_COUNT)]
        ends: dict[str, tuple[int, int]] = {}
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            try:
                for topic, index in names:
                    high, stable = (
                        reader.get_watermark_offsets(TopicPartition(topic, index), 10.0)[1]
                        for reader in readers.values()
                    )
                    ends[f"{topic}-{index}"] = high, stable
            except KafkaException:
                continue
            if all(high == stable for high, stable in ends.values()):
                break
            time.sleep(0.5)
        for reader in readers.values():
            reader.close()
        return ends


class LoadProcess:
    """The other side of it: starts the process, knows how far it is, ends it and has its history."""

    def __init__(self, bootstrap: str, directory: Path, rate: float, seed: int) -> None:
        self._path = directory / "history.pickle"
        self._log = (directory / "load.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, __file__, bootstrap, str(self._path), str(rate), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.status: dict[str, Any] = {}
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.status = json.loads(line)

    @property
    def acked(self) -> int:
        return int(self.status.get("acked", 0))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def finish(self) -> History:
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(6 * DRAIN_DEADLINE_S)
        self._log.close()
        assert code == 0, f"the load ended with {code}: {Path(self._log.name).read_text()[-4000:]}"
        with self._path.open("rb") as file:
            return pickle.load(file)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def main(bootstrap: str, path: str, rate: str, seed: str) -> None:
    # Pickled under the name by which others import it.
    from cluster_load import Load as ImportableLoad

    load = ImportableLoad(bootstrap, float(rate), int(seed))
    load.begin()
    finished = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), finished.set()), daemon=True).start()
    while not finished.wait(0.5):
        sys.stdout.write(json.dumps(load.status()) + "\n")
        sys.stdout.flush()
    history = load.drain()
    with open(path, "wb") as file:
        pickle.dump(history, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
