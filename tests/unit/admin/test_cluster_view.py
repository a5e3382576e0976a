"""cli.cluster_view: what follows from who leads, holds and is moved."""

import pytest

from penstock.admin.cluster_view import Broker, ClusterView, Move, Partition
from penstock.admin.failures import CommandFailed
from penstock.model import Endpoint, TopicPartition


def partition(index: int, leader: int | None, replicas: tuple[int, ...], *in_sync: int, **more: Move) -> Partition:
    return Partition(TopicPartition("orders", index), leader, replicas, in_sync, **more)


def view(*partitions: Partition, min_insync: int = 1) -> ClusterView:
    brokers = {node: Broker(node, Endpoint("localhost", 9091 + node), f"rack-{node}") for node in (1, 2, 3)}
    return ClusterView("id", 1, brokers, {one.at: one for one in partitions}, True, {"orders": min_insync})


def test_a_partition_on_its_way_is_where_it_will_be() -> None:
    moving = partition(0, 1, (2, 3, 1), 1, move=Move((2, 3), (1,)))
    assert moving.target == (2, 3)
    assert view(moving).assignment() == {moving.at: (2, 3)}
    assert view(moving).assignment(["bills"]) == {}


def test_a_replica_that_is_only_just_added_is_not_missed() -> None:
    assert not partition(0, 1, (2, 1), 1, move=Move((2,), ())).is_under_replicated
    assert partition(0, 1, (2, 1), 1).is_under_replicated


def test_too_few_in_sync_are_measured_by_what_the_topic_wants_and_can_have() -> None:
    assert view(min_insync=2).is_under_min_insync(partition(0, 1, (1, 2, 3), 1))
    assert not view(min_insync=2).is_under_min_insync(partition(0, 1, (1, 2, 3), 1, 2))
    # One replica cannot be more than one.
    assert not view(min_insync=2).is_under_min_insync(partition(0, 1, (1,), 1))


def test_brokers_that_hold_replicas_and_are_not_there_are_missing() -> None:
    assert view(partition(0, 1, (1, 7), 1), partition(1, None, (5,))).missing == [5, 7]


def test_leaders_and_replicas_are_counted_by_broker() -> None:
    found = view(partition(0, 2, (1, 2), 1, 2), partition(1, None, (1,)))
    assert found.leaders() == {2: 1}
    assert found.preferred() == {1: 2}
    assert found.holders() == {1: 2, 2: 1}
    assert [one.is_led_by_preferred for one in found.partitions.values()] == [False, False]


def test_a_broker_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(CommandFailed, match="there is no broker 9") as failure:
        view().require_broker(9)
    assert "1, 2, 3" in failure.value.advice
