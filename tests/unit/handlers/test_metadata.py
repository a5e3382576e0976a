"""handlers.metadata: who is in the cluster, which topics there are, and which are made because they are asked for."""

import asyncio
import inspect
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import metadata as metadata_module
from penstock.handlers.context import Request
from penstock.handlers.metadata import (
    AUTO_CREATED_PER_REQUEST_MAX,
    handle_api_versions,
    handle_describe_cluster,
    handle_describe_topic_partitions,
    handle_metadata,
)
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_request, encode_request

METADATA, PAGES = ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = range(BY_KEY[METADATA].low, BY_KEY[METADATA].high + 1)


async def metadata(node: Any, *topics: str | UUID | None, version: int | None = None, **body: Any) -> Any:
    asked = [
        {"name": topic} if isinstance(topic, str) else {"name": None, "topic_id": topic or UUID(int=0)}
        for topic in topics
    ]
    return await node.call(handle_metadata, METADATA, version, topics=asked, **body)


def codes(answer: Any) -> dict[str, str]:
    return {topic.name: ErrorCode(topic.error_code).name for topic in answer.topics}


# Metadata


async def test_every_version_describes_the_cluster_and_a_topic(node: Any) -> None:
    await node.create("orders", 3)
    for version in VERSIONS:
        answer = await metadata(node, "orders", version=version)
        (broker,) = answer.brokers
        endpoint = node.context.node.endpoint
        assert (broker.node_id, broker.host, broker.port) == (1, endpoint.host, endpoint.port)
        assert version < 1 or answer.controller_id == 1
        assert version < 2 or answer.cluster_id == node.context.cluster_id
        (topic,) = answer.topics
        assert (topic.error_code, topic.name) == (0, "orders")
        assert version < 1 or not topic.is_internal
        assert version < 10 or topic.topic_id == node.context.image.topics["orders"].id
        assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 1)
            assert (tuple(partition.replica_nodes), tuple(partition.isr_nodes)) == ((1,), (1,))
            assert version < 5 or tuple(partition.offline_replicas) == ()
            assert version < 7 or partition.leader_epoch == node.partition("orders").leader_epoch


async def test_all_topics_are_null_and_none_is_an_empty_list_except_in_version_0(node: Any) -> None:
    for name in ("a", "b"):
        await node.create(name)
    for version in VERSIONS:
        everything = await node.call(handle_metadata, METADATA, version, topics=None if version else [])
        nothing = await node.call(handle_metadata, METADATA, version, topics=[])
        assert {topic.name for topic in everything.topics} == {"a", "b"}
        assert len(nothing.topics) == (0 if version else 2)


async def test_topics_are_found_by_id(node: Any) -> None:
    await node.create("orders")
    known, unknown = node.context.image.topics["orders"].id, uuid4()
    for version in range(10, 14):
        answer = await metadata(node, known, unknown, None, version=version)
        found = [(topic.name or None, topic.topic_id, ErrorCode(topic.error_code).name) for topic in answer.topics]
        assert found == [
            ("orders", known, "NONE"),
            (None, unknown, "UNKNOWN_TOPIC_ID"),
            (None, None, "UNKNOWN_TOPIC_ID"),
        ]


async def test_a_topic_named_often_is_described_once(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    describe, described = metadata_module._topic, []
    monkeypatch.setattr(metadata_module, "_topic", lambda *given: described.append(given) or describe(*given))
    await node.create("orders", 2)
    topic_id = node.context.image.topics["orders"].id
    answer = await metadata(node, *["orders"] * 50, *["nowhere"] * 50, allow_auto_topic_creation=False)
    assert [topic.name for topic in answer.topics] == ["orders", "nowhere"]
    assert len((await metadata(node, *[topic_id] * 50)).topics) == 1
    assert len(described) == 2


async def test_a_partition_whose_leader_is_gone_has_none(node: Any) -> None:
    await node.create("orders")
    node.context.image.brokers.clear()
    (topic,) = (await metadata(node, "orders")).topics
    (partition,) = topic.partitions
    assert ErrorCode(partition.error_code) is ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, tuple(partition.offline_replicas)) == (-1, (1,))


async def test_authorised_operations_are_told_on_request(node: Any) -> None:
    await node.create("orders")
    for asked in (False, True):
        (topic,) = (await metadata(node, "orders", include_topic_authorized_operations=asked)).topics
        assert (topic.topic_authorized_operations > 0) == asked
        old = await metadata(node, "orders", version=8, include_cluster_authorized_operations=asked)
        assert (old.cluster_authorized_operations > 0) == asked


