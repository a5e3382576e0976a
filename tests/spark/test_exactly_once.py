"""A driver killed ten times in the middle of its batches: the target topic and the Delta table hold every row once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from exactly_once_driver import ROWS_PER_BATCH
from helpers import Row, Topics

from penstock.spark.sink.marker import PARTITIONS, QUERY_MARKERS
from penstock.testing.embedded import EmbeddedBroker

KILLS = 10
SEED = 20261115
BATCHES = 45
DEADLINE_S = 300.0
DRIVER = Path(__file__).with_name("exactly_once_driver.py")


class Driver:
    """A process, its JVM and their Python workers: one group, so that all of it can die at once."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._log = log
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
            start_new_session=True,
        )

    def begin(self) -> None:
        assert self.process.stdin is not None
        assert self._line() == "ready\n", self._log.read_text()[-3000:]
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def wait_done(self) -> None:
        assert self._line() == "done\n", self._log.read_text()[-3000:]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE_S)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


class Eyes:
    """What can be seen of a batch from outside: rows and markers in the log, files in the checkpoint."""

    def __init__(self, bootstrap: str, target: str, checkpoint: Path) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "eyes", "isolation.level": "read_uncommitted"}
        )
        self._target, self._checkpoint = target, checkpoint
        self._known: frozenset[str] = frozenset()

    def close(self) -> None:
        self._consumer.close()

    def rows(self) -> int:
        return self._end(self._target, 2)

    def markers(self) -> int:
        return self._end(QUERY_MARKERS.name, PARTITIONS)

    def batches_begun(self) -> int:
        return self._files("offsets")

    def batches_ended(self) -> int:
        return self._files("commits")

    def _end(self, topic: str, partitions: int) -> int:
        if topic not in self._known:
            self._known = frozenset(self._consumer.list_topics(timeout=DEADLINE_S).topics)
            if topic not in self._known:
                return 0
        ends = [self._consumer.get_watermark_offsets(TopicPartition(topic, at), DEADLINE_S) for at in range(partitions)]
        return sum(end for _, end in ends)

    def _files(self, folder: str) -> int:
        path = self._checkpoint / folder
        return sum(name.isdecimal() for name in os.listdir(path)) if path.exists() else 0


@contextmanager
def drivers(*arguments: str, log: Path) -> Iterator[Callable[[], Driver]]:
    """One after the other; the next is getting ready while one runs. None outlives the test."""
    started = [Driver(*arguments, log=log)]

    def another() -> Driver:
        started.append(Driver(*arguments, log=log))
        started[-2].begin()
        return started[-2]

    try:
        yield another
    finally:
        for driver in started:
            if not driver.has_ended:
                driver.kill()


@pytest.mark.timeout(900)
def test_a_driver_killed_ten_times_in_the_middle_of_a_batch_writes_every_row_once(
    broker: EmbeddedBroker, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.make(partitions=2), topics.make(partitions=2)
    rows = [f"row-{number:06}" for number in range(ROWS_PER_BATCH * BATCHES)]
    topics.produce(source, [Row(row.encode(), row[-3:].encode(), number % 2) for number, row in enumerate(rows)])
    checkpoint, dice = tmp_path / "checkpoint", random.Random(SEED)
    eyes = Eyes(broker.bootstrap, target, checkpoint)
    seen: Counter[str] = Counter()
    table = tmp_path / "table"
    arguments = (broker.bootstrap, source, target, str(table), str(checkpoint))
    with closing(eyes), drivers(*arguments, log=tmp_path / "drivers.log") as next_driver:
        for number in range(KILLS):
            signs = (eyes.rows, eyes.markers, eyes.batches_begun, eyes.batches_ended)
            # Each sign at least twice, in an order by the seed; how many steps past the first is by the seed too.
            sign = signs[number % 4] if number < 8 else dice.choice(signs)
            before = sign()
            wanted = before + (dice.randrange(1, ROWS_PER_BATCH * 2) if sign == eyes.rows else dice.randrange(1, 4))
            driver = next_driver()
            deadline = time.monotonic() + DEADLINE_S
            while sign() < wanted:
                assert not driver.has_ended, (tmp_path / "drivers.log").read_text()[-3000:]
                assert time.monotonic() < deadline, f"{sign.__name__} stays at {sign()}, {wanted} was waited for"
                # Looked at often, but the cores are the driver's.
                time.sleep(0.003)
            driver.kill()
            seen[sign.__name__] += 1
        assert eyes.batches_ended() < BATCHES, "there was nothing left to do when the last one was killed"
        last = next_driver()
        last.wait_done()
    assert sum(seen.values()) == KILLS
    check_each_once(rows, topics.values(target))
    check_each_once(rows, DeltaTable(str(table)).to_pyarrow_table()["value"].to_pylist())


def check_each_once(rows: list[str], values: list[bytes | None]) -> None:
    written = Counter((value or b"").decode() for value in values)
    doubled = [row for row, times in written.items() if times > 1]
    missing = [row for row in rows if row not in written]
    assert (len(written), doubled[:5], missing[:5]) == (len(rows), [], [])
