"""The real disk: what is written is there, what is replaced is replaced whole, and reads that may not wait do not."""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.disk import IO_THREADS, Buffer, RealDisk, RealFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_a_file_is_made_only_when_asked_for(path: Path) -> None:
    disk = RealDisk()
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    file = disk.open(path, create=True)
    file.write_at(0, (b"content",))
    file.close()
    again = disk.open(path, create=True)
    assert bytes(again.read(0, 100)) == b"content", "opening does not empty it"


def test_buffers_are_written_one_behind_the_other_at_any_position(path: Path) -> None:
    file = RealDisk().open(path, create=True)
    file.write_at(3, (b"ab", bytearray(b"cd"), memoryview(b"efg")))
    file.write_at(4, (b"X",))
    assert path.read_bytes() == b"\0\0\0aXcdefg"
    assert file.size() == 10
    file.truncate(4)
    assert path.read_bytes() == b"\0\0\0a"


def test_a_write_the_system_cuts_short_is_finished(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_pwritev, real_pwrite = os.pwritev, os.pwrite

    def short_pwritev(fd: int, buffers: Sequence[Buffer], position: int, *flags: int) -> int:
        return real_pwritev(fd, [b"".join(buffers)[:3]], position)

    def short_pwrite(fd: int, content: Buffer, position: int) -> int:
        return real_pwrite(fd, bytes(content)[:2], position)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", short_pwrite)
    file = RealDisk().open(path, create=True)
    for buffers in ((b"abcdefgh",), (b"ab", b"cdef", b"gh")):
        file.write_at(1, buffers)
        assert path.read_bytes() == b"\0abcdefgh"


def test_a_write_that_gets_nowhere_is_an_error_and_not_an_endless_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", lambda *_: 1)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    file = RealDisk().open(path, create=True)
    with pytest.raises(OSError, match="No space left"):
        file.write_at(0, (b"abc",))


def test_a_read_is_shorter_only_at_the_end_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"0123456789")
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: real_pread(fd, min(size, 3), position))
    file = RealDisk().open(path)
    assert bytes(file.read(1, 8)) == b"12345678"
    assert bytes(file.read(8, 8)) == b"89"
    assert bytes(file.read(10, 8)) == b""


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR])
def test_a_file_system_that_would_have_to_wait_or_cannot_say_is_left_to_a_thread(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    file = RealDisk().open(path, create=True)
    monkeypatch.setattr("penstock.disk._read_cached", refuse)
    assert file.read_cached(0, 10) is None


def test_another_failure_of_a_read_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = RealDisk().open(path, create=True)
    monkeypatch.setattr("penstock.disk._read_cached", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        file.read_cached(0, 10)


def test_where_reads_cannot_be_told_not_to_wait_all_go_to_a_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.disk._read_cached", None)
    file = RealDisk().open(path, create=True)
    file.write_at(0, (b"x",))
    assert file.read_cached(0, 1) is None


def test_a_closed_file_stays_closed_and_may_be_closed_again(path: Path) -> None:
    file = RealDisk().open(path, create=True)
    file.close()
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, (b"x",))


# Replacing


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_file_that_is_being_replaced_is_the_old_one_until_it_is_the_new_one(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    disk = RealDisk()
    disk.replace_file(path, b"old")

    def interrupt(*_: Any, **__: Any) -> Any:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(os, step, interrupt)
        with pytest.raises(Interrupted):
            disk.replace_file(path, b"something new")
    assert path.read_bytes() == b"old"
    disk.replace_file(path, b"new")
    assert path.read_bytes() == b"new", "whatever the interrupted one has left behind"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not tell the name of an open file")
def test_a_replaced_file_and_its_name_are_synced_in_that_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        synced.append(f"{name} {'new' if path.exists() and path.read_bytes() == b'new' else 'old'}")
        real_fsync(fd)

    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fsync)
    RealDisk().replace_file(path, b"new")
    assert synced == ["file.tmp old", f"{path.parent.name} new"]


# Directories


def test_directories_are_made_with_those_above_and_may_be_there_already(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_directory(tmp_path / "a" / "b")
    disk.make_directory(tmp_path / "a" / "b")
    assert disk.exists(tmp_path / "a" / "b")
    assert disk.list_names(tmp_path) == ["a"]


def test_what_is_removed_may_be_gone_already(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.remove(tmp_path / "nothing")
    disk.remove_tree(tmp_path / "nothing")
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "f").write_bytes(b"x")
    disk.remove_tree(tmp_path / "d")
    assert disk.list_names(tmp_path) == []


def test_a_rename_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    RealDisk().rename(tmp_path / "a", tmp_path / "b")
    assert RealDisk().read_file(tmp_path / "b") == b"a"


def test_free_room_is_told(tmp_path: Path) -> None:
    assert RealDisk().free_bytes(tmp_path) > 0


# Threads


async def test_blocking_work_runs_beside_the_loop() -> None:
    disk = RealDisk()
    loop_thread = threading.get_ident()
    started, go_on = threading.Event(), threading.Event()

    def work(number: int) -> tuple[int, int]:
        started.set()
        assert go_on.wait(10)
        return number, threading.get_ident()

    running = disk.run(work, 7)
    await asyncio.to_thread(started.wait, 10)
    assert not running.done(), "and the loop is here meanwhile"
    go_on.set()
    number, thread = await running
    assert number == 7
    assert thread != loop_thread
    disk.close()


async def test_a_failure_on_a_thread_reaches_whoever_waits() -> None:
    disk = RealDisk()

    def fail() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        await disk.run(fail)
    disk.close()


async def test_jobs_run_beside_each_other_and_one_given_up_before_it_began_never_runs() -> None:
    disk = RealDisk()
    meeting = threading.Barrier(IO_THREADS + 1)
    together = [disk.run(meeting.wait, 10) for _ in range(IO_THREADS)]
    ran: list[str] = []
    given_up = disk.run(ran.append, "given up")
    last = disk.run(ran.append, "last")
    given_up.cancel()
    await asyncio.to_thread(meeting.wait, 10)
    await asyncio.gather(*together, last)
    disk.close()
    assert ran == ["last"]


async def test_a_closed_disk_takes_no_more_work() -> None:
    disk = RealDisk()
    await disk.run(int)
    disk.close()
    with pytest.raises(RuntimeError):
        disk.run(int)


def test_closing_waits_for_what_is_under_way(path: Path) -> None:
    disk = RealDisk()

    async def begin() -> None:
        disk.run(path.write_bytes, b"done")

    asyncio.run(begin())
    disk.close()
    assert path.read_bytes() == b"done"


def test_sync_asks_for_the_data(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    file = RealDisk().open(path, create=True)
    assert isinstance(file, RealFile)
    monkeypatch.setattr(os, "fdatasync", asked.append, raising=False)
    monkeypatch.setattr("penstock.disk._FULL_FSYNC", None)
    file.sync()
    assert len(asked) == 1
