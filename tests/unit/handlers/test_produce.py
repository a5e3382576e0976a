"""handlers.produce: what is written, what is refused with which error, what is waited for."""

import asyncio
import threading
from collections.abc import Iterator
from itertools import product
from struct import pack_into
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.brief_work import BriefWork
from penstock.disk import RealFile
from penstock.errors import ErrorCode, MalformedFrame
from penstock.handlers import produce
from penstock.handlers.answers import Hangup, LateReply, PendingReply, made
from penstock.handlers.context import RawRequest
from penstock.handlers.produce import handle_produce
from penstock.records.batch import refresh_crc
from penstock.records.compression import Codec
from penstock.records.record import Record, encode_batch
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import skip_tags

PRODUCE = ApiKey.PRODUCE
VERSIONS = range(BY_KEY[PRODUCE].low, BY_KEY[PRODUCE].high + 1)
BY_NAME = 12  # the newest version that names topics
NOW = 1_700_000_000_000


def batch(count: int = 1, *, key: bytes | None = b"key", value: bytes = b"value", **options: Any) -> bytearray:
    return encode_batch([Record(offset, NOW, key, value) for offset in range(count)], **options)


def changed(records: bytearray, position: int, layout: str, *values: int, crc: bool = True) -> bytes:
    """The batch with other bytes at `position`; with its checksum made anew unless that is what is to be wrong."""
    pack_into(layout, records, position, *values)
    if crc:
        refresh_crc(memoryview(records))
    return bytes(records)


def start(node: Any, version: int, body: dict[str, Any]) -> Any:
    """What the handler gives back: a frame, a future of one, None or a Hangup."""
    raw = bytearray(encode_request(PRODUCE, version, body))
    clock = node.context.clock
    answer = handle_produce(
        node.context, RawRequest(version, 7, "a-client", node.connection, memoryview(raw), 0, clock.monotonic())
    )
    # The connection reads the next frame into the same buffer: nothing may depend on it any more.
    raw[:] = b"\xaa" * len(raw)
    return answer


async def send(node: Any, topics: list[dict[str, Any]], version: int = BY_NAME, **body: Any) -> Any:
    answer = start(node, version, {"acks": 1, "timeout": 30_000, "topic_data": topics, **body})
    return decode(await made(answer), version)


def decode(frame: bytes, version: int) -> Any:
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 7
    offset = skip_tags(memoryview(frame), 8) if BY_KEY[PRODUCE].is_flexible(version) else 8
    return decode_response(PRODUCE, version, frame[offset:])


def to(topic: str | UUID, *partitions: tuple[int, bytes | bytearray | None]) -> dict[str, Any]:
    data = [{"index": index, "records": records and bytes(records)} for index, records in partitions]
    return {"name" if isinstance(topic, str) else "topic_id": topic, "partition_data": data}


async def outcome(node: Any, records: bytes | bytearray | None, *, topic: str = "orders", **body: Any) -> Any:
    """The answer for one batch to one partition."""
    answer = await send(node, [to(topic, (0, records))], **body)
    return answer.responses[0].partition_responses[0]


async def code(node: Any, records: bytes | bytearray | None, **body: Any) -> ErrorCode:
    return ErrorCode((await outcome(node, records, **body)).error_code)


# What is written


async def test_every_version_writes_and_tells_the_offset(node: Any) -> None:
    await node.create("orders", 2)
    written = 0
    for version, acks in product(VERSIONS, (1, -1)):
        topic = node.context.image.topics["orders"].id if version >= 13 else "orders"
        answer = await send(node, [to(topic, (1, batch(3)))], version, acks=acks)
        (result,) = answer.responses[0].partition_responses
        assert (result.index, result.error_code, result.base_offset) == (1, 0, written)
        assert version < 5 or result.log_start_offset == 0
        written += 3
    assert node.partition("orders", 1).log.next_offset == written


async def test_acks_0_is_written_and_not_answered(node: Any) -> None:
    await node.create("orders")
    assert start(node, BY_NAME, {"acks": 0, "topic_data": [to("orders", (0, batch()))]}) is None
    assert node.partition("orders").log.next_offset == 1


