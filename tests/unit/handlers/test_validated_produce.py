"""Produce to topics that validate by schema: what is refused, buried, marked, waited for; and never taken unjudged."""

from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.handlers.answers import Hangup, made
from penstock.handlers.context import RawRequest
from penstock.handlers.produce import handle_produce
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.records.compression import Codec
from penstock.records.record import Record, decode_records, encode_batch
from penstock.schemas.framing import join_frame
from penstock.schemas.stored.records import SchemaRecord, key_of, value_of
from penstock.validation import validation
from penstock.validation.rules import RECORD_ERRORS_MAX
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import skip_tags

PRODUCE = ApiKey.PRODUCE
BY_NAME = 12
GOOD, BAD = join_frame(1, b"\x02"), join_frame(1, b"\x80")
VALIDATES = {"penstock_schema_validation": "full"}
BURIES = {**VALIDATES, "penstock_schema_validation_on_failure": "dead-letter"}


def register(node: Any, subject: str, schema_id: int, *, version: int = 1, deleted: bool = False) -> None:
    """As a registry writes it."""
    record = SchemaRecord(subject, version, schema_id, "AVRO", f'{{"type": "long", "n": {schema_id}}}', deleted=deleted)
    batch = memoryview(encode_batch([Record(0, node.context.clock.now_ms(), key_of(record), value_of(record))]))
    node.partition("_schemas").append(batch, read_header(batch), node.context.clock.now_ms())


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("_schemas", cleanup_policy="compact")
    register(node, "orders-value", 1)
    return node


def batch(node: Any, *values: bytes | None, **options: Any) -> bytearray:
    now = node.context.clock.now_ms()
    return encode_batch([Record(index, now, b"k", value) for index, value in enumerate(values)], **options)


def start(node: Any, *records: bytes | bytearray, version: int = BY_NAME, acks: int = -1, topic: str = "orders") -> Any:
    name = {"name": topic} if version <= BY_NAME else {"topic_id": node.context.replicas.topics[topic].id}
    data = [{"index": 0, "records": bytes(each)} for each in records]
    body = {"acks": acks, "timeout": 30_000, "topic_data": [{**name, "partition_data": data}]}
    raw = bytearray(encode_request(PRODUCE, version, body))
    started = node.context.clock.monotonic()
    answer = handle_produce(node.context, RawRequest(version, 7, "c", node.connection, memoryview(raw), 0, started))
    raw[:] = b"\xaa" * len(raw)  # the connection reads the next frame into the same buffer
    return answer


async def send(node: Any, *records: bytes | bytearray, version: int = BY_NAME, **how: Any) -> Any:
    """The answer for the first partition."""
    frame: Any = await made(start(node, *records, version=version, **how))
    offset = skip_tags(memoryview(frame), 8) if BY_KEY[PRODUCE].is_flexible(version) else 8
    return decode_response(PRODUCE, version, frame[offset:]).responses[0].partition_responses[0]


def written(node: Any, topic: str = "orders") -> list[tuple[int, bytes | None]]:
    """Offsets and values of all records that are no control records."""
    log = node.partition(topic).log
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start
    while offset < log.next_offset:
        chunk = log.read(offset, 1 << 20, log.next_offset, cached_only=False)
        header = read_header(chunk)
        if not header.is_control:
            found += [(each.offset, each.value) for each in decode_records(chunk, header, 1 << 24)]
        offset = header.next_offset
    return found


async def test_a_bad_record_refuses_its_batch_and_every_version_says_what_it_can(orders: Any) -> None:
    await orders.create("orders", **VALIDATES)
    for version in range(BY_KEY[PRODUCE].low, BY_KEY[PRODUCE].high + 1):
        answer = await send(orders, batch(orders, GOOD, BAD, b"plain", None), version=version)
        assert answer.error_code == ErrorCode.INVALID_RECORD, version
        if version >= 8:
            (one, other) = answer.record_errors
            assert (one.batch_index, other.batch_index) == (1, 2)
            assert one.batch_index_error_message.startswith("the value does not fit schema id 1: ")
            assert answer.error_message.startswith("record 1 of the batch was refused: the value does not fit")
            assert answer.error_message.endswith("(and 1 more of the batch)")
    assert written(orders) == []
    many = await send(orders, batch(orders, *[BAD] * (RECORD_ERRORS_MAX + 5)))
    assert len(many.record_errors) == RECORD_ERRORS_MAX
    answer = await send(orders, batch(orders, GOOD, None))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert written(orders) == [(0, GOOD), (1, None)]
    refused = start(orders, batch(orders, BAD), acks=0)
    assert isinstance(await refused, Hangup), "no other way to tell"
    twice = await send(orders, batch(orders, GOOD), batch(orders, GOOD))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    metrics = orders.context.metrics
    assert metrics.schema_records_refused.child("orders").value == 2 * 11 + RECORD_ERRORS_MAX + 5 + 1