async def test_an_answer_that_needs_no_new_topic_does_not_wait(node: Any) -> None:
    """So that what a client does not read holds it up, before thousands of answers are made for it."""
    await node.create("orders")
    for body in ({"topics": None}, {"topics": [{"name": "orders"}]}, {"topics": [], "allow_auto_topic_creation": True}):
        decoded = decode_request(METADATA, 12, encode_request(METADATA, 12, body))
        answer = handle_metadata(node.context, Request(METADATA, 12, None, node.connection, decoded))
        assert not inspect.isawaitable(answer)


# Topics that are made because they are asked for


@pytest.mark.parametrize("settings", [{"num.partitions": "3"}])
async def test_a_topic_that_is_not_there_is_made_where_client_and_broker_allow_it(node: Any) -> None:
    for version in VERSIONS:
        name = f"made-{version}"
        answer = await metadata(node, name, version=version, allow_auto_topic_creation=True)
        assert codes(answer) == {name: "NONE"}
        assert [len(topic.partitions) for topic in answer.topics] == [3]
        assert node.partition(name, 2).log.next_offset == 0


async def test_a_client_may_ask_without_making_a_topic(node: Any) -> None:
    for version in range(4, 14):
        answer = await metadata(node, "orders", version=version, allow_auto_topic_creation=False)
        assert codes(answer) == {"orders": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert "orders" not in node.context.image.topics


@pytest.mark.parametrize("settings", [{"auto.create.topics.enable": "false"}])
async def test_a_broker_may_refuse_to_make_topics(node: Any) -> None:
    for version in VERSIONS:
        assert codes(await metadata(node, "orders", version=version)) == {"orders": "UNKNOWN_TOPIC_OR_PARTITION"}


async def test_a_name_no_topic_can_have_is_invalid_whether_or_not_it_would_be_made(node: Any) -> None:
    for allowed, good in ((False, "UNKNOWN_TOPIC_OR_PARTITION"), (True, "NONE")):
        for name in ("", ".", "..", "a b", "a/b", "ä", "x" * 250, "../../etc/passwd", "a\x00b"):
            answer = await metadata(node, name, "good", allow_auto_topic_creation=allowed)
            assert codes(answer) == {name: "INVALID_TOPIC_EXCEPTION", "good": good}


async def test_the_brokers_own_topics_are_not_made_by_asking(node: Any) -> None:
    answer = await metadata(node, "__consumer_offsets", "__transaction_state", allow_auto_topic_creation=True)
    assert set(codes(answer).values()) == {"UNKNOWN_TOPIC_OR_PARTITION"}


async def test_of_clients_that_ask_for_a_new_topic_at_once_each_gets_it_or_is_told_to_ask_again(node: Any) -> None:
    answers = await asyncio.gather(*(metadata(node, "orders", allow_auto_topic_creation=True) for _ in range(8)))
    found = {codes(answer)["orders"] for answer in answers}
    assert "NONE" in found
    assert found <= {"NONE", "LEADER_NOT_AVAILABLE"}
    assert codes(await metadata(node, "orders")) == {"orders": "NONE"}


# DescribeTopicPartitions


async def pages(node: Any, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    """All pages, each as topics and the partitions in it."""
    cursor: dict[str, Any] | None = None
    found: list[list[tuple[str, list[int]]]] = []
    while True:
        topics = [{"name": name} for name in names]
        body = {"topics": topics, "response_partition_limit": limit, "cursor": cursor}
        answer = await node.call(handle_describe_topic_partitions, PAGES, **body)
        found.append([(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics])
        if answer.next_cursor is None:
            return found
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }


async def test_pages_go_on_where_the_last_one_ended(node: Any) -> None:
    await node.create("b", 3)
    await node.create("a", 2)
    await node.create("c", 1)
    whole = [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert await pages(node, 2000) == [whole]
    assert await pages(node, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2]), ("c", [0])]]
    assert await pages(node, 1) == [[("a", [0])], [("a", [1])], [("b", [0])], [("b", [1])], [("b", [2])], [("c", [0])]]
    assert await pages(node, 2000, "c", "a", "c") == [[("a", [0, 1]), ("c", [0])]]


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
async def test_a_limit_that_is_none_is_one(node: Any, limit: int) -> None:
    await node.create("a", 2)
    assert await pages(node, limit) == [[("a", [0])], [("a", [1])]]


