"""handlers.transaction_listing: what operators are shown of transactions and of the producers in a partition."""

from typing import Any

import pytest
from tests.unit.handlers.transacting import SETTINGS, TIMEOUT_MS, name, producer, versions

from penstock.errors import ErrorCode
from penstock.handlers import transaction_listing
from penstock.wire.apis import ApiKey

DESCRIBE, LIST, PRODUCERS = ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_PRODUCERS


@pytest.fixture
def settings() -> dict[str, str]:
    return SETTINGS


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("orders", 3)
    return node


async def described(node: Any, *transactional_ids: str) -> Any:
    answer = await node.call(
        transaction_listing.handle_describe_transactions, DESCRIBE, transactional_ids=transactional_ids
    )
    return answer.transaction_states


async def listed(node: Any, version: int = 2, **body: Any) -> Any:
    return await node.call(transaction_listing.handle_list_transactions, LIST, version, **body)


def names(answer: Any) -> set[str]:
    assert answer.error_code == 0
    return {found.transactional_id for found in answer.transaction_states}


# Transactions


async def test_a_transaction_is_described_with_what_it_touches_and_since_when(orders: Any) -> None:
    one = await producer(orders)
    (idle,) = await described(orders, "t")
    assert (idle.transaction_state, idle.transaction_start_time, idle.topics) == ("Empty", None, ())
    before_ms = orders.context.clock.now_ms()
    await one.add(("orders", 2), ("orders", 0))
    (found,) = await described(orders, "t")
    assert (found.error_code, found.transactional_id, found.transaction_state) == (0, "t", "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (one.producer_id, one.epoch)
    assert found.transaction_timeout.total_seconds() * 1000 == TIMEOUT_MS
    started_ms = found.transaction_start_time.timestamp() * 1000
    assert before_ms <= started_ms <= orders.context.clock.now_ms()
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", (0, 2))]


async def test_what_cannot_be_described_says_why(orders: Any) -> None:
    await producer(orders)
    found = await described(orders, "nobody", "", "t", "t")
    assert [(one.transactional_id, name(one.error_code)) for one in found] == [
        ("nobody", "TRANSACTIONAL_ID_NOT_FOUND"),
        ("", "INVALID_REQUEST"),
        ("t", "NONE"),  # once, however often it was asked for
    ]
    assert await described(orders) == ()
    orders.context.transactions.resign(orders.context.transactions.partition_of("t"))
    assert [name(one.error_code) for one in await described(orders, "t")] == ["NOT_COORDINATOR"]


@pytest.mark.parametrize("version", versions(LIST))
async def test_transactions_are_listed_by_state_and_producer(orders: Any, version: int) -> None:
    one, two = await producer(orders, "one"), await producer(orders, "two")
    await one.add(("orders", 0))
    answer = await listed(orders, version)
    assert {
        (found.transactional_id, found.producer_id, found.transaction_state) for found in answer.transaction_states
    } == {
        ("one", one.producer_id, "Ongoing"),
        ("two", two.producer_id, "Empty"),
    }
    assert names(await listed(orders, version, state_filters=["Ongoing"])) == {"one"}
    assert names(await listed(orders, version, state_filters=["Ongoing", "Empty", "CompleteAbort"])) == {"one", "two"}
    assert names(await listed(orders, version, producer_id_filters=[two.producer_id, 987_654])) == {"two"}
    assert (
        names(await listed(orders, version, producer_id_filters=[two.producer_id], state_filters=["Ongoing"])) == set()
    )


@pytest.mark.parametrize("version", versions(LIST))
async def test_states_there_are_none_of_are_named_and_match_nothing(orders: Any, version: int) -> None:
    await producer(orders)
    answer = await listed(orders, version, state_filters=["Nonsense", "Empty", "Nonsense"])
    assert (answer.unknown_state_filters, names(answer)) == (("Nonsense",), {"t"})
    assert names(await listed(orders, version, state_filters=["Nonsense"])) == set()


@pytest.mark.parametrize("version", [1, 2])
async def test_only_transactions_open_for_longer_are_listed(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    assert names(await listed(orders, version, duration_filter=-1)) == {"t"}
    assert names(await listed(orders, version, duration_filter=3_600_000)) == set()


async def test_transactional_ids_are_matched_as_a_whole(orders: Any) -> None:
    for transactional_id in ("payments-1", "payments-2", "my-payments-1"):
        await producer(orders, transactional_id)
    assert names(await listed(orders, transactional_id_pattern="payments-.*")) == {"payments-1", "payments-2"}
    assert names(await listed(orders, transactional_id_pattern="payments")) == set()
    for everything in ("", None):
        assert len(names(await listed(orders, transactional_id_pattern=everything))) == 3
    assert (await listed(orders, transactional_id_pattern="(")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


# Producers


async def test_the_producer_that_keeps_committed_readers_waiting_is_shown(orders: Any) -> None:
    one = await producer(orders)
    orders.append("orders", 1_700_000_000_000)
    await one.add(("orders", 0))
    assert [await one.produce() for _ in range(2)] == ["NONE", "NONE"]

    async def active() -> Any:
        topics = [{"name": "orders", "partition_indexes": [0, 0]}, {"name": "orders", "partition_indexes": [0]}]
        answer = await orders.call(transaction_listing.handle_describe_producers, PRODUCERS, topics=topics)
        ((partition,),) = [topic.partitions for topic in answer.topics]
        assert (partition.partition_index, partition.error_code, partition.error_message) == (0, 0, None)
        (found,) = partition.active_producers
        assert (found.producer_id, found.producer_epoch, found.last_sequence) == (one.producer_id, one.epoch, 1)
        assert abs(found.last_timestamp - orders.context.clock.now_ms()) < 60_000
        return found

    found = await active()
    assert (found.current_txn_start_offset, found.coordinator_epoch) == (1, -1)
    assert orders.partition("orders").last_stable_offset == 1
    await one.end(True)
    await one.settled()
    found = await active()
    assert found.current_txn_start_offset == -1
    assert found.coordinator_epoch >= 0


async def test_partitions_without_producers_and_without_a_place_are_told_apart(orders: Any) -> None:
    topics = [
        {"name": "orders", "partition_indexes": [1, 9, -1]},
        {"name": "nowhere", "partition_indexes": [0]},
        {"name": "not a name", "partition_indexes": [0]},
        {"name": "orders", "partition_indexes": []},
    ]
    answer = await orders.call(transaction_listing.handle_describe_producers, PRODUCERS, topics=topics)
    assert {
        (topic.name, partition.partition_index): name(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    } == {
        ("orders", 1): "NONE",
        ("orders", 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("orders", -1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ("not a name", 0): "INVALID_TOPIC_EXCEPTION",
    }
    assert (await orders.call(transaction_listing.handle_describe_producers, PRODUCERS, topics=[])).topics == ()
