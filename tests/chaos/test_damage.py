"""Files of a data directory are damaged, one at a time: what was acknowledged is there, or it is said what is not.

A scripted life leaves a directory behind, once stopped cleanly and once killed. Every file of it is then flipped, torn,
zeroed, emptied and removed, each in a copy of its own, and the copy is opened.
"""

import asyncio
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.chaos.workload import RECORDS_PER_BATCH, Life, Promise, Sent, values_of
from tests.simulation.disk import SimulatedDisk

from penstock.errors import CorruptMessage, StorageFailed
from penstock.log.checkpoints import LOG_STARTS
from penstock.log.directory import CLEAN_STOP
from penstock.log.partition_log import PartitionLog
from penstock.model import Offset, TopicPartition
from penstock.records.batch import crc_is_right, read_header

ROOT = Path("/data")
PAGE_BYTES = 4096

# What was in a file -> what is in it afterwards; None if the file is gone.
Damage = Callable[[bytes, random.Random], bytes | None]


def flip_a_bit(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    if damaged:
        damaged[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def tear(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def zero_the_last_page(content: bytes, chance: random.Random) -> bytes:
    zeroed = min(len(content), chance.choice((PAGE_BYTES, 100, 1)))
    return content[: len(content) - zeroed] + bytes(zeroed)


def add_garbage(content: bytes, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.randrange(1, 300))


def empty(_: bytes, __: random.Random) -> bytes:
    return b""


def remove(_: bytes, __: random.Random) -> None:
    return None


DAMAGES: list[Damage] = [flip_a_bit, flip_a_bit, flip_a_bit, tear, zero_the_last_page, add_garbage, empty, remove]


class Left(NamedTuple):
    """A disk as a life has left it."""

    disk: SimulatedDisk
    life: Life

    def files(self) -> list[Path]:
        """Relative to the data directory."""
        found: list[Path] = []
        for name in self.disk.list_names(ROOT):
            try:
                found += [Path(name) / below for below in self.disk.list_names(ROOT / name)]
            except FileNotFoundError:
                found.append(Path(name))
        return found

    def segments(self, directory: Path) -> list[Path]:
        return [name for name in self.files() if name.parent == directory and name.suffix == ".log"]


@pytest.fixture(scope="module")
def stopped() -> Left:
    return asyncio.run(leave(is_clean=True))


@pytest.fixture(scope="module")
def killed() -> Left:
    return asyncio.run(leave(is_clean=False))


async def leave(*, is_clean: bool) -> Left:
    life, disk = Life(ROOT), SimulatedDisk()
    await life.run(disk)
    life.note_retention()
    if is_clean:
        await life.replicas.logs.close()
    return Left(disk, life)


def put(disk: SimulatedDisk, path: Path, content: bytes | None) -> None:
    if content is None:
        disk.remove(path)
        return
    file = disk.open(path, create=True)
    file.truncate(0)
    file.write_at(0, (content,))


async def open_again(left: Left, disk: SimulatedDisk) -> Life:
    life = Life(ROOT)
    life.topics, life.clock = left.life.topics, left.life.clock
    await life.open(disk)
    return life


def judge(life: Life, hurt: Path, said: str) -> str:
    """What became of the partition that was hurt; every other one must be as it was."""
    verdict = "whole"
    for topic in life.topics.values():
        for index, promise in enumerate(topic.promises):
            at = TopicPartition(topic.name, index)
            is_hurt = hurt.parts[0] == str(at)
            failure = life.replicas.logs.offline.get(at)
            if failure is not None:
                assert is_hurt, f"{at} is offline for what was done to {hurt}"
                assert str(failure) in said
                with pytest.raises(StorageFailed):
                    life.find(topic.name, index)
                verdict = "offline"
                continue
            log = life.find(topic.name, index).log
            found = judge_log(log, promise, may_be_hurt=is_hurt, said=said)
            if is_hurt:
                verdict = found
            # A lost list of log starts brings deleted records back; it takes none away.
            assert log.log_start >= promise.start_promised or hurt.name == LOG_STARTS
    return verdict


def judge_log(log: PartitionLog, promise: Promise, *, may_be_hurt: bool, said: str) -> str:
    verdict = "whole"
    for sent in promise.batches:
        if not sent.is_acked or sent.last_offset < log.log_start:
            continue
        if sent.last_offset >= log.next_offset:
            assert may_be_hurt
            assert f"{log.directory.name}: " in said
            assert "torn at byte" in said or "lies behind the cut" in said
            verdict = "cut"
        elif not is_read_back(log, sent):
            assert may_be_hurt
            verdict = "refused"
    return verdict


def is_read_back(log: PartitionLog, sent: Sent) -> bool:
    """True if every record of the batch is found at its offset; False if the log, or any client, refuses it."""
    for offset in range(max(sent.offset, log.log_start), sent.last_offset + 1):
        try:
            chunk = log.read(Offset(offset), 1, log.next_offset, cached_only=False)
        except CorruptMessage:
            return False
        assert chunk, f"silence at offset {offset}"
        header = read_header(chunk)
        if not crc_is_right(chunk, header):
            return False
        assert header.base_offset == sent.offset
        assert header.last_offset_delta == RECORDS_PER_BATCH - 1
        assert values_of(bytes(chunk[: header.size])) == values_of(sent.content)
    return True


def hits_an_unguarded_field(before: bytes, after: bytes | None) -> bool:
    """Offset and epoch of a batch stand outside its CRC: in a segment that no start looks into, nothing tells."""
    if after is None or len(after) != len(before) or after == before:
        return False
    changed = next(at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    start = max(end for end in batch_ends(before) if end <= changed)
    return changed - start < 17 and after[changed + 1 :] == before[changed + 1 :]


def looks_like_a_shorter_log(before: bytes, after: bytes | None) -> bool:
    """Where the last segment ends with some batch, nothing but the recovery point knows that there were more."""
    return after is None or (before.startswith(after) and len(after) in batch_ends(before))


def batch_ends(content: bytes) -> list[int]:
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + read_header(content, ends[-1]).size)
    return ends


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_no_damage_to_one_file_loses_what_was_acknowledged_without_a_word(
    is_clean: bool, stopped: Left, killed: Left, caplog: pytest.LogCaptureFixture
) -> None:
    left = stopped if is_clean else killed
    verdicts: dict[str, set[str]] = {}
    cases = 0
    for number, name in enumerate(left.files()):
        before = left.disk.read_file(ROOT / name)
        is_last = name.suffix == ".log" and name == left.segments(name.parent)[-1]
        for variant, damage in enumerate(DAMAGES):
            after = damage(before, random.Random(number * 100 + variant))
            if name.suffix == ".log" and hits_an_unguarded_field(before, after):
                continue
            if is_last and not is_clean and looks_like_a_shorter_log(before, after):
                continue
            disk = deepcopy(left.disk)
            put(disk, ROOT / name, after)
            caplog.clear()
            try:
                life = asyncio.run(open_again(left, disk))
                verdict = judge(life, name, caplog.text)
            except Exception as error:
                raise AssertionError(f"variant {variant} of {name} (file {number})") from error
            verdicts.setdefault(name.suffix or name.name, set()).add(verdict)
            cases += 1
    assert cases > 150
    assert verdicts[".log"] >= {"whole", "offline"}
    # Everything but the records themselves can be lost without losing any of them.
    assert {kind: found for kind, found in verdicts.items() if kind != ".log" and found != {"whole"}} == {}


def test_all_that_is_made_from_the_records_can_be_lost_together(killed: Left) -> None:
    disk = deepcopy(killed.disk)
    for name in killed.files():
        if name.suffix != ".log" and name.name != LOG_STARTS:
            disk.remove(ROOT / name)
    life = asyncio.run(open_again(killed, disk))
    assert judge(life, Path("none"), "") == "whole"


def test_a_mark_of_an_earlier_clean_stop_hides_nothing(stopped: Left, killed: Left) -> None:
    """As if the removal of the mark had been undone: it speaks of logs that have grown since, or are gone."""
    disk = deepcopy(killed.disk)
    put(disk, ROOT / CLEAN_STOP, stopped.disk.read_file(ROOT / CLEAN_STOP))
    life = asyncio.run(open_again(killed, disk))
    assert judge(life, Path("none"), "") == "whole"
    for topic in life.topics.values():
        for index, promise in enumerate(topic.promises):
            assert life.find(topic.name, index).log.next_offset == promise.acked_end
