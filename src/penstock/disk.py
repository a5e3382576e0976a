"""Files, directories and the threads that may block on them, behind one interface that a simulation can replace.

Called by log, cluster.sqlite_store and broker; nothing else opens a file of the data directory.
Laws:
- On the event loop only `write_at` (into the page cache) and `read_cached` (out of it) may be called.
- `read` and `sync` block: they run on the I/O threads, through `Disk.run`; or where `Disk.run_brief` lets them.
- A created or renamed file is not there after a power failure until `sync_directory` has returned.
"""

import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from penstock.brief_work import BriefWork
from penstock.cached_read import find_read_cached
from penstock.clock import Clock, SystemClock

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

IO_THREADS = 4

# Linux only. Elsewhere every read goes to an I/O thread.
_read_cached = find_read_cached()
# It would have to wait; this file system (tmpfs on old kernels, FUSE) or this kernel cannot promise not to; a signal.
_ASK_A_THREAD = frozenset((errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR))
# macOS has no fdatasync, and its fsync leaves the data in the drive's cache; F_FULLFSYNC does not.
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class File(Protocol):
    """One open file, addressed by position; it has no cursor."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers into the page cache, or raise OSError with an unknown part written."""
        ...

    def read_cached(self, position: int, size: int) -> memoryview | None:
        """Up to `size` bytes if the first of them are in memory, None if the disk would have to be asked."""
        ...

    def read(self, position: int, size: int) -> memoryview:
        """Up to `size` bytes, fewer only at the end of the file. Blocks."""
        ...

    def sync(self) -> None:
        """Return once every byte written before the call is on stable storage. Blocks."""
        ...

    def size(self) -> int: ...
    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: Path, *, create: bool = False) -> File: ...
    def read_file(self, path: Path) -> bytes: ...
    def replace_file(self, path: Path, content: bytes) -> None:
        """Put `content` at `path` so that a crash leaves the old file or the new one. Blocks (two fsyncs)."""
        ...

    def list_names(self, path: Path) -> list[str]: ...
    def exists(self, path: Path) -> bool: ...
    def make_directory(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def remove(self, path: Path) -> None: ...
    def remove_tree(self, path: Path) -> None: ...
    def free_bytes(self, path: Path) -> int: ...
    def run(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        """Run blocking work on an I/O thread."""
        ...

    def run_brief(self, work: Callable[[], T], *, is_loop_free: bool) -> "asyncio.Future[T]":
        """Run a small sync: on a thread; or at once, on a loop that nobody else wants, while the disk is quick."""
        ...

    # Grows with whatever the broker is asked for: the same a turn later means that nobody wanted the loop.
    traffic: Callable[[], int]

    def close(self) -> None: ...


class RealFile:
    __slots__ = ("_fd", "_path")

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        wanted = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers, position)
        if written == wanted:
            return
        # A short write is legal (a signal, a nearly full disk): the rest either follows or says why not.
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            written = os.pwrite(self._fd, rest, position + wanted - len(rest))
            if written == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            rest = rest[written:]

    def read_cached(self, position: int, size: int) -> memoryview | None:
        if _read_cached is None:
            return None
        buffer = bytearray(size)
        try:
            got = _read_cached(self._fd, buffer, position)
        except OSError as error:
            if error.errno in _ASK_A_THREAD:
                return None
            raise
        return memoryview(buffer)[:got]

    def read(self, position: int, size: int) -> memoryview:
        first = os.pread(self._fd, size, position)
        if len(first) == size or not first:
            return memoryview(first)
        parts = [first]
        got = len(first)
        while got < size:
            part = os.pread(self._fd, size - got, position + got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        return memoryview(b"".join(parts))

    def sync(self) -> None:
        if _FULL_FSYNC is not None:
            fcntl.fcntl(self._fd, _FULL_FSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:
            os.fsync(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class IoThreads:
    """Threads that may block, so that the event loop need not.

    Every sync goes through here. An executor's way there and back takes half as long again: a future of its own kind
    for each job, a lock and a condition, and a chain from one future to the other.
    Called on one event loop's thread only; threads start when there is work for them.
    """

    def __init__(self, count: int) -> None:
        self._count_max = count
        self._jobs: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        return not self._unfinished and not self._is_closed

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self._is_closed:
            raise RuntimeError("the disk is closed")
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._unfinished += 1
        if len(self._threads) < min(self._unfinished, self._count_max):
            thread = threading.Thread(target=self._serve, name=f"penstock-io-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((done, work))
        return done

    def close(self) -> None:
        """Wait for what is under way."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            done, work = job
            result: Any = None
            error: BaseException | None = None
            if not done.cancelled():  # nobody waits for it any more
                try:
                    result = work()
                except BaseException as failure:
                    error = failure
            with contextlib.suppress(RuntimeError):  # the loop ended first: a crashed broker's, in a test
                done.get_loop().call_soon_threadsafe(self._finish, done, result, error)
            del job, done, work, result, error  # an idle thread keeps nothing alive

    def _finish(self, done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        if done.done():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)


class RealDisk:
    def __init__(self, clock: Clock | None = None) -> None:
        self._threads = IoThreads(IO_THREADS)
        self._brief = BriefWork(clock or SystemClock())
        # Until somebody tells, the loop is taken to be wanted all the time.
        self.traffic: Callable[[], int] = itertools.count().__next__

    def open(self, path: Path, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o640))

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    def replace_file(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
        self.sync_directory(path.parent)

    def list_names(self, path: Path) -> list[str]:
        return os.listdir(path)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def remove_tree(self, path: Path) -> None:
        # Only here: it brings every format of archive there is, and a broker that starts has nothing to remove.
        import shutil

        shutil.rmtree(path, ignore_errors=True)

    def free_bytes(self, path: Path) -> int:
        volume = os.statvfs(path)
        return volume.f_bavail * volume.f_frsize

    def run(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        return self._threads.run(partial(work, *arguments) if arguments else work)

    def run_brief(self, work: Callable[[], T], *, is_loop_free: bool) -> "asyncio.Future[T]":
        if is_loop_free and self._threads.is_idle and self._brief.may_run_here():
            return self._brief.run_here(work)
        return self.run(self._brief.timed, work)

    def close(self) -> None:
        self._threads.close()