async def test_an_id_is_looked_up_to_the_end_of_the_topic_before_it_is_refused(orders: Any) -> None:
    await orders.create("orders", **VALIDATES)
    await orders.create("free", **VALIDATES, penstock_schema_subject_strategy="any")
    second = batch(orders, join_frame(2, b"\x02"))
    assert (await send(orders, second)).error_code == ErrorCode.INVALID_RECORD
    register(orders, "elsewhere", 2)
    assert (await send(orders, second, topic="free")).error_code == ErrorCode.NONE
    refused = await send(orders, second)
    assert "schema id 2, which is not registered under subject 'orders-value'" in refused.error_message
    register(orders, "orders-value", 2, version=2)
    assert (await send(orders, second)).error_code == ErrorCode.NONE
    register(orders, "orders-value", 3, version=3, deleted=True)
    deleted = await send(orders, batch(orders, join_frame(3, b"\x02")))
    assert "schema id 3, which is not registered" in deleted.error_message


async def test_without_a_schemas_topic_a_batch_is_to_be_sent_again(node: Any) -> None:
    await node.create("orders", **VALIDATES)
    answer = await send(node, batch(node, GOOD))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (
        "the schemas topic _schemas cannot be read now: there is no such topic; start a schema" in answer.error_message
    )
    await node.create("_schemas")
    register(node, "orders-value", 1)
    assert (await send(node, batch(node, GOOD))).error_code == ErrorCode.NONE
    assert written(node) == [(0, GOOD)]


@pytest.mark.parametrize("codec", list(Codec))
async def test_bad_records_are_buried_once_and_the_sequence_goes_on(orders: Any, codec: Codec) -> None:
    await orders.create("orders", **BURIES)

    def numbered(sequence: int, *values: bytes) -> bytearray:
        return batch(orders, *values, producer_id=9, producer_epoch=0, base_sequence=sequence, compression=codec)

    first, second = numbered(0, GOOD, BAD, b"plain", GOOD), numbered(4, BAD, BAD)
    for _ in range(2):  # and sent again
        for sent, offset in ((first, 0), (second, 4)):
            answer = await send(orders, sent)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, offset)
    assert (await send(orders, numbered(9, GOOD))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await send(orders, numbered(6, GOOD))).base_offset == 6
    assert written(orders) == [(0, GOOD), (3, GOOD), (6, GOOD)]
    assert [value for _, value in written(orders, "orders.dead-letter")] == [BAD, b"plain", BAD, BAD]
    assert orders.context.metrics.schema_records_dead_lettered.child("orders").value == 4


@pytest.mark.parametrize("buried_in", ["orders", "graves", "_schemas", "__consumer_offsets"])
async def test_a_batch_whose_dead_letters_have_no_place_is_not_written(orders: Any, buried_in: str) -> None:
    await orders.create("graves", **VALIDATES)
    await orders.context.ensure_internal_topic("__consumer_offsets")
    await orders.create("orders", **BURIES, penstock_schema_dead_letter_topic=buried_in)
    answer = await send(orders, batch(orders, GOOD, BAD))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert f"bad records could not go to the topic {buried_in}: " in answer.error_message
    assert "name another dead-letter topic" in answer.error_message
    assert written(orders) == []
    assert (await send(orders, batch(orders, GOOD))).error_code == ErrorCode.NONE


async def test_the_connection_takes_nothing_more_until_the_batch_is_appended(orders: Any) -> None:
    await orders.create("orders", **VALIDATES)
    ends: list[int] = []
    orders.connection.take_more = lambda: ends.append(orders.partition("orders").log.next_offset)
    answer = start(orders, batch(orders, GOOD, GOOD))
    assert orders.connection.holds_back_the_next
    await answer
    assert not orders.connection.holds_back_the_next
    assert ends == [2], "told once, when all was appended"


async def test_what_an_unpacked_batch_may_cost_is_bounded(orders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await orders.create("orders", **VALIDATES, max_message_bytes="10000", penstock_decompression_ratio_max="2")
    bomb = batch(orders, GOOD + b"\0" * 100_000, compression=Codec.GZIP)
    assert len(bomb) < 1000
    assert (await send(orders, bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    crowd = batch(orders, *[None] * 1500, compression=Codec.ZSTD)
    assert (await send(orders, crowd)).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    broken = bytearray(batch(orders, GOOD, compression=Codec.LZ4))[:HEADER_BYTES]
    assert (await send(orders, broken)).error_code == ErrorCode.CORRUPT_MESSAGE
    monkeypatch.setattr(validation, "JUDGE_S_MAX", -1.0)
    slow = await send(orders, batch(orders, GOOD))
    assert slow.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "send smaller batches" in slow.error_message
    assert written(orders) == []


async def test_marked_records_stay_and_say_why(orders: Any) -> None:
    await orders.create("orders", **VALIDATES, penstock_schema_validation_on_failure="mark")
    answer = await send(orders, batch(orders, GOOD, b"plain", compression=Codec.SNAPPY))
    assert answer.error_code == ErrorCode.NONE
    log = orders.partition("orders").log
    chunk = log.read(0, 1 << 20, log.next_offset, cached_only=False)
    good, marked = decode_records(chunk, read_header(chunk), 1 << 20)
    assert (good.value, good.headers) == (GOOD, ())
    assert marked.value == b"plain"
    ((name, reason),) = marked.headers
    assert name == "penstock.schema.error"
    assert reason is not None
    assert reason.startswith(b"the value does not begin with a schema id")
