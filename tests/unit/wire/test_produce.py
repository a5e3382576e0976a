"""Produce requests: the usual shape and every other, hostile frames; responses of one partition and of many."""

from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, MalformedFrame
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.produce import (
    NodeEndpoint,
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    RecordError,
    _encode_any,
    encode_one,
    encode_produce_response,
    parse_one,
    parse_produce,
)

TOPIC_ID = UUID(int=7)
VERSIONS = range(3, 14)
FLEXIBLE_VERSIONS = range(9, 14)


def body(version: int, *partitions: tuple[int, bytes | None], topics: int = 1, transaction: str | None = None) -> bytes:
    topic = {
        "name": "orders",
        "topic_id": TOPIC_ID,
        "partition_data": [{"index": index, "records": records} for index, records in partitions],
    }
    request = {"transactional_id": transaction, "acks": -1, "timeout": 1500, "topic_data": [topic] * topics}
    return encode_request(ApiKey.PRODUCE, version, request)


def parsed(version: int, raw: bytes, offset: int = 0) -> list[Any]:
    """As the general parser sees it; where the short one sees anything, it sees the same."""
    request = parse_produce(version, memoryview(raw), offset)
    one = parse_one(version, memoryview(raw), offset)
    if one is not None:
        acks, timeout_ms, name, topic_id, index, records = one
        assert request == ProduceRequest(None, acks, timeout_ms, [(name, topic_id, [(index, records)])])
    return [request.transactional_id, request.acks, request.timeout_ms, request.topics]


