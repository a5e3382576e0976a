"""handlers.transactional_produce: nothing is appended that the transaction coordinator does not know of."""

import asyncio
from typing import Any

import pytest
from tests.unit.handlers.transacting import (
    SETTINGS,
    Producer,
    outcomes,
    produce,
    producer,
    start_produce,
    until,
    versions,
)

from penstock.errors import ErrorCode, StorageFailed
from penstock.handlers.answers import made
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.wire.apis import ApiKey

OLD = [version for version in versions(ApiKey.PRODUCE) if version < 12]
NEW = [version for version in versions(ApiKey.PRODUCE) if version >= 12]
EVERY = OLD + NEW


@pytest.fixture
def settings() -> dict[str, str]:
    # No time is given to what waits for an earlier transaction: it is told at once.
    return {**SETTINGS, "add.partitions.to.txn.retry.backoff.max.ms": "0"}


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("orders", 3)
    return node


def written(node: Any, index: int = 0) -> int:
    return node.partition("orders", index).log.next_offset


# What is known of


@pytest.mark.parametrize("version", OLD)
async def test_a_batch_of_an_old_client_needs_a_partition_that_was_added(orders: Any, version: int) -> None:
    one = await producer(orders)
    refused = "TRANSACTION_ABORTABLE" if version >= 11 else "INVALID_TXN_STATE"
    assert await one.produce(version=version) == refused
    await one.add(("orders", 1))
    assert await one.produce(version=version) == refused
    assert written(orders) == 0
    await one.add(("orders", 0))
    assert [await one.produce(version=version) for _ in range(3)] == ["NONE"] * 3
    assert written(orders) == 3


@pytest.mark.parametrize("version", NEW)
async def test_a_batch_of_a_new_client_adds_its_partition(orders: Any, version: int) -> None:
    one = await producer(orders)
    for is_commit in (True, False, True):
        assert [await one.produce("orders", index, version) for index in (0, 2, 0, 2)] == ["NONE"] * 4
        (topic,) = (await one.description()).topics
        assert (topic.topic, topic.partitions) == ("orders", (0, 2))
        assert await one.end(is_commit, 5) == "NONE"
        await one.settled()
    assert (written(orders), written(orders, 1), written(orders, 2)) == (9, 0, 9)


@pytest.mark.parametrize("version", NEW)
async def test_all_partitions_of_a_request_join_together(orders: Any, version: int) -> None:
    one = await producer(orders)
    batches = [("orders", index, one.batch("orders", index)) for index in (2, 0, 1)]
    answer = start_produce(orders, version, batches, transactional_id="t")
    assert orders.connection.holds_back_the_next
    assert written(orders) == 0
    assert outcomes(await answer, version) == ["NONE"] * 3
    assert not orders.connection.holds_back_the_next
    assert [written(orders, index) for index in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("version", NEW)
async def test_a_partition_named_twice_takes_both_batches_in_order(orders: Any, version: int) -> None:
    one = await producer(orders)
    batches = [("orders", 0, one.batch(base_sequence=sequence)) for sequence in (0, 1)]
    assert await produce(orders, version, batches, transactional_id="t") == ["NONE", "NONE"]
    assert written(orders) == 2


@pytest.mark.parametrize("version", NEW)
async def test_the_next_request_is_taken_as_soon_as_the_first_is_appended(orders: Any, version: int) -> None:
    one = await producer(orders)
    seen: list[tuple[int, bool, bool]] = []
    orders.connection.take_more = lambda: seen.append(
        (written(orders), orders.connection.holds_back_the_next, answer.done())
    )
    answer = start_produce(orders, version, [("orders", 0, one.batch())], transactional_id="t")
    assert outcomes(await answer, version) == ["NONE"]
    assert seen == [(1, False, False)]


@pytest.mark.parametrize("version", EVERY)
async def test_what_continues_a_transaction_is_appended_at_once(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0), ("orders", 1))
    # Added, but nothing written yet: the coordinator here is asked, and knows.
    for index, before in ((0, 0), (1, 0), (0, 1)):
        start_produce(orders, version, [("orders", index, one.batch("orders", index, base_sequence=before))],
                      transactional_id="t")  # fmt: skip
        assert not orders.connection.holds_back_the_next
        assert written(orders, index) == before + 1


