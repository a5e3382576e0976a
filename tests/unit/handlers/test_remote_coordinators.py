"""Coordinators that are on another broker, on none, or no longer here: what clients are told to do."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.handlers.peering import OTHER, OtherBroker, other_broker
from tests.unit.handlers.transacting import SETTINGS, name, producer

from penstock.handlers import group_offsets, groups, transaction_listing
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.wire.apis import ApiKey

KINDS = [(0, GROUP_OFFSETS_TOPIC), (1, TRANSACTION_STATE_TOPIC)]


@pytest.fixture
def settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
async def elsewhere(node: Any) -> AsyncIterator[OtherBroker]:
    async with other_broker(node) as other:
        yield other


async def find(node: Any, kind: int) -> Any:
    (found,) = (
        await node.call(
            groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, key_type=kind, coordinator_keys=["name"]
        )
    ).coordinators
    return found


@pytest.mark.parametrize(("kind", "topic"), KINDS)
async def test_a_coordinator_is_found_where_its_partition_is_led(
    node: Any, elsewhere: OtherBroker, kind: int, topic: str
) -> None:
    here = await find(node, kind)
    assert (here.node_id, here.error_code) == (1, 0)
    elsewhere.lead(topic)
    there = await find(node, kind)
    assert (there.node_id, there.port) == (OTHER, node.context.image.brokers[OTHER].endpoint.port)


@pytest.mark.parametrize(("kind", "topic"), KINDS)
@pytest.mark.parametrize("leader", [-1, 9])
async def test_while_its_partition_has_no_leader_there_is_no_coordinator(
    node: Any, elsewhere: OtherBroker, kind: int, topic: str, leader: int
) -> None:
    elsewhere.resign(topic, leader=leader)
    found = await find(node, kind)
    assert (name(found.error_code), found.node_id) == ("COORDINATOR_NOT_AVAILABLE", -1)


async def test_a_broker_that_lost_a_group_says_that_it_is_not_its_coordinator(
    node: Any, elsewhere: OtherBroker
) -> None:
    for index in range(2):
        node.context.groups.resign(index)
    answer = await node.call(groups.handle_heartbeat, ApiKey.HEARTBEAT, group_id="g", generation_id=1, member_id="m")
    assert name(answer.error_code) == "NOT_COORDINATOR"
    fetched = await node.call(
        group_offsets.handle_offset_fetch, ApiKey.OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}]
    )
    assert name(fetched.groups[0].error_code) == "NOT_COORDINATOR"


async def test_a_broker_that_lost_a_transactional_id_says_that_it_is_not_its_coordinator(
    node: Any, elsewhere: OtherBroker
) -> None:
    await node.create("orders")
    one = await producer(node)
    for index in range(2):
        node.context.transactions.resign(index)
    assert await one.init() == "NOT_COORDINATOR"
    assert await one.add(("orders", 0)) == {("orders", 0): "NOT_COORDINATOR"}
    assert await one.end(True) == "NOT_COORDINATOR"
    assert name((await one.description()).error_code) == "NOT_COORDINATOR"
    listed = await node.call(transaction_listing.handle_list_transactions, ApiKey.LIST_TRANSACTIONS)
    assert (name(listed.error_code), listed.transaction_states) == ("NONE", ()), "each broker lists its own"
