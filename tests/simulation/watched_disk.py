"""A disk that asks somebody before everything it does: to count it, to refuse it, to die in the middle of it.

Wraps any `penstock.disk.Disk`, the real one or a simulated one. `replace_file` is taken apart into its steps, so that
a crash may come between any two of them.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from penstock.disk import Buffer, Disk, File

T = TypeVar("T")

# What changes something. "read" and "open" change nothing.
EFFECTS = frozenset(
    {"create", "write", "truncate", "sync", "sync_directory", "rename", "remove", "make_directory", "remove_tree"}
)


class Act(NamedTuple):
    kind: str
    path: Path
    size: int = 0


Watch = Callable[[Act], None]


class Crash(BaseException):
    """The process is dead. No Exception, so that nothing that handles failures survives it."""


class CutShort(BaseException):
    """Raised by a watch about a write: this many bytes of it happen, then `error`."""

    def __init__(self, size: int, error: BaseException) -> None:
        super().__init__(size, error)
        self.size, self.error = size, error


class CrashAt:
    """Dies at the n-th effect (counted from 1), in the middle of it if it is a write, and stays dead."""

    def __init__(self, number: int | None) -> None:
        self.number = number
        self.count = 0
        self.last: Act | None = None

    @property
    def is_dead(self) -> bool:
        return self.number is not None and self.count >= self.number

    def __call__(self, act: Act) -> None:
        if self.is_dead:
            raise Crash
        if act.kind not in EFFECTS:
            return
        self.count += 1
        self.last = act
        if self.is_dead:
            # A third before anything, a third in the middle, a third after the last byte.
            raise CutShort((0, act.size // 2, act.size)[self.count % 3], Crash()) if act.kind == "write" else Crash


class WatchedFile:
    def __init__(self, file: File, path: Path, watch: Watch) -> None:
        self._file = file
        self._path = path
        self._watch = watch

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        content = b"".join(buffers)
        try:
            self._watch(Act("write", self._path, len(content)))
        except CutShort as cut:
            self._file.write_at(position, (content[: cut.size],))
            raise cut.error from None
        self._file.write_at(position, buffers)

    def read_cached(self, position: int, size: int) -> memoryview | None:
        self._watch(Act("read", self._path, size))
        return self._file.read_cached(position, size)

    def read(self, position: int, size: int) -> memoryview:
        self._watch(Act("read", self._path, size))
        return self._file.read(position, size)

    def sync(self) -> None:
        self._watch(Act("sync", self._path))
        self._file.sync()

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._watch(Act("truncate", self._path, size))
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class WatchedDisk:
    def __init__(self, disk: Disk, watch: Watch) -> None:
        self._disk = disk
        self._watch = watch
        self.traffic = disk.traffic

    def open(self, path: Path, *, create: bool = False) -> File:
        is_new = create and not self._disk.exists(path)
        self._watch(Act("create" if is_new else "open", path))
        return WatchedFile(self._disk.open(path, create=create), path, self._watch)

    def read_file(self, path: Path) -> bytes:
        self._watch(Act("read", path))
        return self._disk.read_file(path)

    def replace_file(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, (content,))
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def list_names(self, path: Path) -> list[str]:
        return self._disk.list_names(path)

    def exists(self, path: Path) -> bool:
        return self._disk.exists(path)

    def make_directory(self, path: Path) -> None:
        self._watch(Act("make_directory", path))
        self._disk.make_directory(path)

    def sync_directory(self, path: Path) -> None:
        self._watch(Act("sync_directory", path))
        self._disk.sync_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        self._watch(Act("rename", old))
        self._disk.rename(old, new)

    def remove(self, path: Path) -> None:
        self._watch(Act("remove", path))
        self._disk.remove(path)

    def remove_tree(self, path: Path) -> None:
        self._watch(Act("remove_tree", path))
        self._disk.remove_tree(path)

    def free_bytes(self, path: Path) -> int:
        return self._disk.free_bytes(path)

    def run(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        return self._disk.run(work, *arguments)

    def run_brief(self, work: Callable[[], T], *, is_loop_free: bool) -> "asyncio.Future[T]":
        return self._disk.run_brief(work, is_loop_free=is_loop_free)

    def close(self) -> None:
        self._disk.close()
