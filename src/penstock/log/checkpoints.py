"""Small files that say how far something got: recovery points, log starts, leader epochs, the clean-stop mark.

Called by log.directory (one file for all partitions) and log.partition_log (leader epochs).
The text layout of offset checkpoints and leader epochs is Kafka's, so that its tools and its users can read them.
Each file is replaced whole; a crash leaves the old one or the new one.
"""

from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from penstock.disk import Disk
from penstock.model import LeaderEpoch, Offset, TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"


def write_offsets(disk: Disk, path: Path, offsets: dict[TopicPartition, Offset]) -> None:
    lines = ["0", str(len(offsets))]
    lines.extend(f"{at.topic} {at.partition} {offset}" for at, offset in offsets.items())
    disk.replace_file(path, ("\n".join(lines) + "\n").encode())


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset]:
    """What the file holds; a missing or damaged file reads as empty, which only makes recovery look further back."""
    if not disk.exists(path):
        return {}
    offsets: dict[TopicPartition, Offset] = {}
    lines = disk.read_file(path).decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] != "0":
        return {}
    for line in lines[2:]:
        topic, _, rest = line.partition(" ")
        partition, _, offset = rest.partition(" ")
        if not (topic and partition.isdigit() and offset.isdigit()):
            return {}
        offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
    return offsets if lines[1] == str(len(offsets)) else {}


class EpochStart(NamedTuple):
    epoch: int
    start: int


class LeaderEpochs:
    """Which leader epoch wrote which offsets: epoch -> first offset, both growing.

    A new epoch is on disk before its first batch counts as durable: PartitionLog's sync writes it first. Batches
    that a crash left behind without it carry the epoch in their header, from which recovery makes the entry anew.
    """

    __slots__ = ("_dirty", "_disk", "_entries", "_path")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._path = directory / LEADER_EPOCHS
        self._entries: list[EpochStart] = []
        self._dirty = False

    @property
    def latest(self) -> LeaderEpoch:
        return LeaderEpoch(self._entries[-1].epoch if self._entries else -1)

    def load(self) -> None:
        if not self._disk.exists(self._path):
            return
        lines = self._disk.read_file(self._path).decode("ascii", "replace").splitlines()
        for line in lines[2:]:
            epoch, _, start = line.partition(" ")
            if not (epoch.isdigit() and start.isdigit()):
                break
            self._entries.append(EpochStart(int(epoch), int(start)))

    def assign(self, epoch: LeaderEpoch, start: Offset) -> None:
        """From `start` on, batches are written by `epoch`."""
        if epoch <= self.latest:
            return
        while self._entries and self._entries[-1].start >= start:
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start))
        self._dirty = True

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch not above the one asked, and where it ends; (-1, -1) when none is known."""
        slot = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if slot == 0:
            return LeaderEpoch(-1), Offset(-1)
        end = self._entries[slot].start if slot < len(self._entries) else log_end
        return LeaderEpoch(self._entries[slot - 1].epoch), Offset(end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start)
        return LeaderEpoch(self._entries[slot - 1].epoch if slot else -1)

    def truncate_end(self, offset: Offset) -> None:
        """The log now ends at `offset`: epochs that start there or later wrote nothing."""
        kept = [entry for entry in self._entries if entry.start < offset]
        if len(kept) != len(self._entries):
            self._entries = kept
            self._dirty = True

    def truncate_start(self, offset: Offset) -> None:
        """The log now starts at `offset`: the epoch in force there starts there, older ones are gone."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start)
        if slot <= 1 and (not slot or self._entries[0].start == offset):
            return
        if slot and self._entries[0].start < offset:
            self._entries = [EpochStart(self._entries[slot - 1].epoch, offset), *self._entries[slot:]]
            self._dirty = True

    def pending(self) -> bytes | None:
        """The file's new content if it has to be written before the log counts as durable."""
        if not self._dirty:
            return None
        self._dirty = False
        lines = ["0", str(len(self._entries)), *(f"{entry.epoch} {entry.start}" for entry in self._entries)]
        return ("\n".join(lines) + "\n").encode()

    def write(self, content: bytes) -> None:
        """Put what `pending` gave on stable storage. Blocks."""
        self._disk.replace_file(self._path, content)
