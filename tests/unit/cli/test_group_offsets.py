"""Where a group's offsets are moved to, worked out before anything is changed."""

from collections.abc import Iterable

import pytest
import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.offsets import EARLIEST, LATEST, Found
from penstock.cli import group_offsets
from penstock.cli.group_offsets import Move, Target, choose_target, plan_moves
from penstock.model import TopicPartition

AT = TopicPartition("t", 0)
CLUSTER = Cluster("127.0.0.1:1", {}, 1.0, as_json=False)
NOWHERE = (False, False, None, None, None, None, None)


@pytest.fixture
def offsets(monkeypatch: pytest.MonkeyPatch) -> dict[int, Found]:
    """What the cluster says: EARLIEST and LATEST, or a timestamp."""
    answers = {EARLIEST: Found(10), LATEST: Found(100)}

    def find(_: Cluster, partitions: Iterable[TopicPartition], at: int) -> dict[TopicPartition, Found]:
        return dict.fromkeys(partitions, answers[at])

    monkeypatch.setattr(group_offsets, "find_offsets", find)
    return answers


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (Target(to_moment_ms=EARLIEST), 10),
        (Target(to_moment_ms=LATEST), 100),
        (Target(shift_by=5), 55),
        (Target(shift_by=-5), 45),
        (Target(shift_by=1000), 100),
        (Target(shift_by=-1000), 10),
        (Target(to_offset=77), 77),
        (Target(to_offset=5), 10),
        (Target(to_offset=500), 100),
    ],
)
def test_a_new_offset_lies_between_start_and_end(offsets: dict[int, Found], target: Target, new: int) -> None:
    assert plan_moves(CLUSTER, [AT], {AT: 50}, target) == [Move(AT, 50, new)]


def test_a_time_newer_than_every_message_is_the_end(offsets: dict[int, Found]) -> None:
    offsets[1000] = Found(None)
    assert plan_moves(CLUSTER, [AT], {}, Target(to_moment_ms=1000)) == [Move(AT, None, 100)]
    offsets[1000] = Found(60)
    assert plan_moves(CLUSTER, [AT], {}, Target(to_moment_ms=1000)) == [Move(AT, None, 60)]


def test_what_was_never_committed_cannot_be_shifted(offsets: dict[int, Found]) -> None:
    with pytest.raises(CommandFailed, match="no offset to shift"):
        plan_moves(CLUSTER, [AT], {}, Target(shift_by=1))


def test_a_partition_that_does_not_answer_stops_the_plan(offsets: dict[int, Found]) -> None:
    offsets[LATEST] = Found(None, "it is gone")
    with pytest.raises(CommandFailed, match="it is gone"):
        plan_moves(CLUSTER, [AT], {AT: 1}, Target(to_moment_ms=LATEST))


def test_one_may_say_where_to_in_one_way_only() -> None:
    with pytest.raises(typer.BadParameter, match="say once"):
        choose_target(*NOWHERE)
    with pytest.raises(typer.BadParameter, match="say once"):
        choose_target(True, False, None, None, None, -1, None)
    assert choose_target(False, False, "1970-01-01T00:00:01Z", None, None, None, None) == Target(to_moment_ms=1000)
    assert choose_target(False, False, None, 0, None, None, None) == Target(to_moment_ms=0)
    assert choose_target(False, False, None, None, None, None, 0) == Target(to_offset=0)
    long_ago = choose_target(False, False, None, None, "2d", None, None).to_moment_ms
    yesterday = choose_target(False, False, None, None, "1d", None, None).to_moment_ms
    assert long_ago is not None
    assert yesterday is not None
    assert 80_000_000 < yesterday - long_ago < 90_000_000
