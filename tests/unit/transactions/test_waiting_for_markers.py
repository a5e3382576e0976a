"""A transaction's end is answered before its markers are written: who comes meanwhile waits for them."""

import asyncio
from typing import Any

import pytest
from tests.unit.transactions.producing import (
    BUSY,
    FENCED,
    OK,
    TIMEOUT_MS,
    A,
    B,
    begin,
    end,
    opened,
    opened_as,
    settled,
    states,
)

from penstock.errors import CoordinatorNotAvailable, ErrorCode, NotCoordinator, NotEnoughReplicas
from penstock.records.batch import read_header
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.transaction import State


async def test_the_end_is_answered_before_the_markers_and_all_else_waits_for_them(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    assert next_grant.error is OK
    producer = (next_grant.producer_id, next_grant.producer_epoch)
    assert coordinator.describe("pay").state == "PrepareCommit"
    assert (await end(coordinator, grant)).error is BUSY
    assert (await end(coordinator, grant, is_commit=False)).error is BUSY
    assert (await coordinator.init_producer_id("pay", TIMEOUT_MS)).error is BUSY
    assert coordinator.verify_partitions("pay", *producer, [A]) == {A: BUSY}
    assert await coordinator.add_partitions("pay", *producer, {A}) is BUSY
    partitions.gate.set()
    assert await settled(coordinator) == "CompleteCommit"
    assert (await end(coordinator, grant)) == next_grant
    assert (await end(coordinator, grant, is_commit=False)).error is ErrorCode.INVALID_TXN_STATE


async def test_the_next_transaction_waits_a_little_for_the_markers_instead_of_being_sent_away(
    coordinator: TransactionCoordinator, partitions: Any, ledger: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    _, *producer = await end(coordinator, grant)
    asyncio.get_running_loop().call_later(0.09, partitions.gate.set)
    first = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    second = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {B}))
    assert [await first, await second] == [OK, OK]
    assert coordinator.describe("pay").partitions == (A, B)
    # Complete and ongoing are one batch, hence one fsync.
    assert states(ledger)[-3:] == [State.PREPARE_COMMIT, State.COMPLETE_COMMIT, State.ONGOING]
    assert read_header(ledger.batches[-1]).record_count == 2
    assert (coordinator.committed, coordinator.open_count()) == (1, 1)


async def test_a_zombie_that_waited_for_the_markers_is_fenced_with_the_next_transaction(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    _, *producer = await end(coordinator, grant)
    asyncio.get_running_loop().call_later(0.05, partitions.gate.set)
    zombie = asyncio.ensure_future(opened_as(coordinator, grant))
    owner = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    assert [await zombie, await owner] == [FENCED, OK]


async def test_who_waits_for_a_record_on_its_way_is_answered_when_it_is_there(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await begin(coordinator)
    ledger.held = []
    producer = (grant.producer_id, grant.producer_epoch)
    first = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    second = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {B}))
    asyncio.get_running_loop().call_later(0.05, ledger.release)
    assert [await first, await second] == [OK, OK]
    assert coordinator.describe("pay").partitions == (A, B)


async def test_a_next_transaction_that_comes_with_a_refused_completion_is_told_and_may_come_again(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    ledger.refusal = NotEnoughReplicas("too few")
    waiting = asyncio.ensure_future(opened_as(coordinator, next_grant))
    await asyncio.sleep(0)
    partitions.gate.set()
    with pytest.raises(CoordinatorNotAvailable):
        await waiting
    assert coordinator.describe("pay").state == "PrepareCommit"
    ledger.refusal = None
    assert await settled(coordinator) == "CompleteCommit"
    assert await opened_as(coordinator, next_grant) is OK


async def test_a_next_transaction_on_its_way_to_the_log_is_not_sent_away_by_the_clock(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    waiting = asyncio.ensure_future(opened_as(coordinator, next_grant))
    await asyncio.sleep(0)
    ledger.held = []
    partitions.gate.set()
    await asyncio.sleep(1)
    assert not waiting.done()
    ledger.release()
    assert await waiting is OK


async def test_one_that_came_before_the_end_was_written_waits_for_its_markers_too(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await opened(coordinator)
    ledger.held = []
    ending = asyncio.ensure_future(end(coordinator, grant, version=1))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(opened_as(coordinator, grant))
    await asyncio.sleep(0)
    ledger.release()
    assert (await ending).error is OK
    assert await waiting is OK
    assert read_header(ledger.batches[-1]).record_count == 2


async def test_one_that_hung_up_while_it_waited_begins_nothing(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    waiting = asyncio.ensure_future(opened_as(coordinator, next_grant))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    partitions.gate.set()
    assert await settled(coordinator) == "CompleteCommit"


async def test_who_waits_for_markers_is_told_when_the_partition_is_led_elsewhere(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    _, *producer = await end(coordinator, grant)
    waiting = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    await asyncio.sleep(0)
    coordinator.resign(0)
    with pytest.raises(NotCoordinator):
        await waiting
