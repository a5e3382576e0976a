"""handlers.final_refusals: only who certainly leads tells a client what that takes for final."""

import asyncio
import gc
from typing import Any
from uuid import uuid4

import pytest
from tests.unit.handlers.test_fetch import at, codes, fetch, partitions
from tests.unit.handlers.test_produce import BY_NAME, batch, code, decode, start, to

from penstock.cluster.store import Ambiguous, Unavailable
from penstock.errors import ErrorCode, OffsetOutOfRange
from penstock.handlers import final_refusals
from penstock.handlers.answers import made
from penstock.handlers.final_refusals import ASKING_MAX

HOLE = batch(producer_id=1, producer_epoch=1, base_sequence=50)
OLDER = batch(producer_id=1, producer_epoch=0, base_sequence=1)
LONG_AGO = batch(producer_id=1, producer_epoch=1, base_sequence=0)


@pytest.fixture
async def written(node: Any) -> Any:
    """A broker that has seven batches of producer 1: more than it keeps in mind."""
    await node.create("orders")
    for sequence in range(7):
        assert await code(node, batch(producer_id=1, producer_epoch=1, base_sequence=sequence)) is ErrorCode.NONE
    return node


def answer_with(node: Any, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    async def still_leads(*_: Any) -> bool:
        if isinstance(answer, asyncio.Event):
            return await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(node.context.partition_changes, "still_leads", still_leads)


async def test_a_leader_tells_what_is_wrong(written: Any) -> None:
    assert await code(written, HOLE) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await code(written, OLDER) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await code(written, LONG_AGO) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@pytest.mark.parametrize("answer", [False, Unavailable("away"), Ambiguous("lost")])
async def test_who_may_be_deposed_says_nothing_final(
    written: Any, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    answer_with(written, monkeypatch, answer)
    errors = written.context.metrics.request_errors.child("Produce", "NOT_LEADER_OR_FOLLOWER")
    before = errors.value
    for records in (HOLE, OLDER, LONG_AGO):
        assert await code(written, records, acks=-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert errors.value == before + 3
    assert written.partition("orders").log.next_offset == 7


async def test_a_store_that_never_answers_is_not_waited_for_long(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(written, monkeypatch, asyncio.Event())
    monkeypatch.setattr(final_refusals, "ASKING_S_MAX", 0.01)
    assert await code(written, HOLE) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_nonsense_does_not_keep_the_store_busy(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = asyncio.Event()
    answer_with(written, monkeypatch, store)
    body = {"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, HOLE))]}
    waiting = [start(written, BY_NAME, body) for _ in range(ASKING_MAX)]
    assert await code(written, HOLE) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    store.set()
    for answer in waiting:
        result = decode(await made(answer), BY_NAME).responses[0].partition_responses[0]
        assert result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await code(written, HOLE) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_the_store_says_who_leads_in_which_epoch(written: Any) -> None:
    partition, changes = written.partition("orders"), written.context.partition_changes
    assert await changes.still_leads(partition.topic_id, 0, partition.leader_epoch)
    assert not await changes.still_leads(partition.topic_id, 0, partition.leader_epoch + 1)
    assert not await changes.still_leads(partition.topic_id, 1, partition.leader_epoch)
    assert not await changes.still_leads(uuid4(), 0, partition.leader_epoch)


# Consumers


@pytest.mark.parametrize("offset", [-1, 8, 1 << 40])
@pytest.mark.parametrize("answer", [False, Unavailable("away")])
async def test_who_may_be_deposed_does_not_send_a_consumer_back_to_one_end_of_the_log(
    written: Any, monkeypatch: pytest.MonkeyPatch, offset: int, answer: Any
) -> None:
    answer_with(written, monkeypatch, answer)
    monkeypatch.setattr(written.partition("orders"), "is_sole", False)
    there = at("orders", offset=3)
    errors = written.context.metrics.request_errors
    assert codes(await fetch(written, at("orders", offset=offset), there)) == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]
    assert errors.child("Fetch", "NOT_LEADER_OR_FOLLOWER").value == 1
    assert errors.child("Fetch", "OFFSET_OUT_OF_RANGE").value == 0


async def test_a_leader_tells_a_consumer_that_its_offset_is_not_there(
    written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(written, monkeypatch, True)
    monkeypatch.setattr(written.partition("orders"), "is_sole", False)
    (result,) = partitions(await fetch(written, at("orders", offset=8), max_wait=30_000))
    assert ErrorCode(result.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (result.log_start_offset, result.high_watermark) == (0, 7)


async def test_the_only_replica_there_is_need_not_ask(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(written, monkeypatch, Unavailable("away"))
    assert codes(await fetch(written, at("orders", offset=8))) == [ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_a_refusal_that_nobody_asks_for_any_more_is_no_lost_exception(
    written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its client hangs up while another partition of the same fetch is read from the disk."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    go_on = asyncio.Event()
    answer_with(written, monkeypatch, go_on)
    context = written.context
    refusal = OffsetOutOfRange(9, 0, 7)
    asked = [
        context.final_refusals.make_sure(context, written.partition("orders"), refusal) for _ in range(ASKING_MAX + 1)
    ]
    go_on.set()
    await asyncio.wait(asked)
    await asyncio.sleep(0)
    del asked
    gc.collect()
    assert lost == []
