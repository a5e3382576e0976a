"""cli.reassigning: a move is over when replicas are where they were to be, whoever was asked."""

from typing import Any

import pytest

from penstock.admin.cluster_view import ClusterView, Move, Partition
from penstock.cli import reassigning
from penstock.model import TopicPartition

AT = TopicPartition("orders", 0)


def view(*replicas: int) -> ClusterView:
    return ClusterView("c", 1, {}, {AT: Partition(AT, 1, replicas, replicas)}, knows_moves=True)


BEFORE, AFTER = view(1, 2), view(1, 3)
MOVING = {AT: Move((3,), (2,))}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says one picture after another, and the last of them for ever; a look takes a second."""
    now = [0.0]

    class Pictures:
        moves: list[dict[TopicPartition, Move]]
        views: list[ClusterView]

    pictures = Pictures()

    def next_of(given: list[Any]) -> Any:
        return given.pop(0) if len(given) > 1 else given[0]

    def sleep(_: float) -> None:
        now[0] += 1.0

    monkeypatch.setattr(reassigning, "list_moves", lambda _: next_of(pictures.moves))
    monkeypatch.setattr(reassigning, "view_cluster", lambda _: next_of(pictures.views))
    monkeypatch.setattr(reassigning, "describe_log_dirs", lambda _: [])
    monkeypatch.setattr(reassigning.time, "sleep", sleep)
    monkeypatch.setattr(reassigning.SystemClock, "monotonic", lambda _: now[0])
    return pictures


def wait(cluster: Any) -> ClusterView:
    return reassigning.wait_until_moved(cluster, BEFORE, {AT: (1, 3)}, None)


def test_a_broker_that_has_not_heard_of_the_move_yet_does_not_end_the_waiting(cluster: Any) -> None:
    cluster.moves, cluster.views = [{}, MOVING, {}], [BEFORE, AFTER]
    assert wait(cluster) is AFTER


def test_a_broker_that_has_not_heard_of_its_end_does_not_tell_how_it_ended(cluster: Any) -> None:
    cluster.moves, cluster.views = [MOVING, {}], [BEFORE, BEFORE, AFTER]
    assert wait(cluster) is AFTER


def test_a_move_that_was_taken_back_is_not_waited_for_for_ever(cluster: Any) -> None:
    cluster.moves, cluster.views = [MOVING, {}], [BEFORE]
    assert wait(cluster) is BEFORE


def test_a_topic_that_was_deleted_meanwhile_is_not_waited_for(cluster: Any) -> None:
    gone = ClusterView("c", 1, {}, {}, knows_moves=True)
    cluster.moves, cluster.views = [MOVING, {}], [gone]
    assert wait(cluster) is gone
