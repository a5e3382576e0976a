"""A disk in memory that loses power on demand: what was never synced survives in part, by chance from a seed.

Satisfies `penstock.disk.Disk`; used by the power-loss sweep, by properties of the log, and wherever a whole broker runs
on simulated parts. What the model promises is what POSIX promises, which is less than any one file system does:
- A file has the bytes everybody sees (the page cache) and the bytes on the platter; `sync` makes them one.
- A directory has its entries and those on the platter; `sync_directory` makes them one. Syncing a file does not.
- When power fails, every 512-byte sector that was written since the last sync is there or not; where the file grew, its
  new size may be any in between, with zeroes for what is not there. Every change of a directory is there or not:
  in half of the failures a journal keeps them in order, in the other half nothing does.
"""

import asyncio
import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.disk import Buffer, File

T = TypeVar("T")

SECTOR_BYTES = 512
DEFAULT_CAPACITY_BYTES = 1 << 30


class _FileNode:
    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""

    def lose_power(self, chance: random.Random) -> None:
        old, new = self.durable, self.content
        low, high = sorted((len(old), len(new)))
        size = chance.choice((low, high, chance.randint(low, high)))
        survived = bytearray(size)
        keep_all, keep_none = chance.random() < 0.2, chance.random() < 0.2
        for start in range(0, size, SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, size)
            is_kept = keep_all or (not keep_none and chance.random() < 0.5)
            # Where the one has nothing, a lost sector of a file that grew reads as zeroes.
            sector = (new if is_kept else old)[start:end]
            survived[start : start + len(sector)] = sector
        self.content, self.durable = survived, bytes(survived)


class _DirectoryNode:
    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        # Changes since the last sync, each of which happens as a whole: names and what they stand for afterwards.
        self.changes: list[dict[str, _Node | None]] = []

    def change(self, names: "dict[str, _Node | None]") -> None:
        self.changes.append(names)
        _apply(self.entries, names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()

    def lose_power(self, chance: random.Random) -> None:
        if chance.random() < 0.5:
            survived = self.changes[: chance.randint(0, len(self.changes))]
        else:
            survived = [names for names in self.changes if chance.random() < 0.5]
        for names in survived:
            _apply(self.durable, names)
        self.entries = dict(self.durable)
        self.changes.clear()
        for name in sorted(self.entries):
            self.entries[name].lose_power(chance)


_Node = _FileNode | _DirectoryNode


def _apply(entries: dict[str, _Node], names: "dict[str, _Node | None]") -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class SimulatedFile:
    def __init__(self, disk: "SimulatedDisk", node: _FileNode) -> None:
        self._disk = disk
        self._node = node

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        content = b"".join(buffers)
        missing = self._disk.grow(max(0, position + len(content) - len(self._node.content)))
        written = content[: len(content) - missing]
        if position > len(self._node.content):
            self._node.content.extend(bytes(position - len(self._node.content)))
        self._node.content[position : position + len(written)] = written
        if missing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read_cached(self, position: int, size: int) -> memoryview | None:
        return self.read(position, size)

    def read(self, position: int, size: int) -> memoryview:
        return memoryview(bytes(self._node.content[position : position + size]))

    def sync(self) -> None:
        self._node.durable = bytes(self._node.content)

    def size(self) -> int:
        return len(self._node.content)

    def truncate(self, size: int) -> None:
        content = self._node.content
        content.extend(bytes(max(0, size - len(content))))
        del content[size:]

    def close(self) -> None:
        pass


class SimulatedDisk:
    def __init__(self, seed: int = 0, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self._chance = random.Random(seed)
        self._root = _DirectoryNode()
        self._free_bytes = capacity_bytes
        self.traffic: Callable[[], int] = lambda: 0
        self._is_next_at_once = False

    def power_loss(self) -> None:
        """Forget what was in memory only. Files that were open are of the past: close them or let them go."""
        self._root.lose_power(self._chance)

    def grow(self, size: int) -> int:
        """Take this many bytes off the free ones; gives back how many there were not."""
        missing = max(0, size - self._free_bytes)
        self._free_bytes -= size - missing
        return missing

    def free(self, size: int) -> None:
        """Make room, as somebody who deletes other files would."""
        self._free_bytes += size

    def open(self, path: Path, *, create: bool = False) -> File:
        parent = self._directory(path.parent)
        node = parent.entries.get(path.name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = _FileNode()
            parent.change({path.name: node})
        if not isinstance(node, _FileNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return SimulatedFile(self, node)

    def read_file(self, path: Path) -> bytes:
        file = self.open(path)
        return bytes(file.read(0, file.size()))

    def replace_file(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write_at(0, (content,))
        file.sync()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def list_names(self, path: Path) -> list[str]:
        return sorted(self._directory(path).entries)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def make_directory(self, path: Path) -> None:
        node = self._root
        for name in path.parts[1:]:
            child = node.entries.get(name)
            if child is None:
                child = _DirectoryNode()
                node.change({name: child})
            if not isinstance(child, _DirectoryNode):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            node = child

    def sync_directory(self, path: Path) -> None:
        self._directory(path).sync()

    def rename(self, old: Path, new: Path) -> None:
        assert old.parent == new.parent, "nothing here moves files between directories"
        parent = self._directory(old.parent)
        node = parent.entries.get(old.name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(old))
        parent.change({old.name: None, new.name: node})

    def remove(self, path: Path) -> None:
        parent = self._directory(path.parent)
        if path.name in parent.entries:
            parent.change({path.name: None})

    def remove_tree(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, _DirectoryNode):
            for name in list(node.entries):
                self.remove_tree(path / name)
        if node is not None:
            self.remove(path)

    def free_bytes(self, path: Path) -> int:
        return self._free_bytes

    def run(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        """In a later turn of the loop and not on a thread: the order of things comes from the program alone."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(work(*arguments))
            except BaseException as error:
                done.set_exception(error)
                # Whoever would have looked at it may have crashed with everything else: no future is to complain of
                # that when it is collected, in the middle of some other test.
                done.exception()

        loop.call_soon(run)
        return done

    def run_brief(self, work: Callable[[], T], *, is_loop_free: bool) -> "asyncio.Future[T]":
        """In turns at once and later, so that both are met."""
        self._is_next_at_once = not self._is_next_at_once
        if not (is_loop_free and self._is_next_at_once):
            return self.run(work)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)
            done.exception()
        return done

    def close(self) -> None:
        pass

    def _find(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for name in path.parts[1:]:
            if not isinstance(node, _DirectoryNode):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: Path) -> _DirectoryNode:
        node = self._find(path)
        if not isinstance(node, _DirectoryNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node
