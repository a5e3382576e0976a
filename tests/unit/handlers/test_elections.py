"""handlers.elections: leaders chosen when somebody asks for it, among a broker and others in name only."""

from typing import Any

import pytest
from tests.unit.handlers.named_brokers import create, deregister, register, set_state

from penstock.errors import ErrorCode, InvalidRequest
from penstock.handlers.elections import handle_elect_leaders
from penstock.wire.apis import ApiKey

ELECT = ApiKey.ELECT_LEADERS
PREFERRED, UNCLEAN = 0, 1


async def elect(node: Any, asked: dict[str, list[int]] | None, kind: int = PREFERRED, version: int = 2) -> Any:
    topics = None if asked is None else [{"topic": name, "partitions": indexes} for name, indexes in asked.items()]
    kinds = {} if version == 0 else {"election_type": kind}
    return await node.call(handle_elect_leaders, ELECT, version, topic_partitions=topics, timeout=10_000, **kinds)


def codes(answer: Any) -> dict[str, ErrorCode]:
    return {
        f"{topic.topic}-{one.partition_id}": ErrorCode(one.error_code)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_preferred_replica_leads_again(node: Any, version: int) -> None:
    await register(node, 2)
    await create(node, "orders", (1, 2))
    await set_state(node, "orders", leader=2, leader_epoch=1)
    answer = await elect(node, {"orders": [0]}, version=version)
    assert codes(answer) == {"orders-0": ErrorCode.NONE}
    state = node.context.image.topics["orders"].partitions[0]
    assert (state.leader, state.leader_epoch) == (1, 2)


async def test_where_the_preferred_replica_leads_already_no_election_is_needed(node: Any) -> None:
    await create(node, "orders", (1,), (1,))
    before = node.context.image.topics["orders"]
    assert codes(await elect(node, {"orders": [0, 1]})) == dict.fromkeys(
        ("orders-0", "orders-1"), ErrorCode.ELECTION_NOT_NEEDED
    )
    assert node.context.image.topics["orders"] == before


async def test_who_asks_for_all_partitions_hears_only_of_those_where_something_was_to_be_done(node: Any) -> None:
    await register(node, 2)
    await create(node, "orders", (1, 2), (1, 2))
    await set_state(node, "orders", 1, leader=2, leader_epoch=1)
    assert codes(await elect(node, None)) == {"orders-1": ErrorCode.NONE}


async def test_a_preferred_replica_that_is_not_in_sync_is_not_elected(node: Any) -> None:
    await register(node, 2)
    await create(node, "orders", (2, 1))
    await set_state(node, "orders", leader=1, leader_epoch=1, isr=[1])
    assert codes(await elect(node, {"orders": [0]})) == {"orders-0": ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert node.context.image.topics["orders"].partitions[0].leader == 1


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unclean_election_brings_back_a_partition_with_any_replica_that_is_there(
    node: Any, version: int
) -> None:
    await register(node, 2)
    await create(node, "orders", (2, 1))
    # Broker 2 alone was in sync, and is gone.
    await set_state(node, "orders", leader=-1, leader_epoch=1, isr=[2])
    await deregister(node, 2)
    assert codes(await elect(node, {"orders": [0]}, UNCLEAN, version)) == {"orders-0": ErrorCode.NONE}
    state = node.context.image.topics["orders"].partitions[0]
    assert (state.leader, state.isr) == (1, (1,))


async def test_an_unclean_election_is_not_for_partitions_that_have_a_leader(node: Any) -> None:
    await create(node, "orders", (1,))
    assert codes(await elect(node, {"orders": [0]}, UNCLEAN)) == {"orders-0": ErrorCode.ELECTION_NOT_NEEDED}


async def test_without_any_replica_nobody_is_elected(node: Any) -> None:
    await register(node, 2)
    await create(node, "orders", (2,))
    await deregister(node, 2)
    assert codes(await elect(node, {"orders": [0]}, UNCLEAN)) == {"orders-0": ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


async def test_what_is_not_there_is_told_and_the_others_are_elected_all_the_same(node: Any) -> None:
    await register(node, 2)
    await create(node, "orders", (1, 2))
    await set_state(node, "orders", leader=2, leader_epoch=1)
    answer = await elect(node, {"orders": [0, 1, -1], "bills": [0]})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == {"orders-0": ErrorCode.NONE, "orders-1": unknown, "orders--1": unknown, "bills-0": unknown}
    (orders, _) = answer.replica_election_results
    assert all((one.error_message is None) == (one.error_code == 0) for one in orders.partition_result)


async def test_a_partition_named_twice_is_elected_and_told_once(node: Any) -> None:
    await register(node, 2)
    await create(node, "orders", (1, 2))
    await set_state(node, "orders", leader=2, leader_epoch=1)
    answer = await elect(node, {"orders": [0, 0, 0]})
    (topic,) = answer.replica_election_results
    assert [one.error_code for one in topic.partition_result] == [0]
    assert node.context.image.topics["orders"].partitions[0].leader_epoch == 2


async def test_nobody_asked_for_is_nobody_elected(node: Any) -> None:
    await create(node, "orders", (1,))
    assert codes(await elect(node, {})) == {}
    assert codes(await elect(node, {"orders": []})) == {}


async def test_a_kind_of_election_that_does_not_exist_is_refused(node: Any) -> None:
    with pytest.raises(InvalidRequest, match="7 is no kind of election"):
        await elect(node, None, 7)


async def test_a_client_that_gives_no_time_is_told_that_it_may_still_happen(node: Any) -> None:
    await create(node, "orders", (1,))
    answer = await node.call(
        handle_elect_leaders,
        ELECT,
        2,
        election_type=PREFERRED,
        topic_partitions=[{"topic": "orders", "partitions": [0]}],
        timeout=-1,
    )
    assert codes(answer)["orders-0"] in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.ELECTION_NOT_NEEDED)
