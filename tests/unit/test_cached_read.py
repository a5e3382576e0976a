"""Reads that fail instead of waiting for the disk, through Python and, for builds without them, through libc."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cached_read import ReadCached, find_read_cached, through_libc, through_python
from penstock.disk import RealDisk

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no such reads")

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@pytest.fixture(params=[through_python, through_libc])
def read_cached(request: pytest.FixtureRequest) -> ReadCached:
    find: Callable[[], ReadCached | None] = request.param
    found = find()
    if found is None:
        assert find is through_python, "libc has such reads on every Linux that is supported"
        pytest.skip("this Python was built without them")
    return found


def test_there_is_a_way_whatever_python_was_built_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_read_cached() is not None
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    assert through_python() is None
    assert find_read_cached() is not None


def test_what_is_in_memory_is_read_without_waiting(
    path: Path, read_cached: ReadCached, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.disk._read_cached", read_cached)
    file = RealDisk().open(path, create=True)
    file.write_at(0, (b"0123456789",))
    expected = {(2, 5): b"23456", (8, 5): b"89", (10, 5): b"", (100, 5): b"", (3, 0): b""}
    found = {place: file.read_cached(*place) for place in expected}
    assert found == expected


def test_positions_beyond_four_gigabytes_are_positions(path: Path, read_cached: ReadCached) -> None:
    far = (5 << 30) + 7
    file = RealDisk().open(path, create=True)
    file.write_at(far, (b"far away",))
    fd, buffer = os.open(path, os.O_RDONLY), bytearray(b"........")
    try:
        assert (read_cached(fd, buffer, far), bytes(buffer)) == (8, b"far away")
    finally:
        os.close(fd)
    buffer += b"a buffer may grow again when it was read into"


def test_what_is_not_in_memory_is_not_waited_for(path: Path, read_cached: ReadCached) -> None:
    file = RealDisk().open(path, create=True)
    file.write_at(0, (b"x" * MIB,))
    file.sync()
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            outcome = read_cached(fd, bytearray(MIB), 0)
        except OSError as error:
            outcome = -(error.errno or 0)
        # All of it: a file system that keeps everything in memory has nothing to drop.
        assert outcome in (-errno.EAGAIN, -errno.EOPNOTSUPP, MIB)
    finally:
        os.close(fd)
    assert bytes(file.read(0, MIB)) == b"x" * MIB


def test_a_failure_names_its_reason(read_cached: ReadCached) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as told:
        read_cached(-1, bytearray(4), 0)
    assert told.value.errno == errno.EBADF
