"""`penstock archive run --follow` as a process: ended by Ctrl-C, killed, and gone on with; every record once."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from helpers import Row, Topics, wait_until
from pyspark.sql import SparkSession
from standalone import end_with_owner
from typer.testing import CliRunner

from penstock.cli.archive import app as archive_app

ROWS = 6000
# So few that batches are under way whenever a signal comes.
BATCH_ROWS = 40
DEADLINE_S = 120.0


class Following:
    """The command, in a session of its own, so that Ctrl-C is what a terminal makes of it: sent to all of the group."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.main", "archive", *arguments, "--follow", "--json"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=end_with_owner,
            )

    def said(self) -> list[dict[str, Any]]:
        """Whole lines only; the last may be half written."""
        return [json.loads(line) for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def wait_for_batches(self, count: int) -> None:
        def done() -> bool:
            assert self.process.poll() is None, f"ended too early: {self._err.read_text()[-3000:]}"
            return len(self.said()) >= count

        wait_until(done, f"{count} batches", DEADLINE_S)

    def signal(self, number: signal.Signals) -> int:
        """The exit code it ends with."""
        os.killpg(self.process.pid, number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def following(arguments: list[str], folder: Path) -> Iterator[Following]:
    process = Following(arguments, folder)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.signal(signal.SIGKILL)


@pytest.mark.timeout(300)
def test_an_archive_that_is_interrupted_killed_and_run_again_holds_every_record_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, table = topics.make(partitions=2), tmp_path / "table"
    topics.produce(topic, [Row(b"%06d" % number, partition=number % 2) for number in range(ROWS)])
    arguments = ["run", "-b", topics.bootstrap, "-t", topic, "--table", str(table)]
    small = [*arguments, "--batch-rows", str(BATCH_ROWS), "--every", "0 seconds", "--master", "local[2]"]

    with following(small, tmp_path / "interrupted") as archive:
        archive.wait_for_batches(3)
        assert archive.signal(signal.SIGINT) == 0
    *batches, end = archive.said()
    assert end["done"]
    assert end["rows_total"] == sum(one["rows"] for one in batches)
    held = len(stored(table))
    # What it has said is in the table; a batch that it was at may be too, and nobody has been told.
    assert end["rows_total"] <= held < ROWS

    with following(small, tmp_path / "killed") as archive:
        archive.wait_for_batches(5)
        assert archive.signal(signal.SIGKILL) == -signal.SIGKILL
    assert not any(one["skipped"] for one in archive.said()[1:])
    assert held < len(stored(table)) < ROWS

    done = CliRunner().invoke(archive_app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    assert Counter(stored(table)) == Counter((number % 2, number // 2, b"%06d" % number) for number in range(ROWS))


def stored(table: Path) -> list[tuple[int, int, bytes]]:
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["partition", "offset", "value"])
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
