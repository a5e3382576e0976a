"""handlers.topics: topics made, grown and removed."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.errors import ErrorCode
from penstock.handlers.topics import handle_create_partitions, handle_create_topics, handle_delete_topics
from penstock.wire.apis import ApiKey

CREATE, DELETE, GROW = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS


def wish(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


async def create(node: Any, *topics: dict[str, Any], version: int | None = None, **more: Any) -> dict[str, Any]:
    body = {"topics": topics, "timeout": 30_000, **more}
    answer = await node.call(handle_create_topics, CREATE, version, **body)
    return {topic.name: topic for topic in answer.topics}


def codes(answers: dict[str, Any]) -> dict[str, ErrorCode]:
    return {name: ErrorCode(answer.error_code) for name, answer in answers.items()}


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates_a_topic_that_is_there_when_the_answer_comes(node: Any, version: int) -> None:
    answers = await create(node, wish("orders", 3), version=version)
    assert codes(answers) == {"orders": ErrorCode.NONE}
    assert len(node.context.image.topics["orders"].partitions) == 3
    assert node.partition("orders", 2).log.next_offset == 0


async def test_the_newest_version_tells_what_was_made(node: Any) -> None:
    configs = [{"name": "retention.ms", "value": "1000"}]
    made = (await create(node, wish("orders", 3, configs=configs)))["orders"]
    assert (made.num_partitions, made.replication_factor) == (3, 1)
    assert made.topic_id == node.context.image.topics["orders"].id
    shown = {config.name: (config.value, config.config_source) for config in made.configs}
    assert shown["retention.ms"] == ("1000", 1)
    assert shown["segment.bytes"] == ("1073741824", 5)


@pytest.mark.parametrize("settings", [{"num.partitions": "4"}])
async def test_minus_one_takes_the_brokers_defaults(node: Any) -> None:
    made = (await create(node, wish("orders", -1, -1)))["orders"]
    assert (made.num_partitions, made.replication_factor) == (4, 1)


async def test_one_bad_topic_leaves_the_others_alone(node: Any) -> None:
    await node.create("old")
    answers = await create(
        node,
        wish("good"),
        wish("old"),
        wish("a b"),
        wish("empty", 0),
        wish("wide", 1, 3),
        wish("typo", configs=[{"name": "retention.mss", "value": "1"}]),
        wish("null", configs=[{"name": "retention.ms", "value": None}]),
    )
    assert codes(answers) == {
        "good": ErrorCode.NONE,
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "empty": ErrorCode.INVALID_PARTITIONS,
        "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        "typo": ErrorCode.INVALID_CONFIG,
        "null": ErrorCode.INVALID_CONFIG,
    }
    assert "retention.ms" in answers["typo"].error_message
    assert answers["good"].error_message is None


async def test_a_name_given_twice_is_answered_once_and_not_created(node: Any) -> None:
    # Also where one of the two is wrong in itself.
    wrong = wish("twice", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2)
    answer = await node.call(handle_create_topics, CREATE, topics=[wish("twice"), wish("once"), wrong])
    assert [(topic.name, int(topic.error_code)) for topic in answer.topics] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    ]
    assert "twice" not in node.context.image.topics


async def test_validate_only_makes_nothing(node: Any) -> None:
    answers = await create(node, wish("orders", 2), wish("bad", 0), validate_only=True)
    assert codes(answers) == {"orders": ErrorCode.NONE, "bad": ErrorCode.INVALID_PARTITIONS}
    assert (answers["orders"].num_partitions, answers["orders"].topic_id) == (2, None)
    assert "orders" not in node.context.image.topics


async def test_replicas_can_be_assigned_by_hand(node: Any) -> None:
    def assigned(name: str, *brokers: list[int], counts: int = -1) -> dict[str, Any]:
        rows = [{"partition_index": index, "broker_ids": ids} for index, ids in enumerate(brokers)]
        return wish(name, counts, counts, assignments=rows)

    gap = wish("gap", -1, -1, assignments=[{"partition_index": 1, "broker_ids": [1]}])
    twice = wish("twice", -1, -1, assignments=[{"partition_index": 0, "broker_ids": [1]}] * 2)
    answers = await create(
        node, assigned("good", [1], [1]), assigned("unknown", [7]), assigned("both", [1], counts=1), gap, twice
    )
    assert codes(answers) == {
        "good": ErrorCode.NONE,
        "unknown": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "both": ErrorCode.INVALID_REQUEST,
        "gap": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "twice": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    assert answers["good"].num_partitions == 2


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
async def test_the_brokers_own_topics_are_neither_made_nor_grown_by_clients(node: Any, name: str) -> None:
    assert codes(await create(node, wish(name))) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}
    answer = await node.call(handle_create_partitions, GROW, topics=[{"name": name, "count": 9}], timeout=30_000)
    assert answer.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_time_that_is_up_is_told_and_nobody_waits_for_ever(node: Any) -> None:
    await node.create("old")
    assert codes(await create(node, wish("late"), timeout=0)) == {"late": ErrorCode.REQUEST_TIMED_OUT}
    answer = await node.call(handle_delete_topics, DELETE, 5, topic_names=["old"], timeout=0)
    assert answer.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    answer = await node.call(handle_create_partitions, GROW, topics=[{"name": "old", "count": 9}], timeout=0)
    assert answer.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_requests_about_nothing_are_answered_with_nothing(node: Any) -> None:
    assert await create(node) == {}
    assert (await node.call(handle_delete_topics, DELETE)).responses == ()
    assert (await node.call(handle_create_partitions, GROW)).results == ()


@pytest.mark.parametrize("version", range(1, 6))
async def test_older_versions_delete_by_name(node: Any, version: int) -> None:
    await node.create("orders")
    names = ["orders", "unknown"]
    answer = await node.call(handle_delete_topics, DELETE, version, topic_names=names, timeout=30_000)
    assert {each.name: int(each.error_code) for each in answer.responses} == {
        "orders": ErrorCode.NONE,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "orders" not in node.context.image.topics
    assert "orders" not in node.context.replicas.topics


async def test_topics_are_deleted_by_name_or_by_id_but_not_by_both(node: Any) -> None:
    for name in ("named", "by-id", "both", "twice", "name-and-id"):
        await node.create(name)
    ids = {name: topic.id for name, topic in node.context.image.topics.items()}
    stranger = uuid4()

    def asked(name: str | None, topic_id: UUID | None) -> dict[str, Any]:
        return {"name": name, "topic_id": topic_id}

    topics = [
        asked("named", None),
        asked(None, ids["by-id"]),
        asked("both", ids["both"]),
        asked(None, None),
        asked(None, stranger),
        asked("twice", None),
        asked("twice", None),
        asked("name-and-id", None),
        asked(None, ids["name-and-id"]),
    ]
    answer = await node.call(handle_delete_topics, DELETE, topics=topics, timeout=30_000)
    assert [(each.name, each.topic_id, int(each.error_code)) for each in answer.responses] == [
        ("named", ids["named"], ErrorCode.NONE),
        ("by-id", ids["by-id"], ErrorCode.NONE),
        ("both", ids["both"], ErrorCode.INVALID_REQUEST),
        (None, None, ErrorCode.INVALID_REQUEST),
        (None, stranger, ErrorCode.UNKNOWN_TOPIC_ID),
        ("twice", None, ErrorCode.INVALID_REQUEST),
        ("name-and-id", None, ErrorCode.INVALID_REQUEST),
        (None, ids["name-and-id"], ErrorCode.INVALID_REQUEST),
    ]
    assert set(node.context.image.topics) == {"both", "twice", "name-and-id"}


@pytest.mark.parametrize("settings", [{"delete.topic.enable": "false"}])
@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_a_broker_told_to_delete_no_topics_deletes_none(node: Any, version: int, code: ErrorCode) -> None:
    await node.create("orders")
    answer = await node.call(handle_delete_topics, DELETE, version, topic_names=["orders"], timeout=30_000)
    assert answer.responses[0].error_code == code
    assert "orders" in node.context.image.topics


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows_and_its_new_partitions_take_records(node: Any, version: int) -> None:
    await node.create("orders")
    topics = [{"name": "orders", "count": 3, "assignments": None}]
    answer = await node.call(handle_create_partitions, GROW, version, topics=topics, timeout=30_000)
    assert [(each.name, int(each.error_code)) for each in answer.results] == [("orders", 0)]
    assert node.append("orders", 1, index=2) == 0


async def test_growth_that_is_none_is_refused_topic_by_topic(node: Any) -> None:
    for name in ("good", "same", "fewer", "twice", "checked", "by-hand", "empty-hand"):
        await node.create(name, 2)
    grown = [{"broker_ids": [1]}]
    topics = [
        {"name": "good", "count": 3, "assignments": None},
        {"name": "same", "count": 2, "assignments": None},
        {"name": "fewer", "count": 1, "assignments": None},
        {"name": "unknown", "count": 3, "assignments": None},
        {"name": "twice", "count": 3, "assignments": None},
        {"name": "twice", "count": 4, "assignments": None},
        {"name": "by-hand", "count": 3, "assignments": grown},
        {"name": "empty-hand", "count": 3, "assignments": []},
    ]
    answer = await node.call(handle_create_partitions, GROW, topics=topics, timeout=30_000)
    assert {each.name: ErrorCode(each.error_code) for each in answer.results} == {
        "good": ErrorCode.NONE,
        "same": ErrorCode.INVALID_PARTITIONS,
        "fewer": ErrorCode.INVALID_PARTITIONS,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "twice": ErrorCode.INVALID_REQUEST,
        "by-hand": ErrorCode.NONE,
        "empty-hand": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    check = [{"name": "checked", "count": 5, "assignments": None}]
    answer = await node.call(handle_create_partitions, GROW, topics=check, timeout=30_000, validate_only=True)
    assert answer.results[0].error_code == ErrorCode.NONE
    assert len(node.context.image.topics["checked"].partitions) == 2


async def limit_mutations(node: Any, rate: float) -> None:
    await node.context.controller.alter_client_quotas(
        frozenset({("client-id", "a-client")}), {"controller_mutation_rate": rate}
    )


async def test_a_client_over_its_mutation_rate_is_told_to_come_back(node: Any) -> None:
    await limit_mutations(node, 1.0)
    first = await create(node, wish("first", 20), wish("second"))
    assert codes(first) == {"first": ErrorCode.NONE, "second": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert node.connection.throttle_ms > 0
    answer = await node.call(handle_delete_topics, DELETE, 5, topic_names=["first"], timeout=30_000)
    assert answer.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time.total_seconds() > 0
    grow = [{"name": "first", "count": 21, "assignments": None}]
    answer = await node.call(handle_create_partitions, GROW, topics=grow, timeout=30_000)
    assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert set(node.context.image.topics) == {"first"}


async def test_a_client_too_old_for_that_error_is_served_and_slowed_down(node: Any) -> None:
    await limit_mutations(node, 1.0)
    answer = await node.call(handle_create_topics, CREATE, 5, topics=[wish("first", 20), wish("second")])
    assert [int(topic.error_code) for topic in answer.topics] == [0, 0]
    assert answer.throttle_time.total_seconds() > 0
    assert node.connection.throttle_ms > 0


async def test_looking_does_not_use_up_the_mutation_rate(node: Any) -> None:
    await node.create("old", 50)
    await limit_mutations(node, 1.0)
    await create(node, wish("wished", 50), validate_only=True)
    await create(node, wish("old", 50))
    assert codes(await create(node, wish("first"))) == {"first": ErrorCode.NONE}
