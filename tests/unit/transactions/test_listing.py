"""What an operator sees of transactions: one described, many listed by every filter."""

import asyncio
from typing import Any

from tests.unit.transactions.producing import TIMEOUT_MS, A, B, begin, opened

from penstock.transactions.coordinator import TransactionCoordinator


async def test_an_operator_sees_what_is_open(coordinator: TransactionCoordinator, clock: Any) -> None:
    grant = await opened(coordinator)
    started_ms = clock.now_ms()
    assert coordinator.describe("pay") == (
        "pay", grant.producer_id, grant.producer_epoch, "Ongoing", TIMEOUT_MS, started_ms, (A, B),
    )  # fmt: skip


async def test_transactions_are_listed_by_every_filter(coordinator: TransactionCoordinator) -> None:
    pay = await opened(coordinator, "pay")
    await asyncio.sleep(5)
    await opened(coordinator, "ship")
    await begin(coordinator, "idle")

    def names(**filters: Any) -> set[str]:
        return {listed.transactional_id for listed in coordinator.list_transactions(**filters)}

    assert names() == {"pay", "ship", "idle"}
    assert names(producer_ids=[pay.producer_id]) == {"pay"}
    assert names(states=["Ongoing"]) == {"pay", "ship"}
    assert names(states=["Ongoing"], duration_ms=4_000) == {"pay"}
    assert names(states=["Ongoing"], duration_ms=0) == {"pay"}
    assert names(matches=lambda name: name.startswith("s")) == {"ship"}
    assert coordinator.open_count() == 2
