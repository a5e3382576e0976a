"""A coordinator that crashed, resigned or was replaced: the next one loads the log and ends what was begun, once."""

import asyncio
from typing import Any

import pytest
from tests.unit.transactions.producing import (
    OK,
    TIMEOUT_MS,
    A,
    B,
    Make,
    begin,
    end,
    opened,
    opened_as,
    restarted,
    seed,
    settled,
    states,
)

from penstock.errors import CoordinatorLoadInProgress, ErrorCode, NotCoordinator, NotEnoughReplicas
from penstock.records.markers import ControlType
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.transaction import State, Transaction


async def test_nothing_is_served_before_it_is_loaded(make_coordinator: Make, ledger: Any) -> None:
    seed(ledger, "pay", Transaction(7, 0, TIMEOUT_MS, State.EMPTY, 1))
    coordinator = make_coordinator()
    with pytest.raises(NotCoordinator):
        await coordinator.init_producer_id("pay", TIMEOUT_MS)
    loading = asyncio.ensure_future(coordinator.lead(ledger))
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoadInProgress):
        await coordinator.init_producer_id("pay", TIMEOUT_MS)
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.list_transactions()
    await loading
    assert (await begin(coordinator)).producer_epoch == 1
    coordinator.close()


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_crash_before_the_markers_ends_the_transaction_the_same_way(
    make_coordinator: Make, ledger: Any, partitions: Any, is_commit: bool
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    partitions.gate.clear()
    after = await end(coordinator, grant, is_commit)
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert partitions.written == []
    partitions.gate.set()
    assert await settled(coordinator) == ("CompleteCommit" if is_commit else "CompleteAbort")
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    assert [(m.partition, m.marker) for m in partitions.written] == [(at, (kind, ledger.leader_epoch)) for at in (A, B)]
    # The answer was lost with the broker: the producer asks again, with the epoch it knows.
    assert await end(coordinator, grant, is_commit) == after
    assert await opened_as(coordinator, after) is OK
    coordinator.close()


async def test_a_crash_between_the_markers_writes_the_rest(
    make_coordinator: Make, ledger: Any, partitions: Any
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    partitions.codes[B] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000
    await end(coordinator, grant)
    await asyncio.sleep(3)
    assert [marker.partition for marker in partitions.written] == [A]
    partitions.codes.clear()
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert await settled(coordinator) == "CompleteCommit"
    assert [marker.partition for marker in partitions.written[1:]] == [A, B]
    coordinator.close()


async def test_a_crash_after_the_markers_completes_the_transaction(
    make_coordinator: Make, ledger: Any, partitions: Any
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    partitions.gate.clear()
    after = await end(coordinator, grant)
    ledger.refusal = NotEnoughReplicas("too few")
    partitions.gate.set()
    await asyncio.sleep(1)
    assert len(partitions.written) == 2
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert await settled(coordinator) == "CompleteCommit"
    assert await end(coordinator, grant) == after
    coordinator.close()


async def test_a_coordinator_that_resigned_writes_no_more_markers(
    coordinator: TransactionCoordinator, partitions: Any, ledger: Any
) -> None:
    grant = await opened(coordinator)
    partitions.codes[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    await end(coordinator, grant)
    coordinator.resign(0)
    await asyncio.sleep(10)
    assert [marker.partition for marker in partitions.written] in ([], [B])
    assert State.COMPLETE_COMMIT not in states(ledger)


async def test_a_coordinator_that_was_replaced_leaves_the_completion_to_its_successor(
    coordinator: TransactionCoordinator, partitions: Any, ledger: Any
) -> None:
    grant = await opened(coordinator)
    partitions.codes[A] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    await end(coordinator, grant)
    await asyncio.sleep(60)
    assert states(ledger)[-1] is State.PREPARE_COMMIT


async def test_a_restarted_coordinator_serves_an_open_transaction_as_before(
    make_coordinator: Make, ledger: Any
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    before = coordinator.describe("pay")
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert coordinator.describe("pay") == before
    producer = (grant.producer_id, grant.producer_epoch)
    assert coordinator.verify_partitions("pay", *producer, [A, B]) == {A: OK, B: OK}
    assert (await end(coordinator, grant)).error is OK
    coordinator.close()
