"""handlers.marker_sending: every marker goes to whoever leads its partition, here or elsewhere, until it is written."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.handlers.peering import OtherBroker, other_broker
from tests.unit.handlers.transacting import SETTINGS, producer

from penstock.client.peers import Peers
from penstock.errors import ErrorCode
from penstock.handlers.marker_sending import MarkerSender
from penstock.model import GROUP_OFFSETS_TOPIC, TopicPartition
from penstock.records.markers import ControlType, Marker
from penstock.transactions.markers import MarkerToWrite

HERE, THERE, ALSO_THERE = (TopicPartition("orders", index) for index in range(3))


@pytest.fixture
def settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("orders", 3)
    return node


@pytest.fixture
async def elsewhere(orders: Any) -> AsyncIterator[OtherBroker]:
    async with other_broker(orders) as other:
        other.lead("orders", 1)
        other.lead("orders", 2)
        yield other


@pytest.fixture
async def sender(orders: Any) -> AsyncIterator[MarkerSender]:
    def find(node_id: int) -> Any:
        return orders.context.image.brokers[node_id].endpoint

    sender = MarkerSender(orders.context.image, 1, orders.context.write_markers, Peers(find, "broker-1"))
    yield sender
    await sender.close()


def markers(*partitions: TopicPartition, producer_id: int = 5, is_version_2: bool = False) -> list[MarkerToWrite]:
    marker = Marker(ControlType.ABORT, 3)
    return [MarkerToWrite(at, marker, producer_id, 1, is_version_2) for at in partitions]


def markers_at(node: Any, at: TopicPartition) -> int:
    return node.partition(at.topic, at.partition).log.next_offset


async def test_markers_go_to_their_leaders_those_of_one_broker_together(
    orders: Any, elsewhere: OtherBroker, sender: MarkerSender
) -> None:
    codes = await sender.write(markers(HERE, THERE, ALSO_THERE, is_version_2=True))
    assert codes == dict.fromkeys((HERE, THERE, ALSO_THERE), ErrorCode.NONE)
    assert [markers_at(orders, at) for at in codes] == [1, 1, 1]
    (asked,) = elsewhere.asked
    (marker,) = asked.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (5, 1, 3)
    assert (marker.transaction_result, marker.transaction_version) == (False, 2)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", (1, 2))]


async def test_markers_of_several_transactions_share_a_request(
    orders: Any, elsewhere: OtherBroker, sender: MarkerSender
) -> None:
    writes = [sender.write(markers(THERE, producer_id=number)) for number in range(20)]
    assert await asyncio.gather(*writes) == [{THERE: ErrorCode.NONE}] * 20
    assert markers_at(orders, THERE) == 20
    assert len(elsewhere.asked) == 1


async def test_a_partition_that_is_gone_needs_no_marker_and_one_without_a_leader_waits(
    orders: Any, elsewhere: OtherBroker, sender: MarkerSender
) -> None:
    elsewhere.resign("orders", 2, leader=-1)
    gone, beyond = TopicPartition("gone", 0), TopicPartition("orders", 3)
    assert await sender.write(markers(gone, beyond, ALSO_THERE)) == {
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ALSO_THERE: ErrorCode.LEADER_NOT_AVAILABLE,
    }


async def test_a_leader_that_has_not_heard_of_the_partition_yet_is_asked_again(
    orders: Any, elsewhere: OtherBroker, sender: MarkerSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def knows_nothing(wanted: Any) -> Any:
        return {marker.partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for marker in wanted}

    monkeypatch.setattr(orders.context, "write_markers", knows_nothing)
    assert await sender.write(markers(THERE)) == {THERE: ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_a_broker_that_cannot_be_reached_keeps_nobody_else_from_its_marker(
    orders: Any, elsewhere: OtherBroker, sender: MarkerSender
) -> None:
    await elsewhere.close()
    assert await sender.write(markers(HERE, THERE)) == {HERE: ErrorCode.NONE, THERE: ErrorCode.NETWORK_EXCEPTION}


async def test_a_marker_of_a_coordinator_that_was_replaced_is_refused_there_too(
    orders: Any, elsewhere: OtherBroker, sender: MarkerSender
) -> None:
    later = Marker(ControlType.ABORT, 4)
    orders.partition("orders", 1).append_marker(later, 5, 1, orders.context.clock.now_ms())
    assert await sender.write(markers(THERE)) == {THERE: ErrorCode.TRANSACTION_COORDINATOR_FENCED}


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_ends_in_all_its_partitions_wherever_they_are_led(
    orders: Any, elsewhere: OtherBroker, is_commit: bool
) -> None:
    one = await producer(orders)
    assert [await one.produce("orders", index, 12) for index in range(3)] == ["NONE"] * 3
    assert await one.end(is_commit, 5) == "NONE"
    assert await one.settled() == ("CompleteCommit" if is_commit else "CompleteAbort")
    for index in range(3):
        log = orders.partition("orders", index).log
        assert (log.next_offset, log.producers.first_unstable(log.next_offset)) == (2, None)


async def test_a_transaction_is_complete_once_a_broker_that_was_away_is_back_or_its_partition_has_moved(
    orders: Any, elsewhere: OtherBroker
) -> None:
    one = await producer(orders)
    assert [await one.produce("orders", index, 12) for index in (1, 2)] == ["NONE"] * 2
    await elsewhere.close()
    assert await one.end(True, 5) == "NONE"
    assert await one.state() == "PrepareCommit"
    elsewhere.resign("orders", 2)
    await elsewhere.open()
    assert await one.settled() == "CompleteCommit"
    assert [markers_at(orders, at) for at in (THERE, ALSO_THERE)] == [2, 2]


async def test_offsets_count_once_the_marker_has_come_to_their_group_coordinator(
    orders: Any, elsewhere: OtherBroker
) -> None:
    one = await producer(orders)
    assert await one.add_offsets() == "NONE"
    assert await one.commit_offsets(9) == "NONE"
    elsewhere.lead(GROUP_OFFSETS_TOPIC)
    assert await one.end(True) == "NONE"
    assert await one.settled() == "CompleteCommit"
    assert orders.context.groups.committed_offsets("g")[0][2].offset == 9
