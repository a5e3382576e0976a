"""handlers.one_batch: the short road of a Produce request ends where the general one does."""

import asyncio
from typing import Any
from unittest.mock import ANY

import pytest
from tests.unit.handlers.test_produce import BY_NAME, PRODUCE, VERSIONS, batch, changed, decode, start, to

from penstock.disk import RealFile
from penstock.errors import ErrorCode, NotLeaderOrFollower
from penstock.handlers import appending, one_batch, produce
from penstock.handlers.answers import LateReply, PendingReply, made
from penstock.handlers.context import RawRequest
from penstock.handlers.produce import handle_produce
from penstock.wire.messages import encode_request
from penstock.wire.produce import NodeEndpoint

FIRST_BY_ID = 13
ATTRIBUTES_AT, COUNT_AT = 21, 57

# What may be sent as the records of a partition, in this order: a producer that counts, its repetition, a gap.
COUNTED = {"producer_id": 9, "producer_epoch": 0}
SENT = {
    "usual": batch(3),
    "another": batch(1, value=b"x" * 300),
    "counted": batch(2, **COUNTED, base_sequence=0),
    "repeated": batch(2, **COUNTED, base_sequence=0),
    "after a gap": batch(2, **COUNTED, base_sequence=9),
    "damaged": changed(batch(), 17, ">I", 1, crc=False),
    "cut short": bytes(batch()[:40]),
    "too large": batch(1, value=b"x" * 2_000_000),
    "of a transaction": changed(batch(), ATTRIBUTES_AT, ">h", 0x10),
    "of an unknown codec": changed(batch(), ATTRIBUTES_AT, ">h", 7),
    "miscounted": changed(batch(), COUNT_AT, ">i", 5),
}


def outcome_of(answer: Any) -> tuple[Any, ...]:
    (topic,) = answer.responses
    (result,) = topic.partition_responses
    message = getattr(result, "error_message", None)
    return (ErrorCode(result.error_code), result.base_offset, getattr(result, "log_start_offset", None), message)


