"""handlers.fetch: what is read within which limits, what is refused, what is waited for and what ends the wait."""

import asyncio
import tracemalloc
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.disk import RealFile
from penstock.errors import ErrorCode, MalformedFrame
from penstock.handlers import delivery
from penstock.handlers.context import RawRequest
from penstock.handlers.fetch import handle_fetch
from penstock.records.batch import read_header
from penstock.records.record import Record, encode_batch
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import skip_tags

FETCH = ApiKey.FETCH
VERSIONS = range(BY_KEY[FETCH].low, BY_KEY[FETCH].high + 1)
BY_NAME = 12  # the newest version that names topics
NOW = 1_700_000_000_000
MIB = 1 << 20
PATIENT_MS = 30_000


def start(node: Any, body: dict[str, Any], version: int = BY_NAME) -> Any:
    """What the handler gives back: buffers of a frame, or a future of them."""
    raw = bytearray(encode_request(FETCH, version, body))
    request = RawRequest(version, 7, "a-client", node.connection, memoryview(raw), 0, node.context.clock.monotonic())
    answer = handle_fetch(node.context, request)
    # The connection reads the next frame into the same buffer: nothing may depend on it any more.
    raw[:] = b"\xaa" * len(raw)
    return answer


async def fetch(node: Any, *asked: dict[str, Any], version: int = BY_NAME, **limits: Any) -> Any:
    return decode(await finish(start(node, about(*asked, version=version, **limits), version)), version)


async def finish(answer: Any) -> Any:
    return await answer if isinstance(answer, asyncio.Future) else answer


def about(*asked: dict[str, Any], version: int = BY_NAME, **limits: Any) -> dict[str, Any]:
    key = "topic" if version < 13 else "topic_id"
    topics = [{key: each["topic"], "partitions": [{k: v for k, v in each.items() if k != "topic"}]} for each in asked]
    return {"max_wait": 0, "min_bytes": 1, "max_bytes": 50 * MIB, "session_epoch": -1, "topics": topics, **limits}


def at(topic: str | UUID, partition: int = 0, offset: int = 0, size_max: int = MIB, **more: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": size_max,
        "current_leader_epoch": -1,
        **more,
    }


