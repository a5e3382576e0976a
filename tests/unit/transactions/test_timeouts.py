"""What time does to transactions: one open for too long is aborted, an id idle for too long is forgotten."""

import asyncio
from typing import Any

import pytest
from tests.unit.transactions.producing import FENCED, OK, TIMEOUT_MS, A, Make, begin, end, opened, restarted, states

from penstock.errors import NotEnoughReplicas, TransactionalIdNotFound
from penstock.transactions.coordinator import TransactionCoordinator

DAY_S = 86_400


async def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced(
    coordinator: TransactionCoordinator, partitions: Any, clock: Any
) -> None:
    grant = await opened(coordinator)
    assert coordinator.oldest_open_since_ms() == coordinator.describe("pay").started_ms
    await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
    assert coordinator.describe("pay").state == "Ongoing"
    await asyncio.sleep(12)
    assert coordinator.describe("pay").state == "CompleteAbort"
    assert {m.producer_epoch for m in partitions.written} == {grant.producer_epoch + 2}
    assert (coordinator.timed_out, coordinator.aborted, coordinator.open_count()) == (1, 1, 0)
    assert coordinator.oldest_open_since_ms() is None
    for version in (1, 2):
        assert (await end(coordinator, grant, version=version)).error is FENCED


async def test_the_time_of_a_transaction_goes_on_over_a_restart(make_coordinator: Make, ledger: Any) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    await opened(coordinator)
    await asyncio.sleep(TIMEOUT_MS / 1000 - 5)
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    await asyncio.sleep(11)
    assert coordinator.describe("pay").state == "CompleteAbort"
    coordinator.close()


async def test_a_time_out_that_the_log_refuses_is_tried_again(coordinator: TransactionCoordinator, ledger: Any) -> None:
    await opened(coordinator)
    ledger.refusal = NotEnoughReplicas("too few")
    await asyncio.sleep(100)
    assert (coordinator.describe("pay").state, coordinator.timed_out) == ("Ongoing", 0)
    ledger.refusal = None
    await asyncio.sleep(11)
    assert (coordinator.describe("pay").state, coordinator.timed_out) == ("CompleteAbort", 1)


async def test_an_idle_id_is_forgotten_with_a_tombstone_and_an_open_one_is_not(
    make_coordinator: Make, ledger: Any, settings: dict[str, str]
) -> None:
    settings["transaction.max.timeout.ms"] = str(2**31 - 1)
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    idle = await begin(coordinator, "idle")
    open_grant = await coordinator.init_producer_id("open", 2**31 - 2)
    await coordinator.add_partitions("open", open_grant.producer_id, open_grant.producer_epoch, {A})
    await asyncio.sleep(7 * DAY_S - 3_700)
    assert coordinator.describe("idle").state == "Empty"
    await asyncio.sleep(2 * 3_700)
    with pytest.raises(TransactionalIdNotFound):
        coordinator.describe("idle")
    assert coordinator.describe("open").state == "Ongoing"
    assert states(ledger)[-1] is None
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    # Its producer comes back after all, and starts anew.
    grant = await coordinator.init_producer_id("idle", TIMEOUT_MS, idle.producer_id, idle.producer_epoch)
    assert grant.error is OK
    assert (grant.producer_id != idle.producer_id, grant.producer_epoch) == (True, 0)
    coordinator.close()
