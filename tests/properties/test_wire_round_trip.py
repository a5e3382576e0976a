"""What we write kio reads, and what kio writes we read: kio, generated from Kafka's own layouts, is the judge."""

import io
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.errors import MalformedFrame
from penstock.wire.apis import APIS, Api, ApiKey
from penstock.wire.fetch import (
    HIGH_WATERMARK_UNSUPPORTED,
    AbortedTransaction,
    FetchPartitionResult,
    FetchTopicResult,
    encode_fetch_response,
    parse_fetch,
)
from penstock.wire.frame import parse_request_header, request_frame
from penstock.wire.messages import (
    Kind,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    load_entity,
)
from penstock.wire.produce import (
    NodeEndpoint,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    RecordError,
    encode_produce_response,
    parse_one,
    parse_produce,
)
from penstock.wire.schema import FieldSpec, field_specs

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "timedelta_i32": 32, "timedelta_i64": 52, "datetime_i64": 45}
KNOWN_ERRORS = [code.value for code in ErrorCode]

CODECS: list[tuple[Kind, Any, Any]] = [
    ("request", encode_request, decode_request),
    ("response", encode_response, decode_response),
]

seeds = st.integers(0, 2**32)


def random_text(chance: random.Random) -> str:
    return "".join(chance.choice("abcé日🚰") for _ in range(chance.choice((0, 1, 5, 30, 200))))


def random_value(spec: FieldSpec, chance: random.Random) -> Any:
    if spec.nullable and chance.random() < 0.3:
        return None
    if spec.is_array:
        return [random_element(spec, chance) for _ in range(chance.randrange(4))]
    return random_element(spec, chance)


def random_element(spec: FieldSpec, chance: random.Random) -> Any:
    match spec.kind:
        case "entity":
            return random_body(spec.entity, chance)
        case "string":
            return random_text(chance)
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 1, 10, 300)))
        case "uuid":
            return chance.choice((None, UUID(int=chance.getrandbits(128))))
        case "bool":
            return chance.random() < 0.5
        case "float64":
            return chance.uniform(-1e12, 1e12)
        case "error_code":
            return chance.choice(KNOWN_ERRORS)
        case "datetime_i64":
            return chance.choice((-1, chance.getrandbits(40)))
        case "uint16":
            return chance.choice((0, 1, 2**16 - 1, chance.getrandbits(16)))
        case _:
            half = 1 << BITS[spec.kind] - 1
            return chance.choice((0, -1, half - 1, -half, chance.randrange(-half, half)))


def random_body(entity: Any, chance: random.Random) -> dict[str, Any]:
    return {spec.name: random_value(spec, chance) for spec in field_specs(entity)}


def as_kio(entity: Any, body: dict[str, Any]) -> Any:
    return entity(**{spec.name: as_kio_value(spec, body[spec.name]) for spec in field_specs(entity)})


def as_kio_value(spec: FieldSpec, value: Any) -> Any:
    if value is None:
        return None
    if spec.is_array:
        return tuple(as_kio_element(spec, element) for element in value)
    return as_kio_element(spec, value)


def as_kio_element(spec: FieldSpec, value: Any) -> Any:
    match spec.kind:
        case "entity":
            return as_kio(spec.entity, value)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + timedelta(milliseconds=value)
        case _:
            return value


def kio_bytes(message: Any) -> bytes:
    with io.BytesIO() as out:
        entity: type[Any] = message.__class__
        entity_writer(entity)(out, message)
        return out.getvalue()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
