"""Files of a data directory are damaged, one at a time: what was acknowledged is there, or the log says what it refused.

A scripted life leaves a directory behind, once stopped cleanly and once killed. Every file of it is then flipped, torn,
zeroed, emptied and removed, each in a copy of its own, and the copy is opened.
"""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.chaos.workload import RECORDS_PER_BATCH, Life, Promise, Sent, Topic, values_of

from penstock.disk import RealDisk
from penstock.errors import CorruptMessage, StorageFailed
from penstock.log.checkpoints import LOG_STARTS
from penstock.log.directory import CLEAN_STOP
from penstock.log.partition_log import PartitionLog
from penstock.model import Offset, TopicPartition
from penstock.records.batch import crc_is_right, read_header

PAGE_BYTES = 4096

Damage = Callable[[Path, random.Random], None]


def flip_a_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)


def tear(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(len(content) + 1)])


def zero_the_last_page(path: Path, chance: random.Random) -> None:
    content = path.read_bytes()
    zeroed = min(len(content), chance.choice((PAGE_BYTES, 100, 1)))
    path.write_bytes(content[: len(content) - zeroed] + bytes(zeroed))


def add_garbage(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randrange(1, 300)))


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def remove(path: Path, _: random.Random) -> None:
    path.unlink()


DAMAGES: list[Damage] = [flip_a_bit, flip_a_bit, flip_a_bit, tear, zero_the_last_page, add_garbage, empty, remove]


class Left(NamedTuple):
    """A directory as a life has left it."""

    root: Path
    life: Life


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return asyncio.run(leave(tmp_path_factory.mktemp("stopped") / "data", is_clean=True))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return asyncio.run(leave(tmp_path_factory.mktemp("killed") / "data", is_clean=False))


async def leave(root: Path, *, is_clean: bool) -> Left:
    life, disk = Life(root), RealDisk()
    await life.run(disk)
    life.note_retention()
    if is_clean:
        await life.replicas.logs.close()
    else:
        life.replicas.logs.release()
    disk.close()
    return Left(root, life)


def files_of(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())


async def open_damaged(left: Left, copy: Path) -> Life:
    life = Life(copy)
    life.topics, life.clock = left.life.topics, left.life.clock
    disk = RealDisk()
    logs = await life.open(disk)
    logs.release()
    disk.close()
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
            found = judge_log(log, topic, promise, may_be_hurt=is_hurt, said=said)
            if is_hurt:
                verdict = found
            # A lost list of log starts brings deleted records back; it takes none away.
            assert log.log_start >= promise.start_promised or hurt.name == LOG_STARTS
    return verdict


def judge_log(log: PartitionLog, topic: Topic, promise: Promise, *, may_be_hurt: bool, said: str) -> str:
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


def hits_an_unguarded_field(damage: Damage, before: bytes, after: bytes, name: str) -> bool:
    """Offset and leader epoch of a batch stand outside its CRC; in a segment that no start looks into, nothing tells."""
    if damage is not flip_a_bit or not name.endswith(".log"):
        return False
    changed = next(at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
    position = 0
    while position + read_header(before, position).size <= changed:
        position += read_header(before, position).size
    return changed - position < 17


@pytest.mark.parametrize("state", ["stopped", "killed"])
def test_no_damage_to_one_file_loses_what_was_acknowledged_without_a_word(
    state: str, request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left: Left = request.getfixturevalue(state)
    verdicts: dict[str, set[str]] = {}
    cases = 0
    for number, name in enumerate(files_of(left.root)):
        for variant, damage in enumerate(DAMAGES):
            copy = tmp_path / f"{number}-{variant}"
            shutil.copytree(left.root, copy)
            damage(copy / name, random.Random(number * 100 + variant))
            before = (left.root / name).read_bytes()
            after = (copy / name).read_bytes() if (copy / name).exists() else b""
            if hits_an_unguarded_field(damage, before, after, name.name):
                continue
            caplog.clear()
            try:
                life = asyncio.run(open_damaged(left, copy))
                verdict = judge(life, name, caplog.text)
            except Exception as error:
                raise AssertionError(f"{damage.__name__} of {name} ({state}, {number}-{variant})") from error
            verdicts.setdefault(name.suffix or name.name, set()).add(verdict)
            cases += 1
            shutil.rmtree(copy)
    assert cases > 150
    assert verdicts[".log"] >= {"whole", "offline"}
    # Everything but the records themselves can be lost without losing any of them.
    assert {kind: found for kind, found in verdicts.items() if kind != ".log" and found != {"whole"}} == {}


def test_all_that_is_made_from_the_records_can_be_lost_together(killed: Left, tmp_path: Path) -> None:
    shutil.copytree(killed.root, tmp_path / "data")
    for name in files_of(tmp_path / "data"):
        if name.suffix != ".log" and name.name != LOG_STARTS:
            (tmp_path / "data" / name).unlink()
    life = asyncio.run(open_damaged(killed, tmp_path / "data"))
    assert judge(life, Path("none"), "") == "whole"


def test_a_mark_of_an_earlier_clean_stop_hides_nothing(stopped: Left, killed: Left, tmp_path: Path) -> None:
    """As if the removal of the mark had been undone: it speaks of logs that have grown since, or are gone."""
    shutil.copytree(killed.root, tmp_path / "data")
    shutil.copy(stopped.root / CLEAN_STOP, tmp_path / "data" / CLEAN_STOP)
    life = asyncio.run(open_damaged(killed, tmp_path / "data"))
    assert judge(life, Path("none"), "") == "whole"
    for topic in life.topics.values():
        for index, promise in enumerate(topic.promises):
            assert life.find(topic.name, index).log.next_offset == promise.acked_end
