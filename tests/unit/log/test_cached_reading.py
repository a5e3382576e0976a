"""Reading on the event loop: only what is in memory; the rest is left to whoever may wait for the disk."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.simulation.watched_disk import Act, WatchedDisk
from tests.unit.log.making import fill, open_at, values_in

from penstock.disk import File, RealDisk
from penstock.model import Offset


class ColdFile:
    """A file none of which, or only the beginning of which, is in memory."""

    def __init__(self, file: File, warm: Callable[[], int]) -> None:
        self._file = file
        self._warm = warm
        self.write_at, self.sync, self.size = file.write_at, file.sync, file.size
        self.truncate, self.close, self.read = file.truncate, file.close, file.read

    def read_cached(self, position: int, size: int) -> memoryview | None:
        size = min(size, self._warm() - position)
        return self._file.read_cached(position, size) if size > 0 else None


class ColdDisk(RealDisk):
    def __init__(self) -> None:
        super().__init__()
        self.warm_bytes = 0

    def open(self, path: Path, *, create: bool = False) -> File:
        return ColdFile(super().open(path, create=create), lambda: self.warm_bytes)


@pytest.mark.parametrize("warm_bytes", [0, 30, 61, 100, 155, 156, 400, 1000])
def test_what_is_not_in_memory_is_left_to_whoever_may_wait(directory: Path, warm_bytes: int) -> None:
    disk = ColdDisk()
    disk.warm_bytes = 10**6
    log = open_at(directory, disk=disk, index_interval_bytes=100)
    values = fill(log, 10)
    disk.warm_bytes = warm_bytes
    for offset in range(0, 20, 2):
        for end in (20, 15):
            fast = log.read(Offset(offset), 300, Offset(end))
            slow = log.read(Offset(offset), 300, Offset(end), cached_only=False)
            assert slow is not None
            if offset < end - 1:
                assert values_in(slow)[0] == values[offset]
            # Less may be in memory than was asked for, but never nothing, and never something else.
            assert fast is None or (bytes(slow).startswith(bytes(fast)) and (len(fast) or not len(slow)))


def test_a_segment_that_was_never_read_is_not_opened_on_the_loop(directory: Path) -> None:
    log = open_at(directory, segment_bytes=700)
    values = fill(log, 10)
    log.close()
    acts: list[Act] = []
    again = open_at(directory, disk=WatchedDisk(RealDisk(), acts.append), segment_bytes=700)
    for segment in again.segments:
        segment.close()
        segment.drop_index_cache()
    acts.clear()
    assert again.read(Offset(0), 300, again.next_offset) is None
    assert acts == [], "opening files and reading indexes may wait for the disk"
    assert values_in(again.read(Offset(0), 300, again.next_offset, cached_only=False))[0] == values[0]
    assert values_in(again.read(Offset(0), 300, again.next_offset))[0] == values[0]
