"""Messages: what handlers may leave out or add, and what hostile bytes may not do."""

import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest

from penstock.errors import ErrorCode, MalformedFrame
from penstock.wire.apis import APIS, BY_KEY, Api, ApiKey
from penstock.wire.messages import decode_request, decode_response, encode_request, encode_response

TOPIC_ID = UUID(int=7)


def encoded_metadata(version: int) -> bytes:
    partition = {"partition_index": 1, "leader_id": 2, "leader_epoch": 3, "replica_nodes": [2], "isr_nodes": [2]}
    topic = {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
        "name": "orders",
        "topic_id": TOPIC_ID,
        "partitions": [partition],
    }
    return encode_response(ApiKey.METADATA, version, {"throttle_time": 250, "topics": [topic], "cluster_id": "c"})


def test_fields_a_version_lacks_are_dropped_at_every_depth() -> None:
    oldest = decode_response(ApiKey.METADATA, 0, encoded_metadata(0))
    assert oldest.topics[0].name == "orders"
    assert not hasattr(oldest, "throttle_time")
    assert not hasattr(oldest.topics[0], "topic_id")
    assert not hasattr(oldest.topics[0].partitions[0], "leader_epoch")
    newest = decode_response(ApiKey.METADATA, 13, encoded_metadata(13))
    assert newest.throttle_time.total_seconds() == 0.25
    assert newest.topics[0].topic_id == TOPIC_ID
    assert newest.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert newest.topics[0].partitions[0].leader_epoch == 3


@pytest.mark.parametrize(
    "body",
    [
        {"throttle_ms": 0},
        {"topics": [{"nam": "orders"}]},
        {"topics": [{"name": "orders", "partitions": [{"partition": 0}]}]},
    ],
)
def test_a_name_that_no_version_knows_is_a_bug(body: dict[str, Any]) -> None:
    for version in (0, 13):
        with pytest.raises(AssertionError, match="no version of Metadata"):
            encode_response(ApiKey.METADATA, version, body)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_an_empty_mapping_is_every_message_with_its_defaults(api: Api) -> None:
    for version in range(api.low, api.high + 1):
        decode_request(api.key, version, encode_request(api.key, version, {}))
        decode_response(api.key, version, encode_response(api.key, version, {}))


def test_a_missing_field_takes_the_default_of_its_layout() -> None:
    request = decode_request(ApiKey.FETCH, 17, encode_request(ApiKey.FETCH, 17, {"topics": [{"partitions": [{}]}]}))
    assert (request.session_epoch, request.max_bytes, request.replica_state.replica_id) == (-1, 2**31 - 1, -1)
    assert request.topics[0].partitions[0].current_leader_epoch == -1
    response = decode_response(ApiKey.METADATA, 12, encode_response(ApiKey.METADATA, 12, {"topics": [{}]}))
    assert (response.cluster_id, response.controller_id) == (None, -1)
    assert response.topics[0].topic_authorized_operations == -(2**31)


def test_tagged_fields_equal_to_their_defaults_take_no_bytes() -> None:
    bare = encode_response(ApiKey.API_VERSIONS, 3, {})
    assert encode_response(ApiKey.API_VERSIONS, 3, {"supported_features": [], "finalized_features_epoch": -1}) == bare
    assert len(encode_response(ApiKey.API_VERSIONS, 3, {"finalized_features_epoch": 4})) == len(bare) + 10


def test_a_nullable_structure_is_written_with_its_marker() -> None:
    cursor = {"topic_name": "orders", "partition_index": 4}
    body = encode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"cursor": cursor})
    request = decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, body)
    assert (request.cursor.topic_name, request.cursor.partition_index) == ("orders", 4)
    assert decode_request(75, 0, encode_request(75, 0, {})).cursor is None
    at = body.index(b"\x01\x07orders")
    with pytest.raises(MalformedFrame):
        decode_request(75, 0, body[:at] + b"\x02" + body[at + 1 :])


def test_tagged_fields_of_newer_clients_are_skipped_at_every_depth() -> None:
    body = encode_request(ApiKey.CREATE_TOPICS, 7, {"topics": [{"name": "orders", "num_partitions": 3}]})
    assert body.endswith(b"\x00" + body[-6:])
    unknown = b"\x02\x63\x02zz\x64\x00"  # fields 99 and 100
    topic_end = len(body) - 7  # before it the topic's tags; after it timeout, validate_only, the request's tags
    newer = body[:topic_end] + unknown + body[topic_end + 1 : -1] + unknown
    assert decode_request(ApiKey.CREATE_TOPICS, 7, newer) == decode_request(ApiKey.CREATE_TOPICS, 7, body)


def test_known_tagged_fields_survive_beside_unknown_ones_and_around_them() -> None:
    body = encode_request(ApiKey.FETCH, 17, {"cluster_id": "c", "replica_state": {"replica_id": 3}})
    at = body.rindex(b"\x02\x00\x02\x02c\x01\x0d")  # two fields: cluster_id, and replica_state of 13 bytes
    state = body[at + 7 : -1]  # but for its own tagged fields
    beside = body[:at] + b"\x03\x00\x02\x02c\x01\x0d" + state + b"\x00" + b"\x63\x01z"
    within = body[:at] + b"\x02\x00\x02\x02c\x01\x10" + state + b"\x01\x05\x01z"
    for newer in (beside, within):
        assert decode_request(ApiKey.FETCH, 17, newer) == decode_request(ApiKey.FETCH, 17, body)