async def test_the_error_of_one_partition_leaves_the_others_alone(node: Any) -> None:
    await node.create("orders", 3)
    answer = await send(
        node,
        [
            to("orders", (0, batch()), (9, batch()), (2, batch())),
            to("nowhere", (0, batch())),
            to("orders", (1, b"rubbish"), (1, batch())),
        ],
        acks=-1,
    )
    found = [
        (topic.name, result.index, ErrorCode(result.error_code).name, result.base_offset)
        for topic in answer.responses
        for result in topic.partition_responses
    ]
    assert found == [
        ("orders", 0, "NONE", 0),
        ("orders", 9, "UNKNOWN_TOPIC_OR_PARTITION", -1),
        ("orders", 2, "NONE", 0),
        ("nowhere", 0, "UNKNOWN_TOPIC_OR_PARTITION", -1),
        ("orders", 1, "CORRUPT_MESSAGE", -1),
        ("orders", 1, "NONE", 0),
    ]


async def test_a_partition_named_twice_takes_both_batches_in_order(node: Any) -> None:
    await node.create("orders")
    answer = await send(node, [to("orders", (0, batch(2)), (0, batch(1))), to("orders", (0, batch(1)))])
    offsets = [result.base_offset for topic in answer.responses for result in topic.partition_responses]
    assert offsets == [0, 2, 3]


async def test_a_request_about_nothing_is_answered_with_nothing(node: Any) -> None:
    for version in VERSIONS:
        assert (await send(node, [], version)).responses == ()
    for version in range(VERSIONS.start, 13):
        answer = await send(node, [to("orders")], version)
        assert [(topic.name, topic.partition_responses) for topic in answer.responses] == [("orders", ())]


async def test_log_append_time_is_told(node: Any) -> None:
    await node.create("orders", message_timestamp_type="LogAppendTime")
    result = await outcome(node, batch())
    assert result.error_code == 0
    assert result.log_append_time is not None
    assert result.log_append_time.timestamp() * 1000 > NOW


async def test_a_repeated_batch_gets_its_first_offset_and_is_written_once(node: Any) -> None:
    await node.create("orders")
    repeated = batch(2, producer_id=5, producer_epoch=0, base_sequence=0)
    assert (await outcome(node, bytes(repeated), acks=-1)).base_offset == 0
    assert (await outcome(node, batch())).base_offset == 2
    assert (await outcome(node, bytes(repeated), acks=-1)).base_offset == 0
    assert node.partition("orders").log.next_offset == 3
    assert node.context.metrics.messages_in.child("orders").value == 3


# What is refused


async def test_acks_are_0_1_or_all(node: Any) -> None:
    await node.create("orders")
    for acks in (-2, 2, 5, -32768, 32767):
        assert await code(node, batch(), acks=acks) is ErrorCode.INVALID_REQUIRED_ACKS
    assert node.partition("orders").log.next_offset == 0