async def road(node: Any, topic: str, version: int, acks: int, index: int) -> list[tuple[Any, ...]]:
    named = node.context.replicas.topics[topic].id if version >= FIRST_BY_ID else topic
    outcomes: list[tuple[Any, ...]] = []
    for records in SENT.values():
        body = {"acks": acks, "timeout": 30_000, "topic_data": [to(named, (index, records))]}
        # Two in one turn of the loop: the second of them is gathered.
        both = [start(node, version, body) for _ in range(2)]
        outcomes += [outcome_of(decode(await made(answer), version)) for answer in both]
        await asyncio.sleep(0)
    return outcomes


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("version", [VERSIONS[0], 8, 9, BY_NAME, FIRST_BY_ID])
async def test_both_roads_give_the_same_answers_and_write_the_same_bytes(
    node: Any, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    for topic in ("brief", "whole"):
        await node.create(topic)
    by_the_short_road = await road(node, "brief", version, acks, 0)
    with monkeypatch.context() as patched:
        patched.setattr(produce, "parse_one", lambda *_: None)
        by_the_general_one = await road(node, "whole", version, acks, 0)
    assert by_the_short_road == by_the_general_one
    codes = {code for code, *_ in by_the_short_road}
    assert {ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER} < codes
    brief, whole = (node.partition(topic).log.segments[-1] for topic in ("brief", "whole"))
    assert brief.size == whole.size > 0
    assert bytes(brief.file.read(0, brief.size)) == bytes(whole.file.read(0, whole.size))
    traffic = [node.context.replicas.topics[topic].traffic for topic in ("brief", "whole")]
    assert traffic[0].messages_in.value == traffic[1].messages_in.value > 0


@pytest.mark.parametrize("version", [BY_NAME, FIRST_BY_ID])
async def test_a_partition_that_is_not_here_is_told_alike(
    node: Any, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await node.create("orders")
    by_the_short_road = await road(node, "orders", version, 1, 3)
    monkeypatch.setattr(produce, "parse_one", lambda *_: None)
    assert by_the_short_road == await road(node, "orders", version, 1, 3)
    assert {code for code, *_ in by_the_short_road} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_the_usual_request_takes_the_short_road(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create("orders")
    monkeypatch.delattr(produce, "parse_produce")
    for acks in (1, -1):
        body = {"acks": acks, "timeout": 30_000, "topic_data": [to("orders", (0, batch()))]}
        answer = decode(await made(start(node, BY_NAME, body)), BY_NAME)
        assert outcome_of(answer) == (ErrorCode.NONE, ANY, 0, None)
    assert node.partition("orders").log.next_offset == 2


async def test_nobody_writes_to_an_internal_topic_by_the_short_road(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create("orders")
    for module in (one_batch, appending):
        monkeypatch.setattr(module, "INTERNAL_TOPICS", frozenset({"orders"}))
    body = {"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, batch()))]}
    code, *_ = outcome_of(decode(await made(start(node, BY_NAME, body)), BY_NAME))
    assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.partition("orders").log.next_offset == 0


@pytest.mark.parametrize(("part", "name"), [("quotas", "produce"), ("quotas", "request"), ("", "tracer")])
async def test_who_is_counted_or_traced_takes_the_general_road(
    node: Any, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    await node.create("orders")
    monkeypatch.setattr(getattr(node.context, part) if part else node.context, name, object())
    request = RawRequest(BY_NAME, 7, "a-client", node.connection, memoryview(b""), 0, 0.0)
    usual = (1, 30_000, "orders", None, 0, memoryview(batch()))
    assert one_batch.produce_one(node.context, request, usual) is None
    assert node.partition("orders").log.next_offset == 0, "nothing has been done"


async def test_a_refusal_that_may_not_be_final_waits_until_that_is_known(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")
    sure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(node.context.final_refusals, "make_sure", lambda *_: sure)
    gap = batch(1, **COUNTED, base_sequence=0), batch(1, **COUNTED, base_sequence=9)
    bodies = [{"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, each))]} for each in gap]
    await made(start(node, BY_NAME, bodies[0]))
    answer = start(node, BY_NAME, bodies[1])
    assert isinstance(answer, PendingReply)
    assert not answer.is_done
    sure.set_exception(NotLeaderOrFollower("somebody else leads"))
    assert outcome_of(decode(await made(answer), BY_NAME))[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_who_asks_the_wrong_broker_is_told_where_the_leader_is(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")
    node.partition("orders").is_leader = False
    monkeypatch.setattr(one_batch, "hinted_endpoints", lambda *_: [NodeEndpoint(4, "b4", 9092)])
    body = {"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, batch()))]}
    answer = decode(await made(start(node, BY_NAME, body)), BY_NAME)
    assert outcome_of(answer)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [(each.node_id, each.host) for each in answer.node_endpoints] == [(4, "b4")]


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_answer_that_waits_keeps_no_view_of_what_was_received(node: Any, acks: int) -> None:
    await node.create("orders")
    body = {"acks": acks, "timeout": 30_000, "topic_data": [to("orders", (0, batch()))]}
    await made(start(node, BY_NAME, body))
    await asyncio.sleep(0)
    start(node, BY_NAME, body)
    received = bytearray(encode_request(PRODUCE, BY_NAME, body))
    started = node.context.clock.monotonic()
    answer = handle_produce(
        node.context, RawRequest(BY_NAME, 7, "a-client", node.connection, memoryview(received), 0, started)
    )
    assert isinstance(answer, LateReply if acks == 1 else PendingReply)
    received.clear()  # which is refused (BufferError) while anybody holds a view of it
    assert outcome_of(decode(await made(answer), BY_NAME))[0] is ErrorCode.NONE


async def test_a_gathered_batch_that_could_not_be_written_is_refused(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")
    body = {"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, batch()))]}
    await made(start(node, BY_NAME, body))
    await asyncio.sleep(0)
    start(node, BY_NAME, body)
    late = start(node, BY_NAME, body)
    assert isinstance(late, LateReply)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RealFile, "write_at", full)
    code, base_offset, *_ = outcome_of(decode(late.make(), BY_NAME))
    assert (code, base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert node.context.metrics.request_errors.child("Produce", "KAFKA_STORAGE_ERROR").value == 1