def test_a_response_that_claims_more_than_it_holds_is_malformed_at_once() -> None:
    with pytest.raises(MalformedFrame):
        decode_response(ApiKey.API_VERSIONS, 0, b"\x00\x00\x7f\xff\xff\xff" + bytes(600))


@pytest.mark.parametrize("api", [api for api in APIS if api.high >= api.flexible_from], ids=lambda api: api.name)
def test_every_truncation_is_malformed_and_bytes_behind_the_message_are_ignored(api: Api) -> None:
    for version in (api.low, api.high):
        body = encode_request(api.key, version, {})
        for cut in range(len(body)):
            with pytest.raises(MalformedFrame):
                decode_request(api.key, version, body[:cut])
        assert decode_request(api.key, version, body + b"\x00\x01") == decode_request(api.key, version, body)


def test_null_is_refused_in_arrays_that_may_not_be_null() -> None:
    assert decode_request(ApiKey.METADATA, 1, b"\xff\xff\xff\xff").topics is None
    with pytest.raises(MalformedFrame):
        decode_request(ApiKey.DELETE_TOPICS, 1, b"\xff\xff\xff\xff\x00\x00\x00\x01")
    with pytest.raises(MalformedFrame):
        decode_request(ApiKey.CREATE_TOPICS, 7, b"\x00\x00\x00\x00\x01\x00\x00")


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (ApiKey.METADATA, 0, b"\x7f\xff\xff\xff"),
        (ApiKey.METADATA, 12, b"\xff\xff\xff\xff\x0f\x00"),
        # Counts inside counts: kio reserves memory for each, and aborts the process when it gets none.
        (ApiKey.OFFSET_FETCH, 8, b"\xff\xff\xff\xff\x0f\x02g\xff\xff\xff\xff\x0f\x02t\xff\xff\xff\xff\x0f"),
        (ApiKey.CREATE_TOPICS, 2, b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x01\x7f\xff\xff\xff"),
        (ApiKey.HEARTBEAT, 0, b"\xff\xfe"),
        (ApiKey.HEARTBEAT, 0, b"\xff\xff"),
        (ApiKey.HEARTBEAT, 0, b"\x00\x02\xff\xfe\x00\x00\x00\x00\x00\x00"),
        (ApiKey.METADATA, 12, b"\x00\x00\x00\xff\xff\xff\xff\x0f"),
        (ApiKey.OFFSET_COMMIT, 2, bytes(8) + b"\x7f" + b"\xff" * 7 + bytes(4)),  # retention of 292 million years
    ],
)
def test_counts_and_values_that_lie_are_malformed(key: ApiKey, version: int, body: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_request(key, version, body)


def test_ten_thousand_topics_pass_and_more_elements_than_allowed_do_not() -> None:
    topics = [
        {"name": f"{'n' * 240}{i:05}", "configs": [{"name": "retention.ms", "value": "1"}] * 3} for i in range(10_000)
    ]
    body = encode_request(ApiKey.CREATE_TOPICS, 7, {"topics": topics})
    assert len(body) <= (BY_KEY[ApiKey.CREATE_TOPICS].request_bytes_max or 0)
    assert len(decode_request(ApiKey.CREATE_TOPICS, 7, body).topics) == 10_000
    elements_max = BY_KEY[ApiKey.METADATA].request_elements_max
    assert elements_max >= 10_000
    allowed = encode_request(ApiKey.METADATA, 12, {"topics": [{"name": ""}] * elements_max})
    assert len(decode_request(ApiKey.METADATA, 12, allowed).topics) == elements_max
    with pytest.raises(MalformedFrame):
        decode_request(
            ApiKey.METADATA, 12, encode_request(ApiKey.METADATA, 12, {"topics": [{"name": ""}] * (elements_max + 1)})
        )


def run_alone(script: str) -> None:
    """In an interpreter that has imported nothing yet; what it asserts must hold there."""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_importing_messages_and_decoding_one_loads_one_version_and_no_hypothesis() -> None:
    script = (
        "import sys; from penstock.wire import messages as m; assert 'kio' not in sys.modules;"
        "m.decode_request(12, 4, m.encode_request(12, 4, {}));"
        "loaded = [n for n in sys.modules if n.startswith('kio.schema.heartbeat.v')];"
        "assert all('.v4' in name for name in loaded), loaded;"
        "assert not [n for n in sys.modules if n.split('.')[0] == 'hypothesis']"
    )
    run_alone(script)


def test_a_field_that_only_other_versions_have_is_dropped_without_loading_any_of_them() -> None:
    script = (
        "import sys; from penstock.wire import messages as m;"
        "m.encode_response(3, 13, {'cluster_authorized_operations': 0});"
        "loaded = [n for n in sys.modules if n.startswith('kio.schema.metadata.v')];"
        "assert loaded and all('.v13' in name for name in loaded), loaded"
    )
    run_alone(script)


def test_a_time_that_is_not_there_is_none_where_kio_would_refuse_the_message() -> None:
    state = {"transactional_id": "a", "transaction_state": "Empty", "transaction_start_time": -1}
    body = encode_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transaction_states": [state]})
    (decoded,) = decode_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, body).transaction_states
    assert decoded.transaction_start_time is None
