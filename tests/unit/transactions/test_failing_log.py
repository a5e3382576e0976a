"""A log of transactions that is slow, refuses or is lost: nothing is half done, and a completion comes in the end."""

import asyncio
import gc
from typing import Any

import pytest
from tests.unit.transactions.producing import OK, TIMEOUT_MS, end, opened, settled, states

from penstock.errors import CoordinatorNotAvailable, NotCoordinator, NotEnoughReplicas, NotLeaderOrFollower
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.transaction import State


async def test_a_refused_record_leaves_everything_as_it_was(coordinator: TransactionCoordinator, ledger: Any) -> None:
    grant = await opened(coordinator)
    ledger.refusal = NotEnoughReplicas("too few")
    with pytest.raises(CoordinatorNotAvailable):
        await end(coordinator, grant)
    with pytest.raises(CoordinatorNotAvailable):
        await coordinator.init_producer_id("pay", TIMEOUT_MS)
    assert coordinator.describe("pay")[1:4] == (grant.producer_id, grant.producer_epoch, "Ongoing")
    ledger.refusal = None
    assert (await end(coordinator, grant)).error is OK


async def test_a_completion_that_is_refused_is_tried_until_it_is_written(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    await end(coordinator, grant)
    ledger.refusal = NotEnoughReplicas("too few")
    partitions.gate.set()
    await asyncio.sleep(5)
    assert coordinator.describe("pay").state == "PrepareCommit"
    ledger.refusal = None
    assert await settled(coordinator) == "CompleteCommit"
    assert (len(partitions.written), states(ledger).count(State.COMPLETE_COMMIT)) == (2, 1)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
async def test_a_completion_that_commits_late_is_written_once(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    await end(coordinator, grant)
    ledger.held = []
    partitions.gate.set()
    await asyncio.sleep(60)
    gc.collect()  # a task that died would say so now
    ledger.release()
    assert await settled(coordinator) == "CompleteCommit"
    assert states(ledger).count(State.COMPLETE_COMMIT) == 1


async def test_a_lost_partition_is_no_longer_served(coordinator: TransactionCoordinator, ledger: Any) -> None:
    grant = await opened(coordinator)
    ledger.held = []
    ending = asyncio.ensure_future(end(coordinator, grant))
    await asyncio.sleep(0.001)
    ledger.held[0].set_exception(NotLeaderOrFollower("elsewhere"))
    with pytest.raises(NotCoordinator):
        await ending
    with pytest.raises(NotCoordinator):
        coordinator.describe("pay")
    assert coordinator.list_transactions() == []
