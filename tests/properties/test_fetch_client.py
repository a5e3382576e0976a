"""The asker's side of Fetch against the answerer's, and both against kio, generated from Kafka's own layouts."""

import random
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import MalformedFrame
from penstock.wire.apis import ApiKey
from penstock.wire.fetch import (
    HIGH_WATERMARK_UNSUPPORTED,
    AbortedTransaction,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
    encode_fetch_response,
    parse_fetch,
)
from penstock.wire.fetch_client import VERSION_MAX, VERSION_MIN, encode_fetch_request, parse_fetch_response
from penstock.wire.frame import parse_request_header, response_frame
from penstock.wire.messages import decode_request, encode_response
from penstock.wire.produce import NodeEndpoint

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
naturals = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**62)
texts = st.text("abcé日", max_size=20)
pairs = st.none() | st.tuples(naturals, naturals)


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    partitions = st.builds(
        FetchPartition,
        int32s,
        int32s,
        int64s,
        int32s,
        int64s,
        int32s,
        st.none() | st.uuids() if version >= 17 else st.none(),
        st.just(HIGH_WATERMARK_UNSUPPORTED) | offsets if version >= 18 else st.just(HIGH_WATERMARK_UNSUPPORTED),
    )
    topics = st.builds(FetchTopic, st.none(), st.uuids(), st.lists(partitions, max_size=4))
    forgotten = st.builds(ForgottenTopic, st.none(), st.uuids(), st.lists(int32s, max_size=3))
    is_replica = draw(st.booleans())
    return FetchRequest(
        replica_id=draw(naturals) if is_replica else -1,
        max_wait_ms=draw(int32s),
        min_bytes=draw(int32s),
        max_bytes=draw(int32s),
        isolation_level=draw(st.sampled_from((0, 1))),
        session_id=draw(int32s),
        session_epoch=draw(int32s),
        topics=draw(st.lists(topics, max_size=3)),
        forgotten_topics=draw(st.lists(forgotten, max_size=3)),
        rack_id=draw(texts),
        replica_epoch=draw(int64s) if is_replica else -1,
        cluster_id=draw(st.none() | texts),
    )