# What is over


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", OLD)
async def test_a_batch_that_comes_after_the_end_does_not_open_the_transaction_again(
    orders: Any, version: int, is_commit: bool
) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    await one.produce()
    late = one.batch()
    assert await one.end(is_commit) == "NONE"
    await one.settled()
    assert await one.produce(records=late, version=version) == (
        "TRANSACTION_ABORTABLE" if version >= 11 else "INVALID_TXN_STATE"
    )
    partition = orders.partition("orders")
    assert partition.last_stable_offset == partition.high_watermark == 2


@pytest.mark.parametrize("version", NEW)
async def test_a_batch_of_the_epoch_before_is_fenced(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.produce(version=version)
    late = one.batch()
    assert await one.end(False, 5) == "NONE"
    await one.settled()
    assert await one.produce(records=late, version=version) == "INVALID_PRODUCER_EPOCH"
    assert written(orders) == 2
    assert await one.produce("orders", 1, version, one.batch(producer_epoch=0)) == "INVALID_PRODUCER_EPOCH"
    assert written(orders, 1) == 0


@pytest.mark.parametrize("version", EVERY)
async def test_a_zombie_is_fenced_where_it_never_wrote(orders: Any, version: int) -> None:
    zombie = await producer(orders)
    await zombie.add(("orders", 0))
    assert (await producer(orders)).epoch > zombie.epoch
    assert await zombie.produce(version=version) == "INVALID_PRODUCER_EPOCH"
    assert written(orders) == 0 or orders.partition("orders").last_stable_offset == written(orders)


@pytest.mark.parametrize("version", NEW)
async def test_a_transaction_that_begins_in_the_middle_is_missing_its_start(orders: Any, version: int) -> None:
    one = await producer(orders)
    assert await one.produce(version=version, records=one.batch(base_sequence=3)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert written(orders) == 0
    assert await one.produce(version=version) == "NONE"
    assert await one.produce(version=version, records=one.batch(producer_epoch=9, base_sequence=3)) == (
        "INVALID_PRODUCER_EPOCH"
    )


# What passes


@pytest.mark.parametrize("version", EVERY)
async def test_while_the_coordinator_is_away_producers_try_again(orders: Any, version: int) -> None:
    one = await producer(orders)
    orders.context.transactions.resign(orders.context.transactions.partition_of("t"))
    assert await one.produce(version=version) == "NOT_ENOUGH_REPLICAS"
    assert written(orders) == 0


@pytest.mark.parametrize("version", NEW)
async def test_a_coordinator_that_cannot_write_is_no_reason_to_abort(orders: Any, version: int) -> None:
    one = await producer(orders)
    kept_in = orders.partition(TRANSACTION_STATE_TOPIC, orders.context.transactions.partition_of("t"))
    kept_in.log.failure = StorageFailed("the disk is gone")
    assert await one.produce(version=version) == "NOT_ENOUGH_REPLICAS"
    assert written(orders) == 0


@pytest.mark.parametrize("version", EVERY)
async def test_while_the_transaction_before_is_being_ended_producers_try_again(orders: Any, version: int) -> None:
    one = await producer(orders)
    await groups_partition_without_a_coordinator(one)
    assert await one.end(True, 5 if version >= 12 else 3) == "NONE"
    assert await one.state() == "PrepareCommit"
    expected = "CONCURRENT_TRANSACTIONS" if version >= 12 else "NOT_ENOUGH_REPLICAS"
    assert await one.produce(version=version) == expected
    assert written(orders) == 0


async def groups_partition_without_a_coordinator(one: Producer) -> None:
    """A transaction whose marker cannot be written for now."""
    assert await one.add_offsets() == "NONE"
    groups = one.node.context.groups
    groups.resign(groups.partition_of("g"))


# What is wrong with the request


@pytest.mark.parametrize("version", EVERY)
async def test_a_batch_of_a_transaction_needs_a_request_that_says_of_which(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    assert await one.produce() == "NONE"
    batch = one.batch()
    assert await produce(orders, version, [("orders", 0, batch)]) == ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]
    assert await produce(orders, version, [("orders", 1, batch)], transactional_id="other") == [
        "INVALID_PRODUCER_ID_MAPPING"
    ]
    assert await produce(orders, version, [("orders", 1, batch)], transactional_id="") == ["INVALID_REQUEST"]
    assert (written(orders), written(orders, 1)) == (1, 0)


@pytest.mark.parametrize("version", EVERY)
async def test_a_batch_without_a_producer_is_of_no_transaction(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    nobody = one.batch(producer_id=-1, producer_epoch=-1, base_sequence=-1)
    assert await produce(orders, version, [("orders", 0, nobody)], transactional_id="t") == ["INVALID_RECORD"]
    assert written(orders) == 0


@pytest.mark.parametrize("version", EVERY)
async def test_batches_of_two_producers_are_not_one_transaction(orders: Any, version: int) -> None:
    one, two = await producer(orders, "one"), await producer(orders, "two")
    await one.add(("orders", 0))
    batches = [("orders", 0, one.batch()), ("orders", 0, two.batch()), ("orders", 1, plain(one))]
    assert await produce(orders, version, batches, transactional_id="one") == ["INVALID_PRODUCER_ID_MAPPING"] * 3
    assert (written(orders), written(orders, 1)) == (0, 0)


@pytest.mark.parametrize("version", EVERY)
async def test_a_batch_outside_transactions_is_appended_whatever_the_request_says(orders: Any, version: int) -> None:
    one = await producer(orders)
    assert await produce(orders, version, [("orders", 0, plain(one))], transactional_id="t") == ["NONE"]
    assert (await one.state(), written(orders)) == ("Empty", 1)


@pytest.mark.parametrize("version", [11, 12])
async def test_what_is_no_batch_or_has_no_place_gets_its_own_error(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    batches = [
        ("orders", 0, b"rubbish"),
        ("orders", 9, one.batch()),
        ("nowhere", 0, one.batch()),
        ("orders", 0, one.batch()),
    ]
    assert await produce(orders, version, batches, transactional_id="t") == [
        "CORRUPT_MESSAGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NONE",
    ]


@pytest.mark.parametrize("topic", [GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC])
async def test_nobody_writes_where_coordinators_keep_their_state(orders: Any, topic: str) -> None:
    one = await producer(orders)
    await orders.context.ensure_internal_topic(topic)
    for version in EVERY:
        assert await produce(orders, version, [(topic, 0, plain(one))]) == ["INVALID_TOPIC_EXCEPTION"]
        assert await one.produce(topic, 0, version) == "INVALID_TOPIC_EXCEPTION"
    assert await one.state() == "Empty"


def plain(one: Producer) -> bytes:
    return one.batch(producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False)


# Who does not wait


async def test_a_client_that_hangs_up_meanwhile_has_its_batch_left_out_and_its_transaction_whole(orders: Any) -> None:
    one = await producer(orders)
    answer = start_produce(orders, 12, [("orders", 0, one.batch())], transactional_id="t")
    await asyncio.sleep(0)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert not orders.connection.holds_back_the_next

    async def is_open() -> bool:
        return await one.state() == "Ongoing"

    await until(is_open)
    assert written(orders) == 0
    assert await one.produce(version=12) == "NONE"


async def test_acks_0_is_hung_up_on_when_its_transaction_refuses_it(orders: Any) -> None:
    one = await producer(orders)
    for version in (9, 12):
        answer = start_produce(
            orders, version, [("orders", 0, one.batch(producer_epoch=9))], transactional_id="t", acks=0
        )
        answer = await made(answer)
        assert type(answer).__name__ == "Hangup"
    answer = start_produce(orders, 12, [("orders", 0, one.batch())], transactional_id="t", acks=0)
    assert await made(answer) is None
    assert written(orders) == 1


async def test_refusals_are_counted_by_their_code(orders: Any) -> None:
    one = await producer(orders)
    await one.produce(version=9)
    counted = orders.context.metrics.request_errors.child("Produce", ErrorCode.INVALID_TXN_STATE.name)
    assert counted.value == 1
