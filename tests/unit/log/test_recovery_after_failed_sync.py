"""Opening a log after a sync that failed: what may be in the page cache alone is written again, and no more."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.loop import World
from tests.simulation.node_disk import NodeDisk
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import AT, TOPIC_ID, all_values, append, open_at
from tests.unit.log.recovering import BATCH, SEGMENT, fill, log_file

from penstock.disk import RealDisk
from penstock.log.recovery import REWRITE_BYTES_MAX, SNAPSHOT_SUFFIX
from penstock.log.topic_id import read_topic_id, sync_topic_id


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    yield world
    world.close()


@pytest.mark.parametrize("synced", [0, 2, 5])
def test_what_a_failed_sync_left_to_the_page_cache_alone_is_on_the_disk_once_a_log_is_open(
    world: World, synced: int
) -> None:
    root = Path("/data")
    for seed in range(10):
        disk = NodeDisk(world, seed, root)
        log = open_at(root / str(AT), disk=disk, segment_bytes=SEGMENT)
        values = [f"{number:04}".ljust(40, "x") for number in range(20)]
        for number in range(10):
            if number == synced > 0:
                for segment in log.segments:
                    segment.file.sync()
                sync_topic_id(disk, log.directory)
            append(log, *values[number * 2 : number * 2 + 2])
        disk.sync_directory(log.directory)
        for parent in (root, root.parent):
            disk.sync_directory(parent)
        disk.syncs_failing = len(log.segments) + 1
        for segment in log.segments:
            with pytest.raises(OSError, match="Input/output"):
                segment.file.sync()
        if not synced:
            with pytest.raises(OSError, match="Input/output"):
                sync_topic_id(disk, log.directory)
        disk.syncs_failing = 0
        # The process is started again, the machine was not.
        again = open_at(log.directory, disk=disk, recovery_point=synced * 2, segment_bytes=SEGMENT)
        assert again.durable_offset == 20
        disk.power_loss()
        assert all_values(open_at(log.directory, disk=disk, recovery_point=20, segment_bytes=SEGMENT)) == values
        assert read_topic_id(disk, log.directory) == TOPIC_ID


def test_only_what_lies_above_the_recovery_point_is_written_again(directory: Path) -> None:
    fill(directory, 10)
    for point, batches in ((0, 10), (6, 7), (8, 6), (20, 0)):
        for snapshot in directory.glob(f"*{SNAPSHOT_SUFFIX}"):
            snapshot.unlink()  # else the scan would begin at the point anyway
        before = {path: path.read_bytes() for path in directory.glob("*.log")}
        acts: list[Act] = []
        open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), recovery_point=point, segment_bytes=SEGMENT)
        written = [act.size for act in acts if act.kind == "write" and act.path.suffix == ".log"]
        assert sum(written) == batches * BATCH
        assert {path: path.read_bytes() for path in directory.glob("*.log")} == before


def test_a_large_batch_is_written_again_in_pieces_before_its_file_is_synced(directory: Path) -> None:
    log = open_at(directory)
    append(log, os.urandom(5 << 18).hex())
    log.close()
    content = log_file(directory).read_bytes()
    acts: list[Act] = []
    open_at(directory, disk=WatchedDisk(RealDisk(), acts.append))
    effects = [act for act in acts if act.kind in ("write", "sync") and act.path.suffix == ".log"]
    assert [act.kind for act in effects] == ["write", "write", "write", "sync"]
    assert max(act.size for act in effects) == REWRITE_BYTES_MAX
    assert log_file(directory).read_bytes() == content