aborted_lists = st.none() | st.lists(st.builds(AbortedTransaction, offsets, offsets), max_size=3)
records_of_all_sizes = st.binary(max_size=400)
results = st.builds(
    FetchPartitionResult,
    int32s,
    st.sampled_from((0, 1, 6, 74)),
    int64s,
    int64s,
    int64s,
    aborted_lists,
    int32s,
    records_of_all_sizes,
    pairs,
    st.none() | st.tuples(int32s, naturals),
)
topic_results = st.lists(st.builds(FetchTopicResult, st.none(), st.uuids(), st.lists(results, max_size=4)), max_size=3)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_leader_reads_the_very_request_the_follower_wrote(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    frame = encode_fetch_request(version, 77, "follower", request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    view = memoryview(frame)[4:]
    header = parse_request_header(view)
    assert header[:4] == (ApiKey.FETCH, version, 77, "follower")
    assert parse_fetch(version, view, header.body_offset) == request


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_kio_reads_the_request_the_follower_wrote(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    view = memoryview(encode_fetch_request(version, 77, None, request))[4:]
    read = decode_request(ApiKey.FETCH, version, bytes(view[parse_request_header(view).body_offset :]))
    assert (read.replica_state.replica_id, read.replica_state.replica_epoch) == (
        request.replica_id,
        request.replica_epoch,
    )
    assert (read.session_id, read.session_epoch, read.rack_id) == (
        request.session_id,
        request.session_epoch,
        request.rack_id,
    )
    assert [
        (topic.topic_id or UUID(int=0), [(p.partition, p.fetch_offset, p.last_fetched_epoch) for p in topic.partitions])
        for topic in read.topics
    ] == [
        (topic.topic_id, [(p.partition, p.fetch_offset, p.last_fetched_epoch) for p in topic.partitions])
        for topic in request.topics
    ]
    assert [list(topic.partitions) for topic in read.forgotten_topics_data] == [
        topic.partitions for topic in request.forgotten_topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(topics=topic_results, throttle_ms=naturals, error_code=st.sampled_from((0, 70, 71)), session_id=int32s)
def test_the_follower_reads_the_very_response_the_leader_wrote(
    version: int, topics: list[FetchTopicResult], throttle_ms: int, error_code: int, session_id: int
) -> None:
    endpoints = [NodeEndpoint(3, "broker-3", 9092, "rack")] if session_id % 2 else []
    buffers = encode_fetch_response(version, 77, throttle_ms, error_code, session_id, topics, endpoints)
    frame = b"".join(buffers)
    response = parse_fetch_response(version, memoryview(frame)[4:])
    assert response[:3] == (throttle_ms, error_code, session_id)
    expected = [
        (topic.topic_id, [result._replace(aborted_transactions=None) for result in topic.partitions])
        for topic in topics
    ]
    assert [(topic.topic_id, topic.partitions) for topic in response.topics] == expected
    for topic in response.topics:
        for result in topic.partitions:
            assert isinstance(result.records, memoryview)
            assert result.records.obj is frame, "records are not copied"


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20, deadline=None)
@given(topics=topic_results, session_id=int32s)
def test_the_follower_reads_a_response_that_kio_wrote(
    version: int, topics: list[FetchTopicResult], session_id: int
) -> None:
    body: dict[str, Any] = {
        "session_id": session_id,
        "responses": [
            {"topic_id": topic.topic_id, "partitions": [_as_body(result) for result in topic.partitions]}
            for topic in topics
        ],
    }
    frame = response_frame(ApiKey.FETCH, version, 77, encode_response(ApiKey.FETCH, version, body))
    response = parse_fetch_response(version, memoryview(frame)[4:])
    assert response.session_id == session_id
    assert [topic.partitions for topic in response.topics] == [
        [result._replace(aborted_transactions=None) for result in topic.partitions] for topic in topics
    ]


@settings(max_examples=60, deadline=None)
@given(topics=topic_results, version=st.sampled_from(VERSIONS), chance=st.randoms(use_true_random=False))
def test_a_cut_or_changed_response_is_malformed_or_parsed_but_nothing_else(
    topics: list[FetchTopicResult], version: int, chance: random.Random
) -> None:
    whole = b"".join(encode_fetch_response(version, 77, 0, 0, 1, topics))[4:]
    for cut in {chance.randrange(len(whole)) for _ in range(20)} | {len(whole) - 1}:
        with pytest.raises(MalformedFrame):
            parse_fetch_response(version, memoryview(whole[:cut]))
    for _ in range(20):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(4, len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        with suppress(MalformedFrame):
            parse_fetch_response(version, memoryview(changed))


def test_a_count_that_claims_more_than_the_frame_holds_builds_nothing() -> None:
    head = bytes(4) + b"\x00" + bytes(10)
    with pytest.raises(MalformedFrame, match="elements claimed"):
        parse_fetch_response(17, memoryview(head + b"\xff\xff\xff\xff\x0f"))


def test_epochs_of_minus_one_say_nothing() -> None:
    partition = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "aborted_transactions": None,
        "records": None,
        "current_leader": {"leader_id": 4, "leader_epoch": -1},
        "diverging_epoch": {"epoch": -1, "end_offset": 7},
    }
    body = {"session_id": 1, "responses": [{"topic_id": UUID(int=1), "partitions": [partition]}]}
    frame = response_frame(ApiKey.FETCH, 17, 1, encode_response(ApiKey.FETCH, 17, body))
    (topic,) = parse_fetch_response(17, memoryview(frame)[4:]).topics
    (result,) = topic.partitions
    assert (result.diverging_epoch, result.current_leader, len(result.records)) == (None, None, 0)


def _as_body(result: FetchPartitionResult) -> dict[str, Any]:
    aborted = result.aborted_transactions
    body: dict[str, Any] = {
        "partition_index": result.partition,
        "error_code": result.error_code,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "aborted_transactions": None if aborted is None else [each._asdict() for each in aborted],
        "preferred_read_replica": result.preferred_read_replica,
        "records": result.records,
    }
    if result.diverging_epoch is not None:
        body["diverging_epoch"] = dict(zip(("epoch", "end_offset"), result.diverging_epoch, strict=True))
    if result.current_leader is not None:
        body["current_leader"] = dict(zip(("leader_id", "leader_epoch"), result.current_leader, strict=True))
    return body