async def test_a_topic_or_partition_that_is_not_there(node: Any) -> None:
    await node.create("orders")
    assert await code(node, batch(), topic="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for index in (1, -1, 2**31 - 1):
        answer = await send(node, [to("orders", (index, batch()))])
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_id_that_is_not_known(node: Any) -> None:
    await node.create("orders")
    for topic_id in (uuid4(), UUID(int=0)):
        answer = await send(node, [to(topic_id, (0, batch()))], 13)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


BATCH_ERRORS = {
    "no records at all": (None, ErrorCode.INVALID_RECORD),
    "no bytes": (b"", ErrorCode.CORRUPT_MESSAGE),
    "a byte": (b"\x00", ErrorCode.CORRUPT_MESSAGE),
    "half a header": (bytes(batch())[:40], ErrorCode.CORRUPT_MESSAGE),
    "a byte too few": (bytes(batch())[:-1], ErrorCode.CORRUPT_MESSAGE),
    "a byte too many": (bytes(batch()) + b"\x00", ErrorCode.INVALID_RECORD),
    "two batches": (bytes(batch() + batch()), ErrorCode.INVALID_RECORD),
    "a wrong checksum": (changed(batch(), 17, ">I", 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "a flipped bit": (bytes(batch())[:-1] + b"\x01", ErrorCode.CORRUPT_MESSAGE),
    "format 0": (changed(batch(), 16, ">b", 0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "format 1": (changed(batch(), 16, ">b", 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "format 3": (changed(batch(), 16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "a negative format": (changed(batch(), 16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (changed(batch(), 8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "a huge length": (changed(batch(), 8, ">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
    "a control batch": (batch(is_control=True), ErrorCode.INVALID_RECORD),
    "no records in the batch": (changed(batch(), 57, ">i", 0), ErrorCode.INVALID_RECORD),
    "fewer records than none": (changed(batch(), 57, ">i", -1), ErrorCode.INVALID_RECORD),
    "more records than offsets": (changed(batch(), 57, ">i", 2), ErrorCode.INVALID_RECORD),
    "more offsets than records": (changed(batch(), 23, ">i", 7), ErrorCode.INVALID_RECORD),
    "2^31 - 1 offsets": (changed(batch(), 23, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "an offset of its own": (changed(batch(), 0, ">q", 5), ErrorCode.INVALID_RECORD),
    "a negative offset": (changed(batch(), 0, ">q", -5), ErrorCode.INVALID_RECORD),
    "a sequence without a number": (batch(producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
    "a transaction that is not named": (
        batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "a compression there is none": (changed(batch(), 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "the last compression there is none": (changed(batch(), 21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "the far future": (changed(batch(), 35, ">q", 2**62), ErrorCode.INVALID_TIMESTAMP),
    "a sequence that starts in the middle": (
        batch(producer_id=1, producer_epoch=0, base_sequence=7),
        ErrorCode.NONE,  # of a producer not known here any sequence may be the first
    ),
}


async def test_a_batch_that_is_not_right_gets_its_error_and_leaves_no_trace(node: Any) -> None:
    refused = node.context.metrics.request_errors
    for number, (what, (records, expected)) in enumerate(BATCH_ERRORS.items()):
        topic = f"orders-{number}"
        await node.create(topic)
        result = await outcome(node, records, topic=topic)
        assert ErrorCode(result.error_code) is expected, what
        assert bool(result.error_message) == bool(expected), what
        assert node.partition(topic).log.next_offset == (0 if expected else 1), what
        if expected:
            before = refused.child("Produce", expected.name).value
            hangup = start(node, BY_NAME, {"acks": 0, "topic_data": [to(topic, (0, records))]})
            assert isinstance(hangup, Hangup), what
            assert refused.child("Produce", expected.name).value == before + 1


async def test_a_message_of_an_old_format_is_named_as_such_however_short(node: Any) -> None:
    await node.create("orders")
    assert await code(node, bytes(16)) is ErrorCode.CORRUPT_MESSAGE
    for magic in (b"\x00", b"\x01"):
        assert await code(node, bytes(16) + magic) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert await code(node, bytes(16) + magic + bytes(20)) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


async def test_a_sequence_with_a_hole_or_of_an_older_producer_is_refused(node: Any) -> None:
    await node.create("orders")
    assert await code(node, batch(producer_id=1, producer_epoch=1, base_sequence=0)) is ErrorCode.NONE
    hole = batch(producer_id=1, producer_epoch=1, base_sequence=5)
    assert await code(node, hole) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = batch(producer_id=1, producer_epoch=0, base_sequence=1)
    assert await code(node, older) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_batch_above_max_message_bytes_is_too_large(node: Any) -> None:
    size = len(batch(value=bytes(500)))
    await node.create("orders", max_message_bytes=str(size))
    assert await code(node, batch(value=bytes(500))) is ErrorCode.NONE
    assert await code(node, batch(value=bytes(501))) is ErrorCode.MESSAGE_TOO_LARGE


async def test_a_batch_that_becomes_too_large_by_the_topics_own_compression_is_refused(node: Any) -> None:
    await node.create("orders", compression_type="uncompressed", max_message_bytes="10000")
    assert await code(node, batch(value=bytes(9000), compression=Codec.ZSTD)) is ErrorCode.NONE
    assert await code(node, batch(value=bytes(11000), compression=Codec.ZSTD)) is ErrorCode.MESSAGE_TOO_LARGE
    assert node.partition("orders").log.next_offset == 1


async def test_a_compacted_topic_takes_no_record_without_a_key(node: Any) -> None:
    await node.create("latest", cleanup_policy="compact")
    assert await code(node, batch(key=None), topic="latest") is ErrorCode.INVALID_RECORD
    assert await code(node, batch(key=b""), topic="latest") is ErrorCode.NONE
    rubbish = changed(batch(value=bytes(100)), 61, ">q", -1)
    assert await code(node, rubbish, topic="latest") is ErrorCode.INVALID_RECORD


async def test_what_is_not_compressed_as_it_says_is_corrupt_where_it_is_unpacked(node: Any) -> None:
    await node.create("compacted", cleanup_policy="compact")
    await node.create("unpacked", compression_type="uncompressed")
    expected = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    for topic, codec in product(("compacted", "unpacked"), (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)):
        lie = changed(batch(value=bytes(100)), 21, ">h", codec)
        assert await code(node, lie, topic=topic) in expected
        assert node.partition(topic).log.next_offset == 0


async def test_a_request_that_keeps_the_loop_too_long_is_cut_and_what_is_left_may_be_sent_again(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders", 3)
    monkeypatch.setattr(produce, "LOOP_S_MAX", -1.0)
    answer = await send(node, [to("orders", (0, batch()), (1, batch())), to("orders", (2, batch()))])
    found = [ErrorCode(each.error_code) for topic in answer.responses for each in topic.partition_responses]
    assert found == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT]
    assert [node.partition("orders", index).log.next_offset for index in range(3)] == [1, 0, 0]


async def test_a_request_cut_short_is_no_request(node: Any) -> None:
    for version in VERSIONS:
        topic = UUID(int=1) if version >= 13 else "orders"
        whole = encode_request(PRODUCE, version, {"acks": 1, "topic_data": [to(topic, (0, batch()))]})
        for size in range(len(whole)):
            request = RawRequest(version, 7, None, node.connection, memoryview(bytearray(whole[:size])), 0, 0.0)
            with pytest.raises(MalformedFrame):
                handle_produce(node.context, request)


# What is waited for


@pytest.fixture
def stable_storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Clear it, and every fsync waits until it is set again."""
    answers = threading.Event()
    answers.set()
    sync = RealFile.sync

    def sync_when_allowed(file: RealFile) -> None:
        assert answers.wait(30)
        sync(file)

    monkeypatch.setattr(RealFile, "sync", sync_when_allowed)
    # Such a disk has been found slow long before: its syncs are not for the loop.
    monkeypatch.setattr(BriefWork, "may_run_here", lambda _: False)
    yield answers
    answers.set()


async def test_acks_all_is_answered_when_every_partition_is_on_stable_storage(
    node: Any, stable_storage: threading.Event
) -> None:
    await node.create("orders", 2)
    stable_storage.clear()
    topics = [to("orders", (0, batch()), (1, batch()))]
    answer = start(node, BY_NAME, {"acks": -1, "timeout": 30_000, "topic_data": topics})
    assert isinstance(answer, PendingReply)
    # Written, and seen by consumers, though not yet acknowledged.
    assert [node.partition("orders", index).high_watermark for index in (0, 1)] == [1, 1]
    assert (await outcome(node, batch())).base_offset == 1
    assert not answer.is_done
    stable_storage.set()
    results = decode(await made(answer), BY_NAME).responses[0].partition_responses
    assert [(result.index, result.error_code, result.base_offset) for result in results] == [(0, 0, 0), (1, 0, 0)]
    assert [node.partition("orders", index).log.durable_offset for index in (0, 1)] >= [1, 1]


@pytest.mark.parametrize("timeout_ms", [50, 0, -1])
async def test_what_is_not_durable_in_time_is_said_to_be_late_and_stays_written(
    node: Any, stable_storage: threading.Event, timeout_ms: int
) -> None:
    await node.create("orders")
    stable_storage.clear()
    assert await code(node, batch(), acks=-1, timeout=timeout_ms) is ErrorCode.REQUEST_TIMED_OUT
    stable_storage.set()
    assert (await outcome(node, batch(), acks=-1)).base_offset == 1


async def test_a_failed_fsync_is_the_producers_error_and_the_end_of_the_log(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")

    def fail(_: RealFile) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(RealFile, "sync", fail)
    assert await code(node, batch(), acks=-1) is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert await code(node, batch(), acks=1) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_topic_deleted_meanwhile_is_no_topic(node: Any, stable_storage: threading.Event) -> None:
    await node.create("orders")
    stable_storage.clear()
    topics = [to("orders", (0, batch()))]
    answer = start(node, BY_NAME, {"acks": -1, "timeout": 30_000, "topic_data": topics})
    await node.context.controller.delete_topics(["orders"])
    result = decode(await made(answer), BY_NAME).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_producer_that_hung_up_does_not_upset_the_sync(node: Any, stable_storage: threading.Event) -> None:
    await node.create("orders")
    stable_storage.clear()
    topics = [to("orders", (0, batch()))]
    gone = start(node, BY_NAME, {"acks": -1, "timeout": 30_000, "topic_data": topics})
    waiting = start(node, BY_NAME, {"acks": -1, "timeout": 30_000, "topic_data": topics})
    gone.cancel()
    stable_storage.set()
    assert decode(await made(waiting), BY_NAME).responses[0].partition_responses[0].base_offset == 1


# What is gathered


async def test_small_batches_of_one_turn_are_written_before_the_first_of_them_is_answered(node: Any) -> None:
    await node.create("orders")
    await outcome(node, batch())
    log = node.partition("orders").log
    body = {"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, batch()))]}
    await asyncio.sleep(0)
    at_once, *late = [start(node, BY_NAME, body) for _ in range(4)]
    assert isinstance(at_once, bytes)
    assert all(isinstance(each, LateReply) for each in late)
    assert (log.next_offset, log.written_end) == (5, 2)
    first = decode(late[0].make(), BY_NAME)
    assert log.written_end == 5
    rest = [decode(each.make(), BY_NAME) for each in late[1:]]
    offsets = [each.responses[0].partition_responses[0].base_offset for each in (first, *rest)]
    assert offsets == [2, 3, 4]


async def test_a_gathered_batch_that_could_not_be_written_is_refused(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders", 2)
    for index in (0, 1):
        await send(node, [to("orders", (index, batch()))])
    write_at, broken = RealFile.write_at, node.partition("orders", 0).log.segments[-1].file

    def full(file: RealFile, position: int, buffers: Any) -> None:
        if file is broken:
            raise OSError(28, "No space left on device")
        write_at(file, position, buffers)

    both = {"acks": 1, "timeout": 30_000, "topic_data": [to("orders", (0, batch()), (1, batch()))]}
    await asyncio.sleep(0)
    assert isinstance(start(node, BY_NAME, both), bytes)
    answer = start(node, BY_NAME, both)
    assert isinstance(answer, LateReply)
    monkeypatch.setattr(RealFile, "write_at", full)
    results = decode(answer.make(), BY_NAME).responses[0].partition_responses
    assert [ErrorCode(each.error_code) for each in results] == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    assert [node.partition("orders", index).log.next_offset for index in (0, 1)] == [2, 3]


async def test_acks_0_is_never_gathered_so_a_full_disk_is_told_by_hanging_up(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")
    body = {"acks": 0, "topic_data": [to("orders", (0, batch()))]}
    for written in (1, 2, 3):
        assert start(node, BY_NAME, body) is None
        assert node.partition("orders").log.written_end == written

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RealFile, "write_at", full)
    assert isinstance(start(node, BY_NAME, body), Hangup)