@settings(max_examples=2, deadline=None)
@given(seed=seeds)
def test_the_writer_and_kio_agree_on_every_version_of_every_message(api: Api, seed: int) -> None:
    chance = random.Random(seed)
    for version in range(api.low, api.high + 1):
        for kind, encode, decode in CODECS:
            entity = load_entity(api.key, version, kind)
            body = random_body(entity, chance)
            message = as_kio(entity, body)
            ours = encode(api.key, version, body)
            assert ours == kio_bytes(message)
            assert decode(api.key, version, ours) == message


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=5, deadline=None)
@given(seed=seeds)
def test_a_produce_request_written_by_kio_is_parsed_whole(version: int, seed: int) -> None:
    message = as_kio(*random_message(ApiKey.PRODUCE, version, "request", seed))
    frame, offset = framed(ApiKey.PRODUCE, version, kio_bytes(message))
    request = parse_produce(version, frame, offset)
    assert (request.transactional_id, request.acks) == (message.transactional_id, message.acks)
    assert timedelta(milliseconds=request.timeout_ms) == message.timeout
    topics = [(name, topic_id or UUID(int=0), partitions) for name, topic_id, partitions in request.topics]
    assert topics == topics_of(message.topic_data, produced, "partition_data")
    for _, _, partitions in request.topics:
        for _, records in partitions:
            assert records is None or records.obj is frame.obj


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=5, deadline=None)
@given(seed=seeds)
def test_a_fetch_request_written_by_kio_is_parsed_whole(version: int, seed: int) -> None:
    message = as_kio(*random_message(ApiKey.FETCH, version, "request", seed))
    frame, offset = framed(ApiKey.FETCH, version, kio_bytes(message))
    request = parse_fetch(version, frame, offset)
    replica = getattr(message, "replica_state", message)
    assert request.replica_id == replica.replica_id
    assert request.replica_epoch == getattr(replica, "replica_epoch", -1)
    assert timedelta(milliseconds=request.max_wait_ms) == message.max_wait
    assert (request.min_bytes, request.max_bytes) == (message.min_bytes, message.max_bytes)
    assert request.isolation_level == message.isolation_level
    assert request.session_id == getattr(message, "session_id", 0)
    assert request.session_epoch == getattr(message, "session_epoch", -1)
    assert request.rack_id == getattr(message, "rack_id", "")
    assert request.cluster_id == getattr(message, "cluster_id", None)
    assert topics_of(request.topics, tuple) == topics_of(message.topics, fetched)
    assert topics_of(request.forgotten_topics, int) == topics_of(getattr(message, "forgotten_topics_data", ()), int)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@settings(max_examples=5, deadline=None)
@given(seed=seeds)
def test_kio_reads_our_produce_response(version: int, seed: int) -> None:
    _, body = random_message(ApiKey.PRODUCE, version, "response", seed)
    topics = [
        ProduceTopicResult(
            topic.get("name"),
            topic_id_of(topic),
            [
                ProducePartitionResult(
                    result["index"],
                    result["error_code"],
                    result["base_offset"],
                    result["log_append_time"],
                    result.get("log_start_offset", -1),
                    [
                        RecordError(e["batch_index"], e["batch_index_error_message"])
                        for e in result.get("record_errors", ())
                    ],
                    result.get("error_message"),
                    leader_of(result),
                )
                for result in topic["partition_responses"]
            ],
        )
        for topic in body["responses"]
    ]
    endpoints = [NodeEndpoint(**endpoint) for endpoint in body.get("node_endpoints", ())]
    frame = encode_produce_response(version, 77, topics, body["throttle_time"], endpoints)
    assert response_body(ApiKey.PRODUCE, version, frame) == encode_response(ApiKey.PRODUCE, version, body)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@given(
    name=st.text(max_size=200),
    topic_id=st.uuids(),
    numbers=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2),
    append_time_ms=st.integers(-1, 2**40),
    partition=st.integers(0, 2**31 - 1),
    throttle_ms=st.integers(0, 2**31 - 1),
)
@settings(max_examples=5, deadline=None)
def test_kio_reads_our_response_to_one_good_batch(
    version: int,
    name: str,
    topic_id: UUID,
    numbers: tuple[int, int],
    append_time_ms: int,
    partition: int,
    throttle_ms: int,
) -> None:
    base_offset, log_start_offset = numbers
    result = ProducePartitionResult(partition, 0, base_offset, append_time_ms, log_start_offset)
    topic = ProduceTopicResult(name, topic_id, [result])
    frame = encode_produce_response(version, 77, [topic], throttle_ms)
    expected = {
        "responses": [
            {
                "name": name,
                "topic_id": topic_id,
                "partition_responses": [
                    {
                        "index": partition,
                        "base_offset": base_offset,
                        "log_append_time": append_time_ms,
                        "log_start_offset": log_start_offset,
                    }
                ],
            }
        ],
        "throttle_time": throttle_ms,
    }
    assert response_body(ApiKey.PRODUCE, version, frame) == encode_response(ApiKey.PRODUCE, version, expected)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@settings(max_examples=5, deadline=None)
