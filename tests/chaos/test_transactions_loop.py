"""Programs that consume, transform and produce are killed and frozen anywhere: output is input, once, in order."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos.transform_worker import INPUT, OUTPUT, OWNS, STEPS, transformed

from penstock.testing import EmbeddedBroker
from penstock.testing.plugin import BrokerFactory

WORKER = Path(__file__).with_name("transform_worker.py")
DEADLINE_S = 60.0
PARTITIONS = 4
FEED_EVERY_S = 0.01


class Worker:
    """One worker, started again whenever it ends; its steps are counted over all its lives."""

    def __init__(self, bootstrap: str, name: str, *options: str) -> None:
        self._command = [sys.executable, str(WORKER), bootstrap, name, *options]
        self._changed = threading.Condition()
        self._is_wanted = True
        self.steps = 0
        self.lives = 0
        self.owned = 0  # partitions
        self.last = ""
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name=name)
        self._keeper.start()

    def wait_for_steps(self, more: int) -> None:
        wanted = self.steps + more
        self.wait_until(lambda: self.steps >= wanted)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, DEADLINE_S), f"after {self.steps} steps nothing more happens"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Steps still in the pipe of the dead are counted before its next life begins: no life is killed twice."""
        life = self.lives
        self.signal(signal.SIGKILL)
        self.wait_until(lambda: self.lives > life)

    def end(self) -> None:
        self._is_wanted = False
        self._process.kill()
        self._keeper.join(DEADLINE_S)

    def _keep(self) -> None:
        while True:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                with self._changed:
                    if line.startswith(OWNS):
                        self.owned = int(line.removeprefix(OWNS))
                    else:
                        self.steps += 1
                        self.last = line.strip()
                    self._changed.notify_all()
            self._process.stdout.close()
            self._process.wait()
            if not self._is_wanted:
                return
            with self._changed:
                self._process = self._start()
                self._changed.notify_all()

    def _start(self) -> "subprocess.Popen[str]":
        self.lives += 1
        return subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)


class Output:
    """A reader of committed records that fails at the first one that should not be there."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._partitions = partitions
        self._next = list(range(partitions))  # the number each partition has to bring next
        self._read = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(partitions)])

    def read_all(self, count: int) -> None:
        """Until so many have been read in all; and no more come in a last look behind them."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read < count:
            assert time.monotonic() < deadline, f"{count - self._read} records did not come"
            self.read_some(0.2)
        self.read_some(0.5)
        assert self._read == count
        self._consumer.close()

    def read_some(self, wait_s: float = 0.0) -> None:
        for message in self._consumer.consume(500, wait_s):
            error = message.error()
            if error is not None:
                assert error.retriable(), error
                continue
            partition = message.partition() or 0
            assert message.value() == transformed(b"%d" % self._next[partition])
            self._next[partition] += self._partitions
            self._read += 1


class Input(threading.Thread):
    """Numbers, dealt to the partitions in turn: as many as are asked for, or without end until it is stopped."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        super().__init__(name="input")
        self.count = 0
        self._partitions = partitions
        self._is_stopped = threading.Event()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(INPUT, partitions), NewTopic(OUTPUT, partitions)]).values():
            made.result(DEADLINE_S)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def add(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self._producer.produce(INPUT, b"%d" % number, partition=number % self._partitions)
        self.count += count
        assert self._producer.flush(DEADLINE_S) == 0

    def run(self) -> None:
        while not self._is_stopped.wait(FEED_EVERY_S):
            self.add(self._partitions)

    def stop(self) -> None:
        self._is_stopped.set()
        self.join(DEADLINE_S)


@pytest.fixture
def broker(penstock_broker_factory: BrokerFactory) -> EmbeddedBroker:
    return penstock_broker_factory(
        {
            "group.min.session.timeout.ms": "100",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
        }
    )


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    started: list[Worker] = []
    yield started
    for worker in started:
        worker.end()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_worker_killed_again_and_again_does_everything_once_and_in_order(
    broker: EmbeddedBroker, workers: list[Worker], seed: int
) -> None:
    kills, chance = 10, random.Random(seed)
    numbers = Input(broker.bootstrap, 1)
    numbers.add(400)
    output = Output(broker.bootstrap, 1)
    worker = Worker(broker.bootstrap, "transformer", "static")
    workers.append(worker)
    killed_after: set[str] = set()
    for _ in range(kills):
        # Somewhere after this step: the signal and the worker race.
        worker.wait_for_steps(chance.randint(1, 2 * len(STEPS)))
        killed_after.add(worker.last)
        worker.kill()
        output.read_some()
    output.read_all(numbers.count)
    assert worker.lives > kills
    assert len(killed_after) > 1, "killed in several states"


@pytest.mark.parametrize("seed", [4, 5])
def test_workers_that_take_over_from_each_other_do_everything_once_and_in_order(
    broker: EmbeddedBroker, workers: list[Worker], seed: int
) -> None:
    chance = random.Random(seed)
    numbers = Input(broker.bootstrap, PARTITIONS)
    output = Output(broker.bootstrap, PARTITIONS)
    workers += [Worker(broker.bootstrap, f"transformer-{number}") for number in range(2)]
    numbers.start()  # without end: there is always work for whoever takes over
    try:
        for number in range(6):
            victim, other = chance.sample(workers, 2)
            victim.wait_for_steps(chance.randint(1, 2 * len(STEPS)))
            if number % 2:
                victim.kill()
            else:
                # Frozen until the other has its partitions and works on them; then it wakes, and believes it owns them.
                victim.signal(signal.SIGSTOP)
                other.wait_until(lambda taker=other: taker.owned == PARTITIONS)
                other.wait_for_steps(2 * len(STEPS))
                victim.signal(signal.SIGCONT)
            output.read_some()
    finally:
        for worker in workers:
            worker.signal(signal.SIGCONT)
        numbers.stop()
    output.read_all(numbers.count)
