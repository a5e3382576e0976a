"""Fetch requests of every version, hostile ones among them; responses whose records are never copied."""

from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, MalformedFrame
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.fetch import FetchPartitionResult, FetchTopicResult, encode_fetch_response, parse_fetch
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.produce import NodeEndpoint

TOPIC_ID = UUID(int=7)
VERSIONS = range(4, 19)


def body(version: int, partitions: int = 2, forgotten: int = 1, topics: int = 1) -> bytes:
    partition = {
        "partition": 3,
        "current_leader_epoch": 4,
        "fetch_offset": 500,
        "last_fetched_epoch": 2,
        "partition_max_bytes": 1000,
        "replica_directory_id": UUID(int=9),
        "high_watermark": 400,
    }
    topic = {"topic": "orders", "topic_id": TOPIC_ID}
    request = {
        "cluster_id": "c",
        "replica_id": 2,
        "replica_state": {"replica_id": 2, "replica_epoch": 8},
        "max_wait": 500,
        "topics": [{**topic, "partitions": [partition] * partitions}] * topics,
        "forgotten_topics_data": [{**topic, "partitions": [1] * forgotten}],
        "rack_id": "r",
    }
    return encode_request(ApiKey.FETCH, version, request)


def parsed(version: int, raw: bytes, offset: int = 0) -> Any:
    return parse_fetch(version, memoryview(raw), offset)