@given(seed=seeds)
def test_kio_reads_our_fetch_response_and_its_records_are_not_copied(version: int, seed: int) -> None:
    chance = random.Random(seed)
    _, body = random_message(ApiKey.FETCH, version, "response", seed)
    given_buffers: list[Any] = []
    topics: list[FetchTopicResult] = []
    for topic in body["responses"]:
        results: list[FetchPartitionResult] = []
        for result in topic["partitions"]:
            result["records"] = result["records"] or b""
            result.pop("snapshot_id", None)
            pieces = split(result["records"], chance)
            if result["records"]:
                given_buffers += pieces
            aborted = result["aborted_transactions"]
            results.append(
                FetchPartitionResult(
                    result["partition_index"],
                    result["error_code"],
                    result["high_watermark"],
                    result["last_stable_offset"],
                    result.get("log_start_offset", -1),
                    None if aborted is None else [AbortedTransaction(**transaction) for transaction in aborted],
                    result.get("preferred_read_replica", -1),
                    pieces if len(pieces) > 1 else pieces[0],
                    pair_of(result, "diverging_epoch", "epoch", "end_offset"),
                    leader_of(result),
                )
            )
        topics.append(FetchTopicResult(topic.get("topic"), topic_id_of(topic), results))
    endpoints = [NodeEndpoint(**endpoint) for endpoint in body.get("node_endpoints", ())]
    buffers = encode_fetch_response(
        version,
        77,
        body["throttle_time"],
        body.get("error_code", 0),
        body.get("session_id", 0),
        topics,
        endpoints,
    )
    frame = b"".join(buffers)
    assert response_body(ApiKey.FETCH, version, frame) == encode_response(ApiKey.FETCH, version, body)
    passed = {id(buffer) for buffer in buffers}
    assert all(id(buffer) in passed for buffer in given_buffers)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(APIS), seeds)
def test_a_cut_or_changed_request_is_malformed_or_decodes_but_nothing_else(api: Api, seed: int) -> None:
    chance = random.Random(seed)
    version = chance.randint(api.low, api.high)
    entity = load_entity(api.key, version, "request")
    body = encode_request(api.key, version, random_body(entity, chance))
    whole = request_frame(api.key, version, 77, "client", body)[4:]
    for cut in {chance.randrange(len(whole)) for _ in range(20)} | {len(whole) - 1}:
        with pytest.raises(MalformedFrame):
            read(api, version, whole[:cut])
    for _ in range(20):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(4, len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        with suppress(MalformedFrame):
            read(api, version, bytes(changed))


def read(api: Api, version: int, frame: bytes) -> None:
    view = memoryview(frame)
    offset = parse_request_header(view).body_offset
    if api.key == ApiKey.PRODUCE:
        one = parse_one(version, view, offset)
        request = parse_produce(version, view, offset)
        if one is not None:  # what the short road reads, the general one reads too, and alike
            acks, timeout_ms, name, topic_id, index, records = one
            assert request == ProduceRequest(None, acks, timeout_ms, [(name, topic_id, [(index, records)])])
    elif api.key == ApiKey.FETCH:
        parse_fetch(version, view, offset)
    else:
        decode_request(api.key, version, frame[offset:])


def random_message(api_key: ApiKey, version: int, kind: Kind, seed: int) -> tuple[Any, dict[str, Any]]:
    entity = load_entity(api_key, version, kind)
    return entity, random_body(entity, random.Random(seed))


def framed(api_key: ApiKey, version: int, body: bytes) -> tuple[memoryview, int]:
    frame = memoryview(request_frame(api_key, version, 77, "client", body))[4:]
    return frame, parse_request_header(frame).body_offset


def response_body(api_key: ApiKey, version: int, frame: bytes) -> bytes:
    header_bytes = 9 if next(api for api in APIS if api.key == api_key).is_flexible(version) else 8
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big") == 77
    decode_response(api_key, version, bytes(frame[header_bytes:]))
    return bytes(frame[header_bytes:])


def topics_of(topics: Any, partition_of: Any, partitions: str = "partitions") -> list[Any]:
    return [
        (
            getattr(topic, "name", getattr(topic, "topic", None)),
            getattr(topic, "topic_id", None) or UUID(int=0),
            [partition_of(partition) for partition in getattr(topic, partitions)],
        )
        for topic in topics
    ]


def produced(partition: Any) -> tuple[Any, ...]:
    return partition.index, partition.records


def fetched(partition: Any) -> tuple[Any, ...]:
    return (
        partition.partition,
        getattr(partition, "current_leader_epoch", -1),
        partition.fetch_offset,
        getattr(partition, "last_fetched_epoch", -1),
        getattr(partition, "log_start_offset", -1),
        partition.partition_max_bytes,
        getattr(partition, "replica_directory_id", None),
        getattr(partition, "high_watermark", HIGH_WATERMARK_UNSUPPORTED),
    )


def topic_id_of(topic: dict[str, Any]) -> UUID:
    return topic.get("topic_id") or UUID(int=0)


def pair_of(result: dict[str, Any], field: str, first: str, second: str) -> tuple[int, int] | None:
    value = result.get(field)
    pair = None if value is None else (value[first], value[second])
    return None if pair == (-1, -1) else pair


def leader_of(result: dict[str, Any]) -> tuple[int, int] | None:
    return pair_of(result, "current_leader", "leader_id", "leader_epoch")


def split(records: bytes, chance: random.Random) -> list[Any]:
    at = sorted(chance.randrange(len(records) + 1) for _ in range(chance.randrange(3)))
    view = memoryview(records)
    return [view[start:end] for start, end in zip([0, *at], [*at, len(records)], strict=True)]
