"""The disk of one simulated broker: SimulatedDisk, whose work takes virtual time and can be made to fail.

Called by cluster. A killed process leaves everything it wrote; a machine that loses power leaves what was synced, and
of the rest what chance leaves (disk.py). Work on the disk is the process's own: it ends with it, done or not.
A sync that fails leaves bytes that everybody reads and the platter lacks, and no later sync writes them: `unwritten`.
They are gone when power fails, or when the kernel wants their memory; only who writes them again has them.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.simulation.disk import SimulatedDisk, SimulatedFile, _DirectoryNode, _FileNode
from tests.simulation.loop import World

from penstock.disk import File
from penstock.records.batch import CRC_COVERS_FROM, HEADER_BYTES, read_header

T = TypeVar("T")

WORK_S = 0.0004
WORK_JITTER_S = 0.0008


class _File(SimulatedFile):
    _disk: "NodeDisk"

    def sync(self) -> None:
        node, unwritten = self._node, self._disk.unwritten
        if self._disk.is_failing_sync():
            # As Linux has it: the pages count as written from now on.
            known = unwritten.get(node, set())
            unwritten[node] = {
                at for at, byte in enumerate(node.content) if at in known or node.durable[at : at + 1] != bytes((byte,))
            }
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        node.durable = bytes(_on_platter(node, unwritten.get(node, set())))

    def write_at(self, position: int, buffers: Any) -> None:
        self._disk.before_write()
        super().write_at(position, buffers)
        if self._node in self._disk.unwritten:
            self._disk.unwritten[self._node].difference_update(range(position, position + sum(map(len, buffers))))

    def truncate(self, size: int) -> None:
        super().truncate(size)
        if self._node in self._disk.unwritten:
            self._disk.unwritten[self._node] = {at for at in self._disk.unwritten[self._node] if at < size}


class NodeDisk(SimulatedDisk):
    def __init__(self, world: World, seed: int, data_dir: Path) -> None:
        super().__init__(seed)
        # Whoever set the machine up has made everything above the data directory, long ago.
        self.make_directory(data_dir.parent)
        for directory in data_dir.parents:
            self.sync_directory(directory)
        self._world = world
        self.slow_s = 0.0
        self.syncs_failing = 0
        self.is_full = False
        # Of files whose sync failed: the places of the bytes that only the page cache has, and no sync will write.
        self.unwritten: dict[_FileNode, set[int]] = {}
        # How often each fault was met by something the broker wanted to do.
        self.failed_syncs = 0
        self.failed_writes = 0
        # Whether anything was ever done to it that a broker may complain of.
        self.is_hurt = False
        self.is_rotten = False

    def open(self, path: Path, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        assert isinstance(file, SimulatedFile)
        return _File(self, file._node)

    def power_loss(self) -> None:
        self._forget_unwritten(list(self.unwritten))
        super().power_loss()

    def want_memory(self) -> None:
        """By chance the kernel gives up pages that count as written: what is read there from now on is the platter."""
        self._forget_unwritten([node for node in self.unwritten if self._chance.random() < 0.3])

    def _forget_unwritten(self, nodes: list[_FileNode]) -> None:
        for node in nodes:
            node.content = _on_platter(node, self.unwritten.pop(node))

    def is_failing_sync(self) -> bool:
        if self.syncs_failing == 0:
            return False
        self.syncs_failing -= 1
        self.failed_syncs += 1
        self.is_hurt = True
        return True

    def before_write(self) -> None:
        if self.is_full:
            self.failed_writes += 1
            self.is_hurt = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def run(self, work: Callable[..., T], *arguments: Any) -> "asyncio.Future[T]":
        loop = self._world.loop
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                result = work(*arguments)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        # In the caller's context: a stopped process's threads are stopped, those of a dead one are gone.
        loop.call_later(self.slow_s + WORK_S + self._world.chance.random() * WORK_JITTER_S, run)
        return done

    def run_brief(self, work: Callable[[], T], *, is_loop_free: bool) -> "asyncio.Future[T]":
        return self.run(work)  # it takes virtual time, in which the other brokers' loops go on

    def flip_bit(self, suffix: str) -> str | None:
        """One bit, in some file of this kind that is on the platter; which, or None where there is none."""
        found = [(path, node) for path, node in _files(self._root, "") if path.endswith(suffix) and node.durable]
        if not found:
            return None
        chance = self._world.chance
        self.is_hurt = self.is_rotten = True
        path, node = found[chance.randrange(len(found))]
        at = chance.randrange(min(len(node.durable), len(node.content)) or 1)
        if suffix == ".log":
            at = _under_checksum(node.durable, at)
        bit = 1 << chance.randrange(8)
        durable = bytearray(node.durable)
        durable[at] ^= bit
        node.durable = bytes(durable)
        if at < len(node.content):
            node.content[at] ^= bit
        return f"{path} at {at}"


def _on_platter(node: _FileNode, unwritten: set[int]) -> bytearray:
    """What a file reads as, but for the bytes that never came to the platter: what was there before, or zeroes."""
    content = bytearray(node.content)
    for at in unwritten:
        content[at] = node.durable[at] if at < len(node.durable) else 0
    return content


def _under_checksum(log: bytes, at: int) -> int:
    """The byte itself, or the next one that its batch's checksum covers: offset, size and epoch stand before that."""
    start = 0
    while len(log) - start >= HEADER_BYTES:
        size = read_header(log, start).size
        if at < start + size:
            return max(at, start + CRC_COVERS_FROM)
        start += size
    return at


def _files(directory: _DirectoryNode, path: str) -> Iterator[tuple[str, _FileNode]]:
    for name in sorted(directory.entries):
        node = directory.entries[name]
        if isinstance(node, _FileNode):
            yield f"{path}/{name}", node
        else:
            yield from _files(node, f"{path}/{name}")