def key(version: int) -> tuple[str | None, UUID | None]:
    return (None, TOPIC_ID) if version >= 13 else ("orders", None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_is_parsed_from_where_the_header_ends(version: int) -> None:
    request = parsed(version, b"header" + body(version), 6)
    assert (request.replica_id, request.max_wait_ms) == (2, 500)
    assert [topic[:2] for topic in request.topics] == [key(version)]
    assert {(p.partition, p.fetch_offset, p.partition_max_bytes) for p in request.topics[0].partitions} == {
        (3, 500, 1000)
    }
    assert request.topics[0].partitions[1].current_leader_epoch == (4 if version >= 9 else -1)
    assert request.topics[0].partitions[1].last_fetched_epoch == (2 if version >= 12 else -1)
    assert request.topics[0].partitions[1].replica_directory_id == (UUID(int=9) if version >= 17 else None)
    assert request.topics[0].partitions[1].high_watermark == (400 if version >= 18 else 2**63 - 1)
    assert request.forgotten_topics == ([(*key(version), [1])] if version >= 7 else [])
    assert request.rack_id == ("r" if version >= 11 else "")
    assert request.cluster_id == ("c" if version >= 12 else None)
    assert request.replica_epoch == (8 if version >= 15 else -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_without_topics_is_parsed(version: int) -> None:
    assert parsed(version, encode_request(ApiKey.FETCH, version, {})).topics == []


@pytest.mark.parametrize("version", range(12, 19))
def test_tagged_fields_of_newer_clients_are_skipped(version: int) -> None:
    request = {"topics": [{"topic": "orders", "topic_id": TOPIC_ID, "partitions": [{"partition_max_bytes": 77}]}]}
    raw = encode_request(ApiKey.FETCH, version, request)
    assert raw.endswith(b"\x00\x00\x00\x4d\x00\x00\x01\x01\x00")  # …77, tags, tags, no forgotten topics, rack, tags
    tags = b"\x01\x63\x02zz"
    newer = raw[:-5] + tags + tags + b"\x01\x01" + tags
    assert parsed(version, newer) == parsed(version, raw)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_malformed_and_bytes_behind_the_request_are_ignored(version: int) -> None:
    raw = body(version)
    for cut in range(len(raw)):
        with pytest.raises(MalformedFrame):
            parsed(version, raw[:cut])
    assert parsed(version, raw + b"\x00") == parsed(version, raw)


@pytest.mark.parametrize(
    ("version", "tail"),
    [
        (4, b"\x7f\xff\xff\xff"),  # two billion topics
        (4, b"\xff\xff\xff\xff"),  # null topics
        (4, b"\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff"),  # two billion partitions
        (4, b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"),  # null name
        (11, bytes(8) + b"\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00"),  # two billion forgotten topics
        (11, bytes(8) + b"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff\x00\x00"),
        (12, bytes(8) + b"\xff\xff\xff\xff\x0f\x01\x01\x00"),
        (12, bytes(8) + b"\x00\x01\x01\x00"),
        (12, bytes(8) + b"\x01\x01\x01\x01\x00\x03\x02cc"),  # a cluster id shorter than its field
        (12, bytes(8) + b"\x01\x01\x01\x01\x00\x02\x03cc"),  # and one longer
    ],
)
def test_counts_and_lengths_that_lie_are_malformed(version: int, tail: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parsed(version, bytes(17) + tail)


@pytest.mark.parametrize(
    "tag",
    [
        b"\x01\x0c" + bytes(12),  # replica_state without its own tagged fields
        b"\x01\x0e" + bytes(14),
    ],
)
def test_a_replica_state_of_the_wrong_size_is_malformed(tag: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parsed(15, bytes(13) + bytes(8) + b"\x01\x01\x01\x01" + tag)


@pytest.mark.parametrize("tag", [b"\x00\x11" + bytes(17), b"\x01\x09" + bytes(9)])
def test_a_tagged_field_of_a_partition_of_the_wrong_size_is_malformed(tag: bytes) -> None:
    raw = encode_request(ApiKey.FETCH, 18, {"topics": [{"topic_id": TOPIC_ID, "partitions": [{}]}]})
    assert raw.endswith(b"\x00\x00\x01\x01\x00")
    with pytest.raises(MalformedFrame):
        parsed(18, raw[:-5] + b"\x01" + tag + raw[-4:])


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_more_elements_than_allowed_are_malformed(version: int) -> None:
    elements_max = BY_KEY[ApiKey.FETCH].request_elements_max
    allowed = encode_request(
        ApiKey.FETCH,
        version,
        {"topics": [{"topic": "t", "topic_id": TOPIC_ID, "partitions": [{}] * (elements_max - 1)}]},
    )
    assert len(parsed(version, allowed).topics[0].partitions) == elements_max - 1
    for more in (body(version, partitions=elements_max), body(version, 0, topics=elements_max + 1)):
        with pytest.raises(MalformedFrame):
            parsed(version, more)
    if version >= 7:
        with pytest.raises(MalformedFrame):
            parsed(version, body(version, partitions=10, forgotten=elements_max))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_response_passes_records_through_and_joins_the_rest(version: int) -> None:
    first, second, third = b"first" * 100, bytearray(b"second"), memoryview(b"third")
    moved = FetchPartitionResult(
        3, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, diverging_epoch=(5, 60), current_leader=(4, 9)
    )
    topic = FetchTopicResult(
        "orders",
        TOPIC_ID,
        [
            FetchPartitionResult(1, 0, 10, 9, 2, None, -1, first),
            FetchPartitionResult(2, 0, 10, 9, 2, [], -1, [second, third]),
            moved,
        ],
    )
    endpoints = [NodeEndpoint(4, "b4", 9092)]
    buffers = encode_fetch_response(version, 77, 30, 0, 6, [topic], endpoints)
    assert [buffer for buffer in buffers if buffer is first or buffer is second or buffer is third] == [
        first,
        second,
        third,
    ]
    assert len(buffers) == 6
    frame = b"".join(buffers)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    response = decode_response(ApiKey.FETCH, version, frame[9 if version >= 12 else 8 :])
    partitions = response.responses[0].partitions
    assert [partition.records for partition in partitions] == [first, b"secondthird", b""]
    assert [partition.aborted_transactions for partition in partitions] == [None, (), None]
    if version >= 12:
        assert (partitions[2].diverging_epoch.epoch, partitions[2].diverging_epoch.end_offset) == (5, 60)
        assert partitions[2].current_leader.leader_id == 4
    if version >= 16:
        assert response.node_endpoints[0].host == "b4"


def test_an_old_response_that_ends_with_records_has_no_empty_buffer_after_them() -> None:
    records = b"records"
    topic = FetchTopicResult("orders", None, [FetchPartitionResult(1, 0, 10, records=records)])
    assert encode_fetch_response(4, 77, 0, 0, 0, [topic])[-1] is records
