"""Decisions that rest on others whose records are still on their way to the log."""

import asyncio
from typing import Any

import pytest
from tests.unit.coordination.test_shard import Harness, turn

from penstock.coordination import BATCH_BYTES_MAX, Decision
from penstock.errors import ErrorCode, MessageTooLarge, PenstockError


def rest(harness: Harness, *records: str, undo: Any = None) -> asyncio.Future[Any]:
    waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    harness.shard.perform(Decision(list(records), [(waiter, "ok")], undo, rests_on_earlier=True))
    return waiter


def code_of(waiter: asyncio.Future[Any]) -> ErrorCode:
    error = waiter.exception()
    assert isinstance(error, PenstockError)
    return error.code


@pytest.fixture
async def harness() -> Harness:
    harness = Harness()
    await harness.shard.load()
    return harness


async def test_with_nothing_under_way_it_is_answered_at_once(harness: Harness) -> None:
    assert rest(harness).result() == "ok"


async def test_without_records_it_is_answered_after_those_it_rests_on(harness: Harness) -> None:
    harness.perform("a")
    in_the_same_turn = rest(harness)
    await turn()
    later = rest(harness)
    await turn()
    assert not in_the_same_turn.done()
    assert not later.done()
    assert len(harness.ledger.batches) == 1
    harness.ledger.commits[0].set_result(0)
    await turn()
    assert (in_the_same_turn.result(), later.result()) == ("ok", "ok")


async def test_it_is_refused_with_what_it_rests_on_and_taken_back_first(harness: Harness) -> None:
    undone: list[str] = []
    first = rest(harness, "x" * BATCH_BYTES_MAX, undo=lambda _: undone.append("first") or ())
    harness.ledger.refusal = MessageTooLarge("too large")
    # It does not fit in the same batch, so the first is appended before it.
    second = rest(harness, "second", undo=lambda _: undone.append("second") or ())
    harness.ledger.refusal = None
    await turn()
    assert undone == ["second", "first"]
    for waiter in (first, second):
        assert code_of(waiter) is ErrorCode.MESSAGE_TOO_LARGE
    assert harness.ledger.batches == []


async def test_what_rests_on_nothing_is_not_refused_with_the_others_of_its_turn(harness: Harness) -> None:
    first = rest(harness, "x" * BATCH_BYTES_MAX)
    harness.ledger.refusal = MessageTooLarge("too large")
    harness.perform("second")
    harness.ledger.refusal = None
    await turn()
    assert code_of(first) is ErrorCode.MESSAGE_TOO_LARGE
    assert len(harness.ledger.batches) == 1


async def test_it_does_not_wait_for_a_commit_that_others_have_given_up(harness: Harness) -> None:
    harness.shard.reply_timeout_ms = 1
    first = harness.perform("a")
    await asyncio.wait([first])
    assert code_of(first) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code_of(rest(harness)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
