"""Transactions in the runtime under groups: whose records are kept apart, in which order, and what a marker ends."""

import asyncio
from typing import Any

import pytest
from tests.unit.coordination.test_shard import Harness, MemoryLedger, batch_of, turn

from penstock.errors import ErrorCode, InvalidProducerEpoch, NotLeaderOrFollower, PenstockError, StorageFailed
from penstock.records.batch import read_header
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.records.record import Record, encode_batch

COMMIT, ABORT = Marker(ControlType.COMMIT, 0), Marker(ControlType.ABORT, 0)


@pytest.fixture
async def harness() -> Harness:
    harness = Harness()
    await harness.shard.load()
    return harness


def end(harness: Harness, producer_id: int, marker: Marker = COMMIT) -> "asyncio.Future[None]":
    return asyncio.ensure_future(harness.shard.append_marker(marker, producer_id, 0))


def commit_all(harness: Harness) -> None:
    for committed in harness.ledger.commits:
        if not committed.done():
            committed.set_result(0)


async def failed(waiter: "asyncio.Future[Any]") -> ErrorCode:
    with pytest.raises(PenstockError) as failure:
        await waiter
    return failure.value.code


async def test_the_log_has_transactions_and_the_rest_in_the_order_in_which_they_were_decided(harness: Harness) -> None:
    waiters = [
        harness.perform("a"),
        harness.perform("b"),
        harness.perform_in_transaction(7, "c", "d"),
        harness.perform("e"),
        end(harness, 7),
        harness.perform("f"),
    ]
    await turn()
    headers = [read_header(batch) for batch in harness.ledger.batches]
    assert [(h.record_count, h.producer_id, h.is_transactional, h.is_control) for h in headers] == [
        (2, -1, False, False),
        (2, 7, True, False),
        (1, -1, False, False),
        (1, 7, True, True),
        (1, -1, False, False),
    ]
    commit_all(harness)
    await asyncio.gather(*waiters)
    assert harness.machine.applied == ["a", "b", "7: c", "7: d", "e", "7: commit", "f"]


async def test_a_transaction_is_neither_applied_nor_answered_before_the_log_has_it(harness: Harness) -> None:
    sent, ended = harness.perform_in_transaction(7, "a"), end(harness, 7, ABORT)
    await turn()
    harness.ledger.commits[1].set_result(1)
    await turn()
    assert (harness.machine.applied, sent.done(), ended.done()) == ([], False, False)
    harness.ledger.commits[0].set_result(0)
    assert await sent == "ok"
    await ended
    assert harness.machine.applied == ["7: a", "7: abort"]


async def test_a_marker_answers_those_the_machine_let_wait_for_it(harness: Harness) -> None:
    parked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    harness.machine.parked.append((parked, "ended"))
    ended = end(harness, 7)
    commit_all(harness)
    await ended
    assert await parked == "ended"


async def test_a_refused_commit_of_a_zombie_is_undone_and_takes_no_other_with_it(harness: Harness) -> None:
    undone: list[ErrorCode] = []

    def undo(code: ErrorCode) -> tuple[()]:
        undone.append(code)
        return ()

    before = harness.perform("a")
    await turn()
    harness.ledger.refusal = InvalidProducerEpoch("epoch 3 leads")
    zombie = harness.perform_in_transaction(7, "b", undo=undo)
    harness.ledger.refusal = None
    after = harness.perform("c")
    await turn()
    commit_all(harness)
    assert [await before, await after] == ["ok", "ok"]
    assert await failed(zombie) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert undone == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert harness.machine.applied == ["a", "c"]
    assert harness.lost == []


async def test_a_refused_marker_ends_nothing_and_leaves_the_shard_at_work(harness: Harness) -> None:
    harness.ledger.refusal = InvalidProducerEpoch("epoch 3 leads")
    assert await failed(end(harness, 7)) is ErrorCode.INVALID_PRODUCER_EPOCH
    harness.ledger.refusal = None
    again = end(harness, 7)
    commit_all(harness)
    await again
    assert harness.machine.applied == ["7: commit"]


async def test_a_marker_that_fails_after_it_was_written_ends_the_shard(harness: Harness) -> None:
    ended = end(harness, 7)
    harness.ledger.commits[0].set_exception(StorageFailed("fsync"))
    assert await failed(ended) is ErrorCode.NOT_COORDINATOR
    assert [error.code for error in harness.lost] == [ErrorCode.NOT_COORDINATOR]
    assert harness.machine.applied == []


async def test_a_closed_shard_takes_no_part_of_a_transaction(harness: Harness) -> None:
    waiting = end(harness, 7)
    harness.shard.close(NotLeaderOrFollower("moved"))
    assert await failed(waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await failed(end(harness, 7)) is ErrorCode.NOT_COORDINATOR
    assert await failed(harness.perform_in_transaction(7, "a")) is ErrorCode.NOT_COORDINATOR
    assert len(harness.ledger.batches) == 1


async def test_who_waits_too_long_for_a_marker_is_told_so_and_it_is_applied_all_the_same() -> None:
    harness = Harness(reply_timeout_ms=1)
    await harness.shard.load()
    assert await failed(end(harness, 7)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    commit_all(harness)
    await turn()
    assert harness.machine.applied == ["7: commit"]


async def test_a_transaction_of_nothing_writes_nothing(harness: Harness) -> None:
    assert harness.perform_in_transaction(7).done()
    assert harness.ledger.batches == []


def marker_of(producer_id: int, marker: Marker) -> bytearray:
    return encode_marker(marker, offset=0, timestamp=0, producer_id=producer_id, producer_epoch=0)


async def test_loading_repeats_transactions_and_their_ends_in_log_order() -> None:
    kind_of_a_later_kafka = Record(0, 0, b"\0\0\0\x09", b"\0\0\0\0\0\0")
    ledger = MemoryLedger(
        [
            batch_of(b"a"),
            batch_of(b"b", b"bad", producer_id=7, producer_epoch=0, is_transactional=True),
            batch_of(b"c", producer_id=8, producer_epoch=0, is_transactional=True),
            batch_of(b"idempotent, no more", producer_id=9, producer_epoch=0, base_sequence=0),
            batch_of(b"d"),
            marker_of(8, ABORT),
            encode_batch([kind_of_a_later_kafka], producer_id=7, is_transactional=True, is_control=True),
            batch_of(b"no marker", producer_id=7, is_transactional=True, is_control=True),
            marker_of(7, COMMIT),
        ]
    )
    harness = Harness(ledger)
    await harness.shard.load()
    assert harness.machine.applied == ["a", "7: b", "8: c", "idempotent, no more", "d", "8: abort", "7: commit"]