@pytest.mark.parametrize("settings", [{"max.request.partition.size.limit": "2"}])
async def test_a_page_is_no_larger_than_the_broker_allows(node: Any) -> None:
    await node.create("a", 3)
    assert await pages(node, 2000) == [[("a", [0, 1])], [("a", [2])]]


async def test_a_topic_asked_for_by_name_that_is_not_there_is_an_error(node: Any) -> None:
    await node.create("a")
    topics = [{"name": name} for name in ("a", "b", "a b")]
    answer = await node.call(handle_describe_topic_partitions, PAGES, topics=topics, response_partition_limit=10)
    assert codes(answer) == {"a": "NONE", "b": "UNKNOWN_TOPIC_OR_PARTITION", "a b": "INVALID_TOPIC_EXCEPTION"}


async def test_a_cursor_past_the_end_or_at_a_topic_that_is_gone_goes_on_behind_it(node: Any) -> None:
    await node.create("a")
    await node.create("c")
    for name, index, expected in (("b", 0, ["c"]), ("z", 0, []), ("a", 99, ["a", "c"]), ("a", -5, ["a", "c"])):
        cursor = {"topic_name": name, "partition_index": index}
        answer = await node.call(
            handle_describe_topic_partitions, PAGES, topics=[], response_partition_limit=10, cursor=cursor
        )
        assert [topic.name for topic in answer.topics] == expected


# ApiVersions and DescribeCluster


@pytest.mark.parametrize("version", [3, 4])
async def test_api_versions_tells_which_features_are_on(node: Any, version: int) -> None:
    body = {"client_software_name": "x", "client_software_version": "1"}
    answer = await node.call(handle_api_versions, ApiKey.API_VERSIONS, version, **body)
    assert answer.finalized_features_epoch == 0
    assert {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features} == {
        "transaction.version": (2, 2),
        "group.version": (1, 1),
    }
    # Clients of version 3 fail on a feature that starts at 0.
    assert {one.name: (one.min_version, one.max_version) for one in answer.supported_features} == (
        {"transaction.version": (0, 2), "group.version": (0, 1)} if version >= 4 else {}
    )


async def test_api_versions_remembers_the_software_and_refuses_a_name_that_is_none(node: Any) -> None:
    async def ask(name: str, version: str) -> ErrorCode:
        body = {"client_software_name": name, "client_software_version": version}
        return ErrorCode((await node.call(handle_api_versions, ApiKey.API_VERSIONS, 3, **body)).error_code)

    assert await ask("librdkafka", "2.16.1") is ErrorCode.NONE
    assert (node.connection.software_name, node.connection.software_version) == ("librdkafka", "2.16.1")
    for name, version in (("", "1"), ("x", ""), ("a b", "1"), ("-x", "1"), ("x", "1\n"), ("ä", "1")):
        assert await ask(name, version) is ErrorCode.INVALID_REQUEST
    assert node.connection.software_name == "librdkafka"


async def test_describe_cluster_knows_brokers_only(node: Any) -> None:
    cluster = await node.call(handle_describe_cluster, ApiKey.DESCRIBE_CLUSTER)
    assert (cluster.error_code, cluster.controller_id, cluster.cluster_id) == (0, 1, node.context.cluster_id)
    assert [broker.broker_id for broker in cluster.brokers] == [1]
    controllers = await node.call(handle_describe_cluster, ApiKey.DESCRIBE_CLUSTER, endpoint_type=2)
    assert ErrorCode(controllers.error_code) is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def test_replicas_that_stand_in_are_none_but_never_null(node: Any) -> None:
    await node.create("orders")
    answer = await node.call(
        handle_describe_topic_partitions, PAGES, topics=[{"name": "orders"}], response_partition_limit=10
    )
    (partition,) = answer.topics[0].partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


async def test_one_request_makes_so_many_topics_and_the_rest_when_it_is_asked_again(node: Any) -> None:
    names = [f"topic-{number}" for number in range(AUTO_CREATED_PER_REQUEST_MAX + 1)]
    answer = await metadata(node, *names, allow_auto_topic_creation=True)
    assert [name for name, code in codes(answer).items() if code != "NONE"] == names[-1:]
    answer = await metadata(node, *names, allow_auto_topic_creation=True)
    assert set(codes(answer).values()) == {"NONE"}
