"""Archive and replay without Spark: which checkpoint is gone on from, who may run, which files are read, how fast."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock.cli.archive import app
from penstock.model import TopicPartition
from penstock.spark import archive_lock, replay
from penstock.spark.archive import Archive, lock_paths
from penstock.spark.archive_checkpoint import Chosen, choose_checkpoint, is_behind
from penstock.spark.archive_lock import ArchiveLock, ArchiveRunning
from penstock.spark.offsets import Position
from penstock.spark.replay import Replay, days_wanted
from penstock.spark.replay_pace import paced
from penstock.spark.tables.files import TableFiles
from penstock.spark.tables.markers import Writers

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class World:
    """A table and the checkpoints of those who write to it, as far as the choice looks at them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: str | None = None
        self.stored: dict[str, int] = {}
        self.held: dict[TopicPartition, int] = {}
        self.reads = 0

    def choose(self, checkpoint: str) -> Chosen:
        return choose_checkpoint(str(self.folder / checkpoint), self.writers, self.read)

    def writers(self, name: str) -> Writers:
        return Writers(self.last, self.stored.get(name))

    def read(self) -> dict[TopicPartition, int]:
        self.reads += 1
        return self.held

    def run(self, chosen: Chosen, batch: int, *, is_stored: bool = True, is_done: bool = True, **ends: int) -> None:
        """A batch as Spark goes about it: planned, stored in the table, done."""
        offsets = {TopicPartition(topic, 0): end for topic, end in ends.items()}
        folder = Path(chosen.folder)
        for log in ("offsets", "commits"):
            (folder / log).mkdir(exist_ok=True)
        line = json.dumps(Position(offsets).to_json())
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{line}\n")
        if is_stored:
            self.last, self.stored[chosen.name] = chosen.name, batch
            self.held |= offsets
        if is_done:
            (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_a_topic_archived_alone_then_with_another_then_alone_goes_on_behind_the_table(tmp_path: Path) -> None:
    world = World(tmp_path)
    alone = world.choose("a")
    assert alone.is_new
    world.run(alone, 0, a=10)
    assert world.choose("a") == alone._replace(is_new=False)
    both = world.choose("a,b")
    world.run(both, 0, a=20, b=5)
    # The checkpoint says 10, the table holds 20.
    again = world.choose("a")
    assert again.is_new
    assert again.name not in (alone.name, both.name)
    world.run(again, 0, a=30)
    assert world.choose("a") == again._replace(is_new=False)
    assert world.choose("a,b").is_new


def test_whoever_wrote_last_goes_on_without_reading_the_table(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.choose("x")
    # Spark has purged the entries before this one.
    world.run(first, 150, a=10)
    assert world.choose("x") == first._replace(is_new=False)
    assert world.reads == 0


def test_a_batch_that_was_planned_and_never_stored_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.choose("x")
    world.run(first, 0, a=10)
    world.run(first, 1, a=20, is_stored=False, is_done=False)
    world.run(world.choose("y"), 0, a=20)
    # Spark would run batch 1 again, and its rows are there.
    assert world.choose("x").is_new


def test_a_batch_that_the_table_has_and_spark_not_yet_counts(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.choose("x")
    world.run(first, 0, a=10)
    world.run(first, 1, a=20, is_done=False)
    world.run(world.choose("y"), 0, b=5)
    world.held = {A: 20}
    assert world.choose("x") == first._replace(is_new=False)


def test_a_checkpoint_is_behind_by_one_record() -> None:
    assert not is_behind({A: 10}, {A: 10})
    assert not is_behind({A: 10, B: 3}, {A: 9})
    assert is_behind({A: 10}, {A: 11})
    assert is_behind({A: 10}, {A: 10, B: 1})


def test_topics_share_no_checkpoint_with_others_whose_names_read_alike() -> None:
    def folder(*topics: str) -> str:
        return Archive(topics, "/table", {}).checkpoint_folder

    assert folder("a", "b") != folder("a-b")
    assert folder("a", "b") == folder("b", "a")
    assert len(Path(folder(*(f"{number:0200d}" for number in range(3)))).name) < 255


def test_one_run_at_a_time_archives_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_lock, "PATIENCE_S", 0.1)
    table = str(tmp_path / "table")
    running = ArchiveLock(lock_paths(Archive(("a", "b", "a"), table, {})))
    with pytest.raises(ArchiveRunning, match="another archive of the same topic is running"):
        ArchiveLock(lock_paths(Archive(("b",), table, {}, checkpoint=str(tmp_path / "x"))))
    ArchiveLock(lock_paths(Archive(("c",), table, {}))).release()
    running.release()
    ArchiveLock(lock_paths(Archive(("b",), table, {}))).release()


def test_a_vacuum_below_an_hour_needs_force(tmp_path: Path) -> None:
    asked = ["compact", "--table", str(tmp_path / "none"), "--vacuum-hours", "0.5"]
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code == 2
    assert "--force" in refused.output
    forced = CliRunner().invoke(app, [*asked, "--force"])
    assert forced.exit_code == 1


@pytest.mark.parametrize(
    ("times", "days"),
    [
        ({}, ["0001-01-01", "2024-05-17", "9999-12-31"]),
        ({"begin_ms": 19_860 * 86_400_000}, ["2024-05-17", "9999-12-31"]),
        ({"until_ms": 19_860 * 86_400_000}, ["0001-01-01", "2024-05-17"]),
        ({"begin_ms": 1 << 60}, ["9999-12-31"]),
    ],
)
def test_a_replay_opens_the_days_it_needs(times: dict[str, Any], days: list[str]) -> None:
    wanted = days_wanted(Replay("t", {}, table="x", **times))
    assert [day for day in ("0001-01-01", "2024-05-17", "9999-12-31") if wanted({"day": day})] == days


def test_time_in_which_no_row_came_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    batch = pa.RecordBatch.from_pydict({"id": list(range(100))})

    def late(*pauses: float) -> Any:
        for pause in pauses:
            now[0] += pause
            yield batch

    times = [now[0] for _ in paced(100)(late(60, 60))]
    # A minute until the first row and one in between: each hundred takes its second all the same.
    assert times[0] == pytest.approx(160.1)
    assert times[9] == pytest.approx(161)
    assert times[-1] - times[9] == pytest.approx(60.9)


def test_a_table_that_is_no_archive_is_read_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found(names: list[str]) -> Callable[..., Any]:
        return lambda *_: TableFiles(pa.schema([(name, pa.string()) for name in names]), ("day",), [])

    asked = Replay("t", {}, table=str(tmp_path), begin_ms=0)
    monkeypatch.setattr(replay, "list_files", found(["value", "timestamp", "day"]))
    assert replay.files_wanted(asked) is None
    monkeypatch.setattr(replay, "list_files", found(sorted(replay.ARCHIVE_COLUMNS)))
    assert replay.files_wanted(asked) is not None
