"""Producers when a log is opened: from the snapshot at or below the recovery point, and from what follows it."""

import os
from pathlib import Path

from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import append, open_at
from tests.unit.log.recovering import BATCH, fill, log_file

from penstock.disk import RealDisk
from penstock.log.recovery import SNAPSHOT_SUFFIX, write_snapshot
from penstock.model import Offset


def test_producers_are_rebuilt_from_the_snapshot_and_what_follows_it(directory: Path) -> None:
    values = fill(directory, 10, producer=7)
    log = open_at(directory)
    write_snapshot(RealDisk(), directory, Offset(20), log.producers.encode())
    append(log, "u", "v", producer=7, sequence=20)
    log.close()
    again = open_at(directory, recovery_point=20)
    assert append(again, *values[18:20], producer=7, sequence=18)[0] == 18
    assert append(again, "u", "v", producer=7, sequence=20) == (20, 22, True)
    assert append(again, "w", "x", producer=7, sequence=22) == (22, 24, False)


def test_a_snapshot_of_records_above_the_recovery_point_is_not_taken(directory: Path) -> None:
    fill(directory, 4, producer=7)
    log = open_at(directory)
    write_snapshot(RealDisk(), directory, Offset(8), log.producers.encode())
    os.truncate(log_file(directory), 3 * BATCH)
    again = open_at(directory)
    assert not append(again, "a", "b", producer=7, sequence=6).is_duplicate


def test_a_checkpoint_that_was_interrupted_leaves_the_snapshot_that_its_recovery_point_needs(
    directory: Path,
) -> None:
    fill(directory, 6, producer=7)
    log = open_at(directory)
    for path in directory.glob(f"*{SNAPSHOT_SUFFIX}"):
        path.unlink()
    for offset in (4, 8, 12):  # the recovery point of the last one was never written
        write_snapshot(RealDisk(), directory, Offset(offset), log.producers.encode())
    assert sorted(path.stem for path in directory.glob(f"*{SNAPSHOT_SUFFIX}")) == [f"{8:020d}", f"{12:020d}"]
    acts: list[Act] = []
    open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), recovery_point=8)
    assert not any(act.path.name == f"{12:020d}{SNAPSHOT_SUFFIX}" and act.kind == "read" for act in acts)
    assert (directory / f"{8:020d}{SNAPSHOT_SUFFIX}").exists()


def test_a_recovery_leaves_a_snapshot_for_the_next_start(directory: Path) -> None:
    fill(directory, 3, producer=7)
    open_at(directory)
    assert [path.stem for path in directory.glob(f"*{SNAPSHOT_SUFFIX}")] == [f"{6:020d}"]
