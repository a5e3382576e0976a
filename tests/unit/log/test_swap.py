"""The swap of a compacted segment, cut off by power failures at every point and in every order a disk may choose."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from penstock.disk import RealDisk
from penstock.errors import StorageFailed
from penstock.log.segment import file_name
from penstock.log.swap import recover_swaps, swap_in
from penstock.records.record import Record, encode_batch

DIRECTORY = Path("topic-0")
REPLACED = (0, 10, 20)
Files = dict[str, bytes]
Change = tuple[str, str | None]  # a rename, or a removal


def log_content(base: int, last: int, value: bytes) -> bytes:
    return bytes(encode_batch([Record(base, 0, b"k", value)], last_offset=last))


def segment(base: int, log: bytes, generation: str, suffix: str = "") -> Files:
    return {
        file_name(base, ".log" + suffix): log,
        file_name(base, ".index" + suffix): f"index {base} {generation}".encode(),
        file_name(base, ".timeindex" + suffix): f"times {base} {generation}".encode(),
    }


UNTOUCHED = segment(30, log_content(30, 39, b"untouched"), "old") | {"leader-epoch-checkpoint": b"0\n0\n"}
OLD: Files = UNTOUCHED.copy()
for base in REPLACED:
    OLD |= segment(base, log_content(base, base + 9, b"old"), "old")
NEW = UNTOUCHED | segment(0, log_content(0, 29, b"new"), "new")
CLEANED = segment(0, log_content(0, 29, b"new"), "new", ".cleaned")


class PoweredDisk:
    """A directory in memory that knows which of its changes have been synced, and in which stretches."""

    def __init__(self, files: Files) -> None:
        self.files = dict(files)
        self.stretches: list[list[Change]] = [[]]

    def list_names(self, path: Path) -> list[str]:
        assert path == DIRECTORY
        return list(self.files)

    def exists(self, path: Path) -> bool:
        return path.name in self.files

    def rename(self, old: Path, new: Path) -> None:
        self._change((old.name, new.name))

    def remove(self, path: Path) -> None:
        if path.name in self.files:
            self._change((path.name, None))

    def sync_directory(self, path: Path) -> None:
        assert path == DIRECTORY
        self.stretches.append([])

    def open(self, path: Path, *, create: bool = False) -> "MemoryFile":
        assert not create
        return MemoryFile(self.files[path.name])

    def _change(self, change: Change) -> None:
        self.stretches[-1].append(change)
        apply(self.files, change)


class MemoryFile:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def size(self) -> int:
        return len(self._content)

    def read(self, position: int, size: int) -> memoryview:
        return memoryview(self._content)[position : position + size]

    def close(self) -> None:
        pass


def apply(files: Files, change: Change) -> None:
    old, new = change
    content = files.pop(old, None)
    if content is not None and new is not None:
        files[new] = content


def power_failures(before: Files, disk: PoweredDisk) -> Iterator[tuple[int, Files]]:
    """Every directory a failure can leave: what was synced, and any choice of what was not yet."""
    for count, stretch in enumerate(disk.stretches):
        for choice in product((False, True), repeat=len(stretch)):
            files = dict(before)
            for change in (change for synced in disk.stretches[:count] for change in synced):
                apply(files, change)
            for change, happened in zip(stretch, choice, strict=True):
                if happened:
                    apply(files, change)
            yield count, files


def recover(files: Files) -> tuple[Files, PoweredDisk]:
    disk = PoweredDisk(files)
    recover_swaps(disk, DIRECTORY)  # pyright: ignore[reportArgumentType]
    return live(disk.files), disk


def live(files: Files) -> Files:
    """What counts after recovery; `.deleted` files are removed by whoever lists the segments next."""
    return {name: content for name, content in files.items() if not name.endswith(".deleted")}


def swapped() -> PoweredDisk:
    disk = PoweredDisk(OLD | CLEANED)
    swap_in(disk, DIRECTORY, 0, REPLACED)  # pyright: ignore[reportArgumentType]
    return disk


def test_a_swap_puts_the_new_segment_in_the_place_of_the_old_ones() -> None:
    disk = swapped()
    assert live(disk.files) == NEW
    assert {name for name in disk.files if name.endswith(".deleted")} == {
        file_name(base, suffix)
        for base in (10, 20)
        for suffix in (".log.deleted", ".index.deleted", ".timeindex.deleted")
    }
    assert disk.stretches[-1] == []


def test_a_power_failure_at_any_point_of_a_swap_leaves_the_old_log_or_the_new() -> None:
    outcomes: set[tuple[int, bool]] = set()
    for count, files in power_failures(OLD | CLEANED, swapped()):
        recovered, _ = recover(files)
        assert recovered in (OLD, NEW)
        outcomes.add((count, recovered == NEW))
    # Before the first sync it may go either way, after it only one.
    assert {(0, False), (0, True)} < outcomes
    assert all(is_new for count, is_new in outcomes if count > 0)


def test_a_power_failure_during_recovery_changes_nothing_about_its_outcome() -> None:
    for _, files in power_failures(OLD | CLEANED, swapped()):
        expected, recovery = recover(files)
        for _, again in power_failures(files, recovery):
            assert recover(again)[0] == expected


def test_a_compaction_that_never_got_to_its_swap_leaves_no_trace() -> None:
    assert recover(OLD | CLEANED)[0] == OLD


def test_the_files_of_a_later_group_do_not_undo_the_swap_of_an_earlier_one() -> None:
    later = segment(30, log_content(30, 39, b"new"), "new", ".cleaned")
    committed = OLD | segment(0, log_content(0, 29, b"new"), "new", ".swap") | later
    assert recover(committed)[0] == NEW


def test_a_swapped_segment_that_is_empty_replaces_only_itself() -> None:
    committed = OLD | {file_name(0, ".log.swap"): b""}
    recovered, _ = recover(committed)
    assert recovered[file_name(0, ".log")] == b""
    assert file_name(10, ".log") in recovered


def test_a_swapped_segment_that_the_disk_has_damaged_is_not_put_in_place() -> None:
    for damage in (log_content(0, 29, b"new")[:-1], b"x" * 100, log_content(0, 29, b"new")[:30]):
        with pytest.raises(StorageFailed):
            recover(OLD | {file_name(0, ".log.swap"): damage})


def test_without_leftovers_recovery_asks_nothing_of_the_disk() -> None:
    _, disk = recover(OLD)
    assert disk.stretches == [[]]


def test_a_swap_and_a_recovery_on_a_real_disk(tmp_path: Path) -> None:
    disk = RealDisk()

    def write(files: Files) -> Path:
        directory = tmp_path / str(len(list(tmp_path.iterdir())))
        directory.mkdir()
        for name, content in files.items():
            (directory / name).write_bytes(content)
        return directory

    def read(directory: Path) -> Files:
        return live({path.name: path.read_bytes() for path in directory.iterdir()})

    directory = write(OLD | CLEANED)
    swap_in(disk, directory, 0, REPLACED)
    assert read(directory) == NEW
    directory = write(OLD | segment(0, log_content(0, 29, b"new"), "new", ".swap"))
    recover_swaps(disk, directory)
    assert read(directory) == NEW
    directory = write(OLD | CLEANED)
    recover_swaps(disk, directory)
    assert read(directory) == OLD
