"""The coordinator whole, real shards on a ledger in memory, in virtual time: one transaction from begin to end."""

import asyncio
from typing import Any

import pytest
from tests.unit.transactions.producing import OK, A, B, Make, begin, end, opened, settled, states

from penstock.errors import ErrorCode
from penstock.records.markers import ControlType
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.transaction import State


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_ends_in_every_partition_with_the_new_epoch(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any, is_commit: bool
) -> None:
    grant = await opened(coordinator)
    assert await end(coordinator, grant, is_commit) == (OK, grant.producer_id, grant.producer_epoch + 1)
    await settled(coordinator)
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    assert [(m.partition, m.marker, m.producer_id, m.producer_epoch) for m in partitions.written] == [
        (at, (kind, ledger.leader_epoch), grant.producer_id, grant.producer_epoch + 1) for at in (A, B)
    ]
    assert (coordinator.committed, coordinator.aborted, coordinator.open_count()) == (is_commit, not is_commit, 0)


async def test_a_transaction_of_one_message_costs_three_records_after_its_producer_is_known(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await begin(coordinator)
    before = len(ledger.batches)
    await coordinator.add_partitions("pay", grant.producer_id, grant.producer_epoch, {A})
    await end(coordinator, grant)
    await settled(coordinator)
    assert states(ledger)[before:] == [State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


async def test_version_1_keeps_the_epoch_and_hears_a_repeated_end(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    assert (await end(coordinator, grant, version=1)) == (OK, grant.producer_id, grant.producer_epoch)
    await settled(coordinator)
    assert {marker.producer_epoch for marker in partitions.written} == {grant.producer_epoch}
    assert (await end(coordinator, grant, version=1)).error is OK
    assert (await end(coordinator, grant, is_commit=False, version=1)).error is ErrorCode.INVALID_TXN_STATE
    assert len(partitions.written) == 2


async def test_transactions_of_one_turn_share_a_batch(coordinator: TransactionCoordinator, ledger: Any) -> None:
    names = [f"pay-{i}" for i in range(20)]
    grants = [await begin(coordinator, name) for name in names]
    before = len(ledger.batches)
    codes = await asyncio.gather(
        *(
            coordinator.add_partitions(name, grant.producer_id, grant.producer_epoch, {A})
            for name, grant in zip(names, grants, strict=True)
        )
    )
    assert codes == [OK] * 20
    assert len(ledger.batches) == before + 1


async def test_an_empty_abort_of_version_2_gives_the_next_epoch_and_writes_no_marker(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await begin(coordinator)
    assert await end(coordinator, grant, is_commit=False) == (OK, grant.producer_id, grant.producer_epoch + 1)
    assert await settled(coordinator) == "CompleteAbort"
    assert partitions.written == []


async def test_an_id_is_kept_where_a_kafka_tool_looks_for_it(make_coordinator: Make, settings: dict[str, str]) -> None:
    settings["transaction.state.log.num.partitions"] = "50"
    coordinator = make_coordinator()
    # By Java: Math.abs("...".hashCode()) % 50; the last is the one whose hash has no absolute value.
    assert [coordinator.partition_of(name) for name in ("pay", "", "polygenelubricants")] == [10, 0, 0]
