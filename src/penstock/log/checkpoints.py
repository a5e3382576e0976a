"""Small files that say how far something got: recovery points, log starts, high watermarks, leader epochs.

Called by log.points (one file for all partitions) and log.partition_log (leader epochs).
The text layout is Kafka's, so that its users can read them. Offset checkpoints have two things more: the topic's id,
since a topic made again under the same name begins anew, and a checksum, since a flipped digit would move the start
of a log past its records.
Each file is replaced whole; a crash leaves the old one or the new one.
"""

import logging
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from penstock.disk import Disk
from penstock.model import NO_TOPIC_ID, LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.checksum import crc32c

logger = logging.getLogger(__name__)

_UNSAID = str(NO_TOPIC_ID)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"


class SavedOffset(NamedTuple):
    """An offset, and the topic it was true of; NO_TOPIC_ID where the file does not say."""

    offset: Offset
    topic_id: TopicId


def write_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Put these offsets in place of what the file holds. Blocks."""
    _write_lines(disk, path, [f"{at.topic} {at.partition} {offset}" for at, offset in offsets.items()])


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset]:
    """What the file holds; missing or damaged it reads as empty, which only makes whoever asks look further back."""
    return {at: saved.offset for at, saved in read_saved_offsets(disk, path).items()}


def write_saved_offsets(disk: Disk, path: Path, offsets: Mapping[TopicPartition, SavedOffset]) -> None:
    """The same with the topics' ids. Blocks."""
    lines = [f"{at.topic} {at.partition} {saved.offset} {saved.topic_id}" for at, saved in offsets.items()]
    _write_lines(disk, path, lines)


def read_saved_offsets(disk: Disk, path: Path) -> dict[TopicPartition, SavedOffset]:
    return find_saved_offsets(disk, path) or {}


def find_saved_offsets(disk: Disk, path: Path) -> dict[TopicPartition, SavedOffset] | None:
    """The same for whoever must know that it is missing or damaged: None."""
    if not disk.exists(path):
        return None
    offsets = _parse_offsets(disk.read_file(path))
    if offsets is None:
        logger.error("%s is damaged and taken as empty: what it was to save is done anew", path.name)
    return offsets


def _write_lines(disk: Disk, path: Path, rows: list[str]) -> None:
    lines = ["0", str(len(rows)), *rows]
    if rows:
        lines.append(_checksum(lines))
    disk.replace_file(path, ("\n".join(lines) + "\n").encode())


def _parse_offsets(content: bytes) -> dict[TopicPartition, SavedOffset] | None:
    lines = content.decode("ascii", "replace").splitlines()
    if lines and lines[-1].startswith("crc "):
        checksum = lines.pop()
        if checksum != _checksum(lines):
            return None
    if len(lines) < 2 or lines[0] != "0" or not content.endswith(b"\n"):
        return None
    offsets: dict[TopicPartition, SavedOffset] = {}
    try:
        for line in lines[2:]:
            fields = line.split(" ")
            topic, partition, offset, topic_id = fields if len(fields) == 4 else (*fields, _UNSAID)
            offsets[TopicPartition(topic, int(partition))] = SavedOffset(Offset(int(offset)), UUID(topic_id))
    except ValueError:
        return None
    return offsets if lines[1] == str(len(offsets)) else None


def _checksum(lines: list[str]) -> str:
    return f"crc {crc32c(''.join(f'{line};' for line in lines).encode()):08x}"


class EpochStart(NamedTuple):
    epoch: int
    start: int


class LeaderEpochs:
    """Which leader epoch wrote which offsets: epoch -> first offset, both growing.

    A new epoch is on disk before its first batch counts as durable: PartitionLog's sync writes it first. Batches
    that a crash left behind without it carry the epoch in their header, from which recovery makes the entry anew.
    """

    __slots__ = ("_directory", "_dirty", "_disk", "_entries")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._entries: list[EpochStart] = []
        self._dirty = False

    @property
    def _path(self) -> Path:
        # Not kept: of ten thousand partitions few write a new epoch, and a Path for each costs their start and memory.
        return self._directory / LEADER_EPOCHS

    @property
    def latest(self) -> LeaderEpoch:
        return LeaderEpoch(self._entries[-1].epoch if self._entries else -1)

    def load(self) -> bool:
        """Take what the file holds; False where there is no file or it is damaged, and the log has to be asked."""
        path = self._path
        if not self._disk.exists(path):
            return False
        lines = self._disk.read_file(path).decode("ascii", "replace").splitlines()
        entries: list[EpochStart] = []
        for line in lines[2:]:
            epoch, _, start = line.partition(" ")
            if not (epoch.isdecimal() and start.isdecimal()):
                return False
            entry = EpochStart(int(epoch), int(start))
            if entries and (entry.epoch <= entries[-1].epoch or entry.start <= entries[-1].start):
                return False
            entries.append(entry)
        if lines[:2] != ["0", str(len(entries))]:
            return False
        self._entries = entries
        return True

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
