"""A driver killed ten times in the middle of its batches: the target topic and the Delta table hold every row once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from deltalake import DeltaTable
from helpers import Row, Topics

from penstock.spark.sink.marker import PARTITIONS, QUERY_MARKERS
from penstock.testing.embedded import EmbeddedBroker

KILLS = 10
SEED = 20261115
# More than ten lives get done: the last one does the rest in one go.
BATCHES = 75
ROWS_PER_BATCH = 3000
DEADLINE_S = 300.0
DRIVER = Path(__file__).with_name("exactly_once_driver.py")


class Driver:
    """A process and its JVM: one group, so that both die at once.

    The daemons of Spark's Python workers leave the group, and end when they find the JVM gone: as on any machine.
    """

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

    def begin(self, rows_per_batch: int) -> None:
        assert self.process.stdin is not None
        assert self._line() == "ready\n", self._log.read_text()[-3000:]
        self.process.stdin.write(f"{rows_per_batch}\n")
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

    def __init__(self, topics: Topics, target: str, checkpoint: Path) -> None:
        self._admin = topics.admin
        self._target, self._checkpoint = target, checkpoint
        self._known: frozenset[str] = frozenset()

    def rows(self) -> int:
        return self._end(self._target, 2)

    def markers(self) -> int:
        return self._end(QUERY_MARKERS.name, PARTITIONS)

    def batches_begun(self) -> int:
        return files_of(self._checkpoint / "offsets")

    def batches_ended(self) -> int:
        return files_of(self._checkpoint / "commits")

    def _end(self, topic: str, partitions: int) -> int:
        """In one request for all partitions: the broker shares this process, and its time is the driver's."""
        if topic not in self._known:
            self._known = frozenset(self._admin.list_topics(timeout=DEADLINE_S).topics)
            if topic not in self._known:
                return 0
        asked = self._admin.list_offsets(
            {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
        )
        return sum(answer.result(DEADLINE_S).offset for answer in asked.values())


def files_of(folder: Path) -> int:
    return sum(name.isdecimal() for name in os.listdir(folder)) if folder.exists() else 0


@contextmanager
def drivers(*arguments: str, log: Path) -> Iterator[Callable[..., Driver]]:
    """One after the other; the next is getting ready while one runs. None outlives the test."""
    started = [Driver(*arguments, log=log)]

    def another(*, is_last: bool = False) -> Driver:
        current = started[-1]
        if not is_last:
            started.append(Driver(*arguments, log=log))
        current.begin(ROWS_PER_BATCH * (BATCHES if is_last else 1))
        return current

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
    eyes = Eyes(topics, target, checkpoint)
    seen: Counter[str] = Counter()
    table = tmp_path / "table"
    arguments = (broker.bootstrap, source, target, str(table), str(checkpoint))
    with drivers(*arguments, log=tmp_path / "drivers.log") as next_driver:
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
                # Looked at many times a batch, but the cores are the driver's.
                time.sleep(0.02)
            driver.kill()
            seen[sign.__name__] += 1
        for ended in (eyes.batches_ended(), files_of(tmp_path / "checkpoint-table" / "commits")):
            assert ended < BATCHES, "there was nothing left to do when the last one was killed"
        last = next_driver(is_last=True)
        last.wait_done()
    assert sum(seen.values()) == KILLS
    check_each_once(rows, topics.values(target))
    check_each_once(rows, DeltaTable(str(table)).to_pyarrow_table()["value"].to_pylist())


def check_each_once(rows: list[str], values: list[bytes | None]) -> None:
    written = Counter((value or b"").decode() for value in values)
    doubled = [row for row, times in written.items() if times > 1]
    missing = [row for row in rows if row not in written]
    assert (len(written), doubled[:5], missing[:5]) == (len(rows), [], [])