def decode(buffers: Any, version: int) -> Any:
    frame = b"".join(buffers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    offset = skip_tags(memoryview(frame), 8) if BY_KEY[FETCH].is_flexible(version) else 8
    return decode_response(FETCH, version, frame[offset:])


def partitions(answer: Any) -> list[Any]:
    return [partition for topic in answer.responses for partition in topic.partitions]


def sizes(answer: Any) -> list[int]:
    return [len(partition.records or b"") for partition in partitions(answer)]


def codes(answer: Any) -> list[ErrorCode]:
    return [ErrorCode(partition.error_code) for partition in partitions(answer)]


def append(node: Any, topic: str, size: int = 100, partition: int = 0) -> bytes:
    """One batch of one record whose value has so many bytes; gives it as the log keeps it."""
    log = node.partition(topic, partition).log
    base = log.next_offset
    batch = encode_batch([Record(0, NOW, b"key", bytes(size))])
    node.partition(topic, partition).append(memoryview(batch), read_header(batch), NOW)
    assert log.next_offset == base + 1
    return bytes(batch)


@pytest.fixture
def nothing_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a restart, or where the system cannot say what is cached: every read goes to an I/O thread."""
    monkeypatch.setattr(RealFile, "read_cached", lambda *_: None)


# What is read


async def test_every_version_reads_what_the_log_holds(node: Any) -> None:
    await node.create("orders", 2)
    written = b"".join(append(node, "orders", 100, 1) for _ in range(5))
    for version in VERSIONS:
        topic = node.context.image.topics["orders"].id if version >= 13 else "orders"
        answer = await fetch(node, at(topic, 1), version=version)
        (result,) = partitions(answer)
        assert (result.partition_index, result.error_code, result.high_watermark) == (1, 0, 5)
        assert result.last_stable_offset == 5
        assert version < 5 or result.log_start_offset == 0
        assert result.records == written
        assert answer.responses[0].topic_id == topic if version >= 13 else answer.responses[0].topic == topic


@pytest.mark.parametrize("cached", [True, False])
async def test_a_fetch_begins_with_the_batch_that_holds_the_offset(
    node: Any, cached: bool, request: pytest.FixtureRequest
) -> None:
    await node.create("orders")
    batches = [append(node, "orders", 2000) for _ in range(20)]
    if not cached:
        request.getfixturevalue("nothing_cached")
    for offset in range(21):
        (result,) = partitions(await fetch(node, at("orders", offset=offset)))
        assert (result.records or b"") == b"".join(batches[offset:])


async def test_an_answer_has_at_least_one_batch_and_no_more_when_even_that_is_too_much(node: Any) -> None:
    await node.create("orders", 4)
    append(node, "orders", 100, 0)  # read past its end: partition 0 has nothing to give
    sent = [len(append(node, "orders", 3000, index)) for index in (1, 2, 3)]
    for limits in ({"max_bytes": 1}, {"max_bytes": 0}, {"max_bytes": -5}):
        asked = [at("orders", 0, 1), at("orders", 1), at("orders", 2), at("orders", 3)]
        assert sizes(await fetch(node, *asked, **limits)) == [0, sent[0], 0, 0]
    for size_max in (1, 0, -1, -(2**31)):
        asked = [at("orders", index, size_max=size_max) for index in (3, 2, 1)]
        assert sizes(await fetch(node, *asked)) == [sent[2], 0, 0]


async def test_the_rule_of_one_batch_holds_where_nothing_is_cached(node: Any, nothing_cached: None) -> None:
    """One batch for each partition would be a gigabyte for a consumer of a thousand of them."""
    await node.create("orders", 6)
    size = max(len(append(node, "orders", 3000, index)) for index in range(6))
    asked = [at("orders", index) for index in range(6)]
    assert sizes(await fetch(node, *asked, max_bytes=1)) == [size, 0, 0, 0, 0, 0]
    assert sum(sizes(await fetch(node, *asked, max_bytes=2 * size))) <= 2 * size
    assert sizes(await fetch(node, *asked)) == [size] * 6


async def test_limits_are_those_of_the_partition_and_of_the_whole(node: Any) -> None:
    await node.create("orders", 3)
    size = len(append(node, "orders", 1000, 0))
    for index in (0, 0, 1, 1, 1, 2, 2, 2):
        append(node, "orders", 1000, index)
    by_partition = await fetch(node, *(at("orders", index, size_max=2 * size) for index in range(3)))
    assert sizes(by_partition) == [2 * size, 2 * size, 2 * size]
    of_all = await fetch(node, *(at("orders", index) for index in range(3)), max_bytes=4 * size)
    assert sizes(of_all)[0] == 3 * size
    assert sum(sizes(of_all)) <= 4 * size
    # A batch may be cut at the end of an answer, as Kafka's are; the next fetch begins with it.
    cut = await fetch(node, at("orders", 0, size_max=2 * size - 1))
    assert sizes(cut)[0] <= 2 * size - 1
    assert sizes(cut)[0] >= size


@pytest.mark.parametrize("settings", [{"fetch.max.bytes": "4096"}])
async def test_the_broker_gives_no_more_than_fetch_max_bytes(node: Any) -> None:
    await node.create("orders")
    for _ in range(20):
        append(node, "orders", 1000)
    assert 1000 <= sum(sizes(await fetch(node, at("orders")))) <= 4096


async def test_a_partition_named_twice_is_answered_twice(node: Any) -> None:
    await node.create("orders")
    size = len(append(node, "orders"))
    assert sizes(await fetch(node, at("orders"), at("orders"), at("orders", offset=1))) == [size, size, 0]


async def test_read_committed_is_given_a_list_of_aborted_transactions_and_others_none(node: Any) -> None:
    await node.create("orders")
    append(node, "orders")
    (committed,) = partitions(await fetch(node, at("orders"), isolation_level=1))
    (everything,) = partitions(await fetch(node, at("orders"), isolation_level=0))
    assert committed.aborted_transactions == ()
    assert everything.aborted_transactions is None
    assert committed.records == everything.records


# What is refused


async def test_an_offset_the_log_does_not_have_is_out_of_range_and_its_ends_are_told(node: Any) -> None:
    await node.create("orders")
    for _ in range(10):
        append(node, "orders")
    node.partition("orders").log.advance_start(4)
    for offset in (-1, 0, 3, 11, 2**63 - 1, -(2**63)):
        (result,) = partitions(await fetch(node, at("orders", offset=offset)))
        assert ErrorCode(result.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (result.log_start_offset, result.high_watermark) == (4, 10)
        assert not result.records
    assert codes(await fetch(node, at("orders", offset=4), at("orders", offset=10))) == [ErrorCode.NONE] * 2


async def test_an_offset_out_of_range_is_told_also_when_the_answer_is_full(node: Any) -> None:
    await node.create("orders", 2)
    append(node, "orders")
    answer = await fetch(node, at("orders", 0), at("orders", 1, offset=5), max_bytes=1)
    assert codes(answer) == [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_a_client_that_knows_another_leader_is_refused(node: Any) -> None:
    await node.create("orders")
    append(node, "orders")
    node.partition("orders").leader_epoch = 5
    found = [codes(await fetch(node, at("orders", current_leader_epoch=epoch)))[0].name for epoch in (4, 5, 6, -1)]
    assert found == ["FENCED_LEADER_EPOCH", "NONE", "UNKNOWN_LEADER_EPOCH", "NONE"]


async def test_topics_and_partitions_that_are_not_there(node: Any) -> None:
    await node.create("orders")
    answer = await fetch(node, at("nowhere"), at("orders", 1), at("orders", -1), at("orders"))
    assert [code.name for code in codes(answer)] == [*["UNKNOWN_TOPIC_OR_PARTITION"] * 3, "NONE"]
    topic_id = node.context.image.topics["orders"].id
    by_id = await fetch(node, at(uuid4()), at(UUID(int=0)), at(topic_id, 1), at(topic_id), version=13)
    assert [code.name for code in codes(by_id)] == [*["UNKNOWN_TOPIC_ID"] * 2, "UNKNOWN_TOPIC_OR_PARTITION", "NONE"]


async def test_damage_on_our_disk_is_not_the_consumers_fault(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create("orders")
    append(node, "orders")

    def fail(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(RealFile, "read_cached", lambda *_: None)
    monkeypatch.setattr(RealFile, "read", fail)
    assert codes(await fetch(node, at("orders"))) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_log_cut_while_the_disk_was_read_is_out_of_range(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.create("orders")
    append(node, "orders")
    append(node, "orders")

    def cut_meanwhile(*_: Any) -> None:
        if node.partition("orders").log.log_start == 0:
            node.partition("orders").log.advance_start(2)

    monkeypatch.setattr(RealFile, "read_cached", cut_meanwhile)
    (result,) = partitions(await fetch(node, at("orders")))
    assert ErrorCode(result.error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (result.log_start_offset, result.high_watermark) == (2, 2)


async def test_a_request_cut_short_is_no_request(node: Any) -> None:
    for version in VERSIONS:
        whole = encode_request(FETCH, version, about(at(UUID(int=1) if version >= 13 else "x"), version=version))
        for size in range(len(whole)):
            request = RawRequest(version, 7, None, node.connection, memoryview(bytearray(whole[:size])), 0, 0.0)
            with pytest.raises(MalformedFrame):
                handle_fetch(node.context, request)


# What is waited for


def waits(node: Any, answer: Any, topic: str = "orders") -> bool:
    """Whether the fetch stands in the partition's list, and its connection takes nothing behind it."""
    return not answer.done() and bool(node.partition(topic).waiting) and node.connection.holds_back_the_next


async def begin(node: Any, *asked: dict[str, Any], **limits: Any) -> asyncio.Future[Any]:
    """A fetch that found too little and waits."""
    answer = start(node, about(*asked, **{"max_wait": PATIENT_MS, **limits}))
    assert isinstance(answer, asyncio.Future)
    await asyncio.sleep(0)  # one turn of the loop, in which it begins to wait
    return answer


async def test_an_append_wakes_the_fetch_that_waits_for_it(node: Any) -> None:
    await node.create("orders", 2)
    answer = await begin(node, at("orders", 0), at("orders", 1))
    assert waits(node, answer)
    size = len(append(node, "orders", 100, 1))
    assert sizes(decode(await answer, BY_NAME)) == [0, size]
    assert not node.connection.holds_back_the_next
    assert not node.partition("orders", 0).waiting
    assert not node.partition("orders", 1).waiting


async def test_a_fetch_waits_for_min_bytes_over_all_its_partitions(node: Any) -> None:
    await node.create("orders", 2)
    size = len(append(node, "orders", 100, 0))
    answer = await begin(node, at("orders", 0), at("orders", 1), min_bytes=3 * size)
    append(node, "orders", 100, 1)
    await asyncio.sleep(0)
    assert waits(node, answer)
    append(node, "orders", 100, 0)
    assert sizes(decode(await answer, BY_NAME)) == [2 * size, size]


async def test_a_fetch_with_enough_at_once_does_not_wait(node: Any) -> None:
    await node.create("orders")
    size = len(append(node, "orders"))
    for limits in ({"min_bytes": size}, {"min_bytes": 0}, {"min_bytes": -1}):
        assert not isinstance(start(node, about(at("orders"), max_wait=PATIENT_MS, **limits)), asyncio.Future)


@pytest.mark.parametrize("max_wait", [0, -1, -(2**31)])
async def test_a_fetch_without_time_does_not_wait(node: Any, max_wait: int) -> None:
    await node.create("orders")
    assert not isinstance(start(node, about(at("orders"), max_wait=max_wait)), asyncio.Future)


async def test_a_fetch_whose_time_is_up_gives_what_there_is(node: Any) -> None:
    await node.create("orders")
    size = len(append(node, "orders"))
    assert sizes(await fetch(node, at("orders"), max_wait=20, min_bytes=MIB)) == [size]


async def test_an_error_is_told_at_once(node: Any) -> None:
    await node.create("orders")
    answer = start(node, about(at("orders"), at("nowhere"), max_wait=PATIENT_MS))
    assert not isinstance(answer, asyncio.Future)
    assert codes(decode(answer, BY_NAME)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_fetch_about_nothing_is_answered_at_once(node: Any) -> None:
    for session_epoch in (-1, 0):
        answer = start(node, about(max_wait=PATIENT_MS, session_epoch=session_epoch))
        assert decode(answer, BY_NAME).responses == ()


async def test_a_deleted_topic_wakes_who_waits_for_it(node: Any) -> None:
    await node.create("orders")
    await node.create("other")
    answer = await begin(node, at("other"), at("orders"))
    assert waits(node, answer)
    await node.context.controller.delete_topics(["orders"])
    assert codes(decode(await answer, BY_NAME)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_topic_made_again_is_not_the_one_a_fetch_by_id_waits_for(node: Any) -> None:
    await node.create("orders")
    old = node.context.image.topics["orders"].id
    answer = start(node, about(at(old), max_wait=PATIENT_MS, version=13), 13)
    await asyncio.sleep(0)
    await node.context.controller.delete_topics(["orders"])
    await node.create("orders")
    append(node, "orders")
    assert codes(decode(await answer, 13)) == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_consumer_that_hung_up_is_forgotten(node: Any) -> None:
    await node.create("orders")
    answer = await begin(node, at("orders"))
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)
    assert not node.partition("orders").waiting
    assert not node.connection.holds_back_the_next


async def test_what_was_too_little_is_not_kept_while_the_fetch_waits(node: Any) -> None:
    await node.create("orders")
    for _ in range(16):
        append(node, "orders", MIB // 2)
    tracemalloc.start()
    try:
        answer = await begin(node, at("orders", size_max=16 * MIB), min_bytes=32 * MIB)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 8 * MIB  # it was read
    assert kept < MIB
    answer.cancel()


# Quotas


async def set_quota(node: Any, key: str, value: float) -> None:
    entity = frozenset({("client-id", "a-client")})
    node.context.quotas.replace({entity: {key: value}})


async def test_a_consumer_over_its_quota_gets_an_empty_answer_and_no_session(node: Any) -> None:
    await node.create("orders")
    size = len(append(node, "orders", 20_000))
    await set_quota(node, "consumer_byte_rate", 2_500)  # one such batch in its window of 10 s, not two
    sessions = node.context.fetch_sessions
    assert sizes(await fetch(node, at("orders"))) == [size]
    answer = await fetch(node, at("orders"), session_epoch=0)
    assert answer.throttle_time.total_seconds() > 0
    assert (answer.responses, answer.session_id, len(sessions)) == ((), 0, 0)
    assert node.connection.throttle_ms > 0
    # What was not given is not counted: the wait does not grow with every try.
    first, second = [await fetch(node, at("orders")) for _ in range(2)]
    assert second.throttle_time <= first.throttle_time


async def test_a_throttled_round_does_not_touch_the_session(node: Any) -> None:
    await node.create("orders")
    opened = await fetch(node, at("orders"), session_epoch=0)
    size = len(append(node, "orders", 20_000))
    await set_quota(node, "consumer_byte_rate", 2_500)
    assert sizes(await fetch(node, at("orders"))) == [size]
    session = {"session_id": opened.session_id}
    throttled = await fetch(node, session_epoch=1, **session)
    assert (throttled.session_id, throttled.responses) == (opened.session_id, ())
    node.context.quotas.replace({})
    after = await fetch(node, session_epoch=2, **session)
    assert sizes(after) == [size]


async def test_no_more_is_read_than_a_quota_could_ever_allow(node: Any) -> None:
    await node.create("orders")
    for _ in range(10):
        append(node, "orders", 1000)
    await set_quota(node, "consumer_byte_rate", 300)  # 3,000 bytes in 10 s
    assert 1000 <= sum(sizes(await fetch(node, at("orders")))) <= 3000


# Counting


async def test_what_is_counted_and_remembered_of_a_consumer_exists(node: Any) -> None:
    await node.create("orders", 2)
    for _ in range(10):
        append(node, "orders")
    out = node.context.metrics.messages_out.child("orders")
    await fetch(node, at("orders"), *(at("orders", index) for index in range(2, 500)), at("nowhere"))
    assert len(node.connection.fetch_positions) == 1
    for offset, counted in ((4, 4), (2**63 - 1, 10), (0, 10), (-5, 10)):
        await fetch(node, at("orders", offset=offset))
        assert out.value == counted


async def test_a_connection_remembers_only_so_many_positions(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "POSITIONS_MAX", 3)
    await node.create("orders", 6)
    await fetch(node, *(at("orders", index) for index in range(6)))
    assert len(node.connection.fetch_positions) == 3