def key(version: int) -> tuple[str | None, UUID | None]:
    return (None, TOPIC_ID) if version >= 13 else ("orders", None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
def test_one_batch_is_parsed_from_where_the_header_ends(version: int, size: int) -> None:
    raw = b"header" + body(version, (3, b"r" * size))
    assert parsed(version, raw, 6) == [None, -1, 1500, [(*key(version), [(3, b"r" * size)])]]
    assert parse_one(version, memoryview(raw), 6) == (-1, 1500, *key(version), 3, b"r" * size)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_shape_is_parsed_as_well(version: int) -> None:
    assert parsed(version, body(version, (3, None))) == [None, -1, 1500, [(*key(version), [(3, None)])]]
    assert parsed(version, body(version)) == [None, -1, 1500, [(*key(version), [])]]
    assert parsed(version, body(version, topics=0)) == [None, -1, 1500, []]
    assert parsed(version, body(version, (0, b"a"), transaction="t")) == ["t", -1, 1500, [(*key(version), [(0, b"a")])]]
    many = [(*key(version), [(0, b"a"), (1, b"bc")])] * 2
    assert parsed(version, body(version, (0, b"a"), (1, b"bc"), topics=2)) == [None, -1, 1500, many]


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
def test_tagged_fields_are_skipped(version: int) -> None:
    raw = body(version, (3, b"rr"))
    tags = b"\x01\x63\x02zz"
    assert raw.endswith(b"rr\x00\x00\x00")
    assert parsed(version, raw[:-3] + tags * 3) == parsed(version, raw)


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
@pytest.mark.parametrize("end", [b"\x01\x00\x00", b"\x00\x01\x00", b"\x00\x00\x01"])
def test_tagged_fields_that_are_counted_but_not_there_are_malformed(version: int, end: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parsed(version, body(version, (3, b"rr"))[:-3] + end)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("partitions", [[(3, b"records")], [(3, b"records"), (4, None)]])
def test_every_truncation_is_malformed_and_bytes_behind_the_request_are_ignored(
    version: int, partitions: list[Any]
) -> None:
    raw = body(version, *partitions)
    for cut in range(len(raw)):
        with pytest.raises(MalformedFrame):
            parsed(version, raw[:cut])
    assert parsed(version, raw + b"\x00") == parsed(version, raw)


START = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # no transaction, acks=all, no time-out
COMPACT = b"\x00\xff\xff\x00\x00\x00\x00"


@pytest.mark.parametrize(
    ("version", "raw"),
    [
        (7, START + b"\x7f\xff\xff\xff"),  # two billion topics
        (7, START + b"\xff\xff\xff\xff"),  # null topics
        (7, START + b"\xff\xff\xff\xfe"),
        (7, START + b"\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff"),  # two billion partitions
        (
            7,
            START + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff",
        ),  # records past the frame
        (7, START + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xfe"),
        (7, START + b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"),  # null name
        (7, START + b"\x00\x00\x00\x01\x00\x02\xff\xfe\x00\x00\x00\x00"),  # not UTF-8
        (9, COMPACT + b"\xff\xff\xff\xff\x0f"),
        (9, COMPACT + b"\x00\x00"),
        (9, COMPACT + b"\x02\x02t\xff\xff\xff\xff\x0f"),
        (9, COMPACT + b"\x02\x02t\x02\x00\x00\x00\x00\xff\xff\xff\xff\x0f"),
        (9, COMPACT + b"\x02\x02t\x02\x00\x00\x00\x00\x80\x80\x80\x80\x80\x01"),  # overlong varint
        (9, COMPACT + b"\x02\x00\x01\x00\x00"),
        (9, COMPACT + b"\x02\x81\x80\x02" + b"t" * 2**15 + b"\x01\x00\x00"),  # a name of 32 KiB
        (13, COMPACT + b"\x02" + bytes(16) + b"\xff\xff\xff\xff\x0f"),
        (13, COMPACT + b"\x02" + bytes(15)),
    ],
)
def test_counts_and_lengths_that_lie_are_malformed(version: int, raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parsed(version, raw)


@pytest.mark.parametrize("version", [7, 9, 13])
def test_more_elements_than_allowed_are_malformed(version: int) -> None:
    elements_max = BY_KEY[ApiKey.PRODUCE].request_elements_max
    partitions = [(0, None)] * (elements_max - 1)
    assert len(parsed(version, body(version, *partitions))[3][0][2]) == elements_max - 1
    with pytest.raises(MalformedFrame):
        parsed(version, body(version, *partitions, (0, None)))
    with pytest.raises(MalformedFrame):
        parsed(version, body(version, topics=elements_max + 1))


def test_records_are_views_of_the_frame() -> None:
    frame = bytearray(body(9, (3, b"rr")))
    request = parse_produce(9, memoryview(frame), 0)
    frame[-5:-3] = b"RR"
    assert request.topics[0][2][0][1] == b"RR"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [1, 126, 127, 249])
def test_the_answer_to_one_batch_is_the_same_by_the_short_road(version: int, length: int) -> None:
    name, topic_id = (None, TOPIC_ID) if version >= 13 else ("n" * length, None)
    result = ProducePartitionResult(3, 0, 2**40, 1_700_000_000_000, 17)
    for throttle_ms in (0, 250):
        general = _encode_any(version, 77, [ProduceTopicResult(name, topic_id, [result])], throttle_ms, ())
        assert encode_one(version, 77, name, topic_id, 3, 2**40, 1_700_000_000_000, 17, throttle_ms) == general
        assert (
            encode_produce_response(version, 77, [ProduceTopicResult(name, topic_id, [result])], throttle_ms) == general
        )


@pytest.mark.parametrize(
    "extra",
    [{"error_message": "duplicate"}, {"record_errors": [RecordError(2, None)]}, {"current_leader": (4, 9)}],
)
def test_what_a_good_batch_is_answered_beside_its_offset_is_not_lost(extra: dict[str, Any]) -> None:
    topic = ProduceTopicResult("orders", None, [ProducePartitionResult(1, 0, 5, **extra)])
    frame = encode_produce_response(10, 77, [topic], 0)
    partition = decode_response(ApiKey.PRODUCE, 10, frame[9:]).responses[0].partition_responses[0]
    assert partition.error_message == extra.get("error_message")
    assert [error.batch_index for error in partition.record_errors] == [e[0] for e in extra.get("record_errors", ())]
    assert partition.current_leader.leader_id == extra.get("current_leader", (-1, -1))[0]


def test_errors_leaders_and_endpoints_reach_the_client_from_the_version_that_has_them() -> None:
    result = ProducePartitionResult(
        1,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        -1,
        record_errors=[RecordError(2, "bad key")],
        error_message="moved",
        current_leader=(4, 9),
    )
    topics = [ProduceTopicResult("orders", TOPIC_ID, [result])]
    endpoints = [NodeEndpoint(4, "b4", 9092, "r1")]
    for version in VERSIONS:
        frame = encode_produce_response(version, 77, topics, 30, endpoints)
        response = decode_response(ApiKey.PRODUCE, version, frame[9 if version >= 9 else 8 :])
        partition = response.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert response.throttle_time.total_seconds() == 0.03
        if version >= 8:
            assert (partition.error_message, partition.record_errors[0].batch_index) == ("moved", 2)
        if version >= 10:
            assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (4, 9)
            assert response.node_endpoints[0].host == "b4"
