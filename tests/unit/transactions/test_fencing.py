"""Who may speak for a transactional id: zombies are fenced, of two at once one wins, a last epoch leads to a new id."""

import asyncio
from typing import Any

import pytest
from tests.unit.transactions.producing import (
    BUSY,
    FENCED,
    OK,
    TIMEOUT_MS,
    A,
    Make,
    begin,
    end,
    opened,
    opened_as,
    restarted,
    seed,
    settled,
)

from penstock.errors import ErrorCode, InvalidRequest, RequestTimedOut, TransactionalIdNotFound
from penstock.records.markers import ControlType
from penstock.transactions.coordinator import ProducerGrant, TransactionCoordinator
from penstock.transactions.transaction import EPOCH_MAX, LAST_USABLE_EPOCH, State, Transaction


async def test_a_second_producer_aborts_what_the_first_has_open_and_fences_it(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    zombie = await opened(coordinator)
    assert await coordinator.init_producer_id("pay", TIMEOUT_MS) == (BUSY, -1, -1)
    assert await settled(coordinator) == "CompleteAbort"
    assert {marker.marker.control_type for marker in partitions.written} == {ControlType.ABORT}
    owner = await begin(coordinator)
    assert owner.producer_epoch == zombie.producer_epoch + 3
    for version in (1, 2):
        assert (await end(coordinator, zombie, version=version)).error is FENCED
    producer = (zombie.producer_id, zombie.producer_epoch)
    assert await coordinator.add_partitions("pay", *producer, {A}) is FENCED
    assert coordinator.verify_partitions("pay", *producer, [A]) == {A: FENCED}
    assert (await coordinator.init_producer_id("pay", TIMEOUT_MS, *producer)).error is FENCED
    assert (await opened_as(coordinator, owner)) is OK


async def test_a_zombie_that_asks_for_its_old_id_does_not_abort_its_successors_transaction(
    coordinator: TransactionCoordinator,
) -> None:
    zombie = await begin(coordinator)
    owner = await opened(coordinator)
    grant = await coordinator.init_producer_id("pay", TIMEOUT_MS, zombie.producer_id, zombie.producer_epoch)
    assert grant.error is FENCED
    assert (await end(coordinator, owner)).error is OK


async def test_two_that_start_at_once_get_one_answer_and_one_is_sent_away(
    coordinator: TransactionCoordinator, producer_ids: Any
) -> None:
    grants = await asyncio.gather(*(coordinator.init_producer_id("pay", TIMEOUT_MS) for _ in range(2)))
    assert sorted(grant.error for grant in grants) == [OK, BUSY]


async def test_requests_that_race_with_a_record_on_its_way_are_sent_away(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await opened(coordinator)
    ledger.held = []
    first = asyncio.ensure_future(end(coordinator, grant))
    await asyncio.sleep(0)
    assert (await end(coordinator, grant, is_commit=False)).error is BUSY
    assert (await end(coordinator, grant, is_commit=False, version=1)).error is BUSY
    assert (await coordinator.init_producer_id("pay", TIMEOUT_MS)).error is BUSY
    assert await opened_as(coordinator, grant) is BUSY
    zombie = grant._replace(producer_epoch=grant.producer_epoch - 1)
    assert (await end(coordinator, zombie, version=1)).error is FENCED
    assert coordinator.describe("pay").state == "Ongoing"
    ledger.release()
    assert (await first).error is OK
    assert await settled(coordinator) == "CompleteCommit"


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer", "code"),
    [
        ("", TIMEOUT_MS, (-1, -1), ErrorCode.INVALID_REQUEST),
        ("pay", TIMEOUT_MS, (5, -1), ErrorCode.INVALID_REQUEST),
        ("pay", TIMEOUT_MS, (-1, 5), ErrorCode.INVALID_REQUEST),
        ("pay", 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("pay", -1, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("pay", 900_001, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("pay", 900_000, (-1, -1), OK),
        ("pay", 1, (5, 5), OK),
    ],
)
async def test_what_a_producer_asks_for_is_checked(
    coordinator: TransactionCoordinator, name: str, timeout_ms: int, producer: tuple[int, int], code: ErrorCode
) -> None:
    assert (await coordinator.init_producer_id(name, timeout_ms, *producer)).error is code


async def test_an_unknown_id_and_an_empty_one_are_told_apart(coordinator: TransactionCoordinator) -> None:
    mapping, request = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST
    for name, code in (("pay", mapping), ("", request)):
        assert await coordinator.add_partitions(name, 5, 0, {A}) is code
        assert coordinator.verify_partitions(name, 5, 0, [A]) == {A: code}
        for is_version_2 in (True, False):
            assert (await coordinator.end(name, 5, 0, is_commit=True, is_version_2=is_version_2)).error is code
    with pytest.raises(InvalidRequest):
        coordinator.describe("")
    with pytest.raises(TransactionalIdNotFound):
        coordinator.describe("pay")


async def test_a_producer_is_told_to_retry_when_there_are_no_producer_ids(
    coordinator: TransactionCoordinator, producer_ids: Any
) -> None:
    producer_ids.refusal = RequestTimedOut("the metadata store is slow")
    grant = await coordinator.init_producer_id("pay", TIMEOUT_MS)
    assert grant.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("is_first_end_lost", [False, True])
async def test_after_its_last_epoch_a_producer_goes_on_with_a_new_id(
    make_coordinator: Make, ledger: Any, partitions: Any, producer_ids: Any, is_first_end_lost: bool
) -> None:
    last = Transaction(7, LAST_USABLE_EPOCH, TIMEOUT_MS, State.ONGOING, 1, 1, frozenset({A}), 7)
    seed(ledger, "pay", last)
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = ProducerGrant(OK, 7, LAST_USABLE_EPOCH)
    partitions.gate.clear()
    after = await end(coordinator, grant)
    assert after == (OK, producer_ids.next - 1, 0)
    if is_first_end_lost:
        coordinator = await restarted(make_coordinator, ledger, coordinator)
    partitions.gate.set()
    await settled(coordinator)
    assert [(m.producer_id, m.producer_epoch) for m in partitions.written] == [(7, EPOCH_MAX)]
    assert await end(coordinator, grant) == after
    assert await opened_as(coordinator, after) is OK
    coordinator.close()
