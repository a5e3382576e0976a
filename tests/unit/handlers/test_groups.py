"""Groups over the wire: every version of every API that joins, describes and deletes them, in a running broker."""

import asyncio
from typing import Any

import pytest

from penstock.errors import CoordinatorNotAvailable, ErrorCode, MessageTooLarge
from penstock.handlers import groups
from penstock.handlers.groups import group_code
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from penstock.replication.ledger import PartitionLedger
from penstock.wire.apis import BY_KEY, ApiKey

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


def versions(api_key: ApiKey) -> list[int]:
    api = BY_KEY[api_key]
    return list(range(api.low, api.high + 1))


@pytest.fixture
def settings() -> dict[str, str]:
    return {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
async def served(node: Any) -> Any:
    """The broker once it serves groups: their topic exists and each of its partitions is loaded."""
    await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 0, key="g")
    one_of_each = ("a", "b", "c")
    assert {node.context.groups.partition_of(name) for name in one_of_each} == {0, 1, 2}
    for _ in range(10_000):
        reply = await node.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, 0, groups=one_of_each)
        if all(group.error_code == 0 for group in reply.groups):
            return node
        await asyncio.sleep(0)
    raise AssertionError("the groups were not loaded")


def join_body(version: int, **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
    }
    if version >= 1:
        body["rebalance_timeout"] = 60_000
    if version >= 8:
        body["reason"] = "because"
    return {**body, **changes}


async def join(node: Any, version: int = 9, **changes: Any) -> Any:
    reply = await node.call(groups.handle_join_group, ApiKey.JOIN_GROUP, version, **join_body(version, **changes))
    if reply.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return reply
    changes["member_id"] = reply.member_id
    return await node.call(groups.handle_join_group, ApiKey.JOIN_GROUP, version, **join_body(version, **changes))


async def sync(node: Any, joined: Any, version: int = 5, **changes: Any) -> Any:
    body: dict[str, Any] = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b"mine"}],
    }
    if version >= 5:
        body |= {"protocol_type": "consumer", "protocol_name": "range"}
    return await node.call(groups.handle_sync_group, ApiKey.SYNC_GROUP, version, **{**body, **changes})


async def stable(node: Any, **changes: Any) -> Any:
    joined = await join(node, **changes)
    group = {"group_id": changes["group_id"]} if "group_id" in changes else {}
    assert (await sync(node, joined, **group)).error_code == 0
    return joined


# FindCoordinator


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_a_groups_coordinator_is_found_and_its_topic_made(node: Any, version: int) -> None:
    body: dict[str, Any] = {"key": "g"} if version < 4 else {"coordinator_keys": ["g", "h"]}
    reply = await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, version, **body)
    answers = [reply] if version < 4 else reply.coordinators
    assert [answer.key for answer in answers] == ["g", "h"] if version >= 4 else len(answers) == 1
    for answer in answers:
        assert (answer.error_code, answer.node_id) == (0, node.context.node.node_id)
        assert (answer.host, answer.port) == (node.context.node.host, node.context.node.port)
    assert GROUP_OFFSETS_TOPIC in node.context.image.topics


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR)[1:])
async def test_a_transactional_ids_coordinator_is_found_and_its_topic_made(node: Any, version: int) -> None:
    body: dict[str, Any] = {"key": "t"} if version < 4 else {"coordinator_keys": ["t", "u"]}
    reply = await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, version, key_type=1, **body)
    for answer in [reply] if version < 4 else reply.coordinators:
        assert (answer.error_code, answer.node_id) == (0, node.context.node.node_id)
    topic = node.context.image.topics[TRANSACTION_STATE_TOPIC]
    assert len(topic.partitions) == node.context.config.transaction_state_log_num_partitions
    settings = node.context.config.topic(topic.configs)
    assert (settings.cleanup_policy, settings.min_insync_replicas) == ({"compact"}, 1)
    assert GROUP_OFFSETS_TOPIC not in node.context.image.topics


async def test_an_unknown_kind_of_coordinator_is_refused(node: Any) -> None:
    reply = await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, key_type=9, coordinator_keys=["t"])
    assert reply.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_if_the_topic_cannot_be_made_there_is_no_coordinator_yet(node: Any) -> None:
    async def fail(name: str) -> None:
        raise CoordinatorNotAvailable("no brokers")

    node.context.ensure_internal_topic = fail
    reply = await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 3, key="g")
    assert (reply.error_code, reply.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_a_coordinator_is_asked_for_nothing(node: Any) -> None:
    reply = await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, coordinator_keys=[])
    assert reply.coordinators == ()


# Joining, syncing, heartbeating, leaving


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_a_member_joins_in_every_version(served: Any, version: int) -> None:
    joined = await join(served, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("a-client-")
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    if version >= 7:
        assert joined.protocol_type == "consumer"


async def test_the_first_version_uses_the_session_time_out_for_rebalances(served: Any) -> None:
    await join(served, 0)
    (member,) = served.context.groups.find("g").members
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (10_000, 10_000)


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_a_refused_join_has_an_answer_in_every_version(served: Any, version: int) -> None:
    reply = await join(served, version, session_timeout=1)
    assert reply.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert reply.generation_id == -1
    assert reply.protocol_name == (None if version >= 7 else "")


async def test_a_static_member_keeps_its_instance_and_its_reason_is_kept(served: Any) -> None:
    joined = await join(served, group_instance_id="i", reason="x" * 1_000)
    assert joined.members[0].group_instance_id == "i"
    assert joined.member_id.startswith("i-")
    assert "x" * 255 in served.context.groups.find("g").last_rebalance.reason
    assert "x" * 256 not in served.context.groups.find("g").last_rebalance.reason


async def test_only_from_version_9_a_returning_leader_is_told_to_skip_the_assignment(served: Any) -> None:
    await stable(served, group_instance_id="i")
    older = await join(served, 8, group_instance_id="i")
    assert older.leader != older.member_id
    newer = await join(served, 9, group_instance_id="i")
    assert (newer.leader, newer.skip_assignment) == (newer.member_id, True)


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_a_member_syncs_in_every_version(served: Any, version: int) -> None:
    synced = await sync(served, await join(served), version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


async def test_from_version_5_a_sync_says_what_it_believes_was_chosen(served: Any) -> None:
    joined = await join(served)
    assert (await sync(served, joined, protocol_name=None)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await sync(served, joined, protocol_type=None)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await sync(served, joined, protocol_name="sticky")).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
async def test_a_member_heartbeats_in_every_version(served: Any, version: int) -> None:
    joined = await stable(served)

    async def beat(**changes: Any) -> int:
        body = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, **changes}
        return (await served.call(groups.handle_heartbeat, ApiKey.HEARTBEAT, version, **body)).error_code

    assert await beat() == 0
    assert await beat(generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert await beat(group_id="") == ErrorCode.INVALID_GROUP_ID
    if version >= 3:
        assert await beat(group_instance_id="other") == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
async def test_members_leave_in_every_version(served: Any, version: int) -> None:
    joined = await stable(served)
    leaver = {"member_id": joined.member_id}
    body = {"members": [leaver, {"member_id": "nobody"}]} if version >= 3 else leaver
    reply = await served.call(groups.handle_leave_group, ApiKey.LEAVE_GROUP, version, group_id="g", **body)
    assert reply.error_code == 0
    if version >= 3:
        assert [(member.member_id, member.error_code) for member in reply.members] == [
            (joined.member_id, 0),
            ("nobody", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    assert not served.context.groups.find("g").members


async def test_before_version_3_the_one_leavers_code_is_the_answers(served: Any) -> None:
    await stable(served)
    reply = await served.call(groups.handle_leave_group, ApiKey.LEAVE_GROUP, 2, group_id="g", member_id="nobody")
    assert reply.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_leaving_a_group_without_a_name_or_with_nobody_named(served: Any) -> None:
    reply = await served.call(groups.handle_leave_group, ApiKey.LEAVE_GROUP, group_id="", members=[])
    assert reply.error_code == ErrorCode.INVALID_GROUP_ID
    reply = await served.call(groups.handle_leave_group, ApiKey.LEAVE_GROUP, group_id="g", members=[])
    assert (reply.error_code, reply.members) == (0, ())


async def test_a_broker_that_does_not_lead_the_group_says_so(node: Any) -> None:
    reply = await node.call(groups.handle_join_group, ApiKey.JOIN_GROUP, **join_body(9))
    assert reply.error_code == ErrorCode.NOT_COORDINATOR
    reply = await node.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, groups=["g"])
    assert reply.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    reply = await node.call(groups.handle_delete_groups, ApiKey.DELETE_GROUPS, groups_names=["g"])
    assert reply.results[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_an_assignment_the_log_refuses_fails_and_the_group_lives(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise MessageTooLarge("too large")

    joined = await join(served)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.replication.ledger.PartitionLedger.append", refuse)
        assert (await sync(served, joined)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    again = await join(served, member_id=joined.member_id)
    assert (await sync(served, again)).error_code == 0


async def test_a_large_assignment_is_stored_and_read_again(served: Any) -> None:
    joined = await join(served)
    big = b"x" * 3_000_000
    assert (
        await sync(served, joined, assignments=[{"member_id": joined.member_id, "assignment": big}])
    ).error_code == 0
    coordinator = served.context.groups
    partition = served.partition(GROUP_OFFSETS_TOPIC, coordinator.partition_of("g"))
    await coordinator.lead(PartitionLedger(partition, served.context.clock, served.context.disk))
    (member,) = coordinator.find("g").members
    assert member.assignment == big


def test_what_the_log_calls_too_large_is_the_groups_own_failure() -> None:
    assert group_code(MessageTooLarge("x").code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert group_code(ErrorCode.FENCED_INSTANCE_ID) is ErrorCode.FENCED_INSTANCE_ID


# Describe, list, delete


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_a_group_is_described_in_every_version(served: Any, version: int) -> None:
    joined = await stable(served, group_instance_id="i")
    reply = await served.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, version, groups=["g", "h"])
    group, unknown = reply.groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "a-client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
    if version >= 4:
        assert member.group_instance_id == "i"
    assert (unknown.group_state, unknown.members) == ("Dead", ())
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


async def test_a_rebalancing_group_shows_its_members_without_what_is_not_agreed(served: Any) -> None:
    await join(served)
    reply = await served.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, groups=["g"])
    assert (reply.groups[0].group_state, reply.groups[0].protocol_data) == ("CompletingRebalance", "")
    assert reply.groups[0].members[0].member_metadata == b""


async def test_operations_are_listed_for_who_asks(served: Any) -> None:
    for asked, expected in ((True, sum(1 << code for code in (3, 6, 8, 10, 11))), (False, -(2**31))):
        reply = await served.call(
            groups.handle_describe_groups,
            ApiKey.DESCRIBE_GROUPS,
            groups=["g"],
            include_authorized_operations=asked,
        )
        assert reply.groups[0].authorized_operations == expected


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_groups_are_listed_in_every_version(served: Any, version: int) -> None:
    await stable(served)
    await join(served, group_id="h")
    reply = await served.call(groups.handle_list_groups, ApiKey.LIST_GROUPS, version)
    assert reply.error_code == 0
    assert sorted((group.group_id, group.protocol_type) for group in reply.groups) == [
        ("g", "consumer"),
        ("h", "consumer"),
    ]
    if version >= 4:
        assert {group.group_state for group in reply.groups} == {"Stable", "CompletingRebalance"}
    if version >= 5:
        assert {group.group_type for group in reply.groups} == {"classic"}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"states_filter": ["stable"]}, ["g"]),
        ({"states_filter": ["Stable", "CompletingRebalance"]}, ["g", "h"]),
        ({"states_filter": ["NoSuchState"]}, []),
        ({"types_filter": ["Classic"]}, ["g", "h"]),
        ({"types_filter": ["consumer"]}, []),
        ({"states_filter": ["Stable"], "types_filter": ["classic"]}, ["g"]),
    ],
)
async def test_groups_are_filtered_by_state_and_type(served: Any, filters: dict[str, Any], expected: list[str]) -> None:
    await stable(served)
    await join(served, group_id="h")
    reply = await served.call(groups.handle_list_groups, ApiKey.LIST_GROUPS, **filters)
    assert sorted(group.group_id for group in reply.groups) == expected


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_groups_are_deleted_in_every_version(served: Any, version: int) -> None:
    await stable(served)
    joined = await stable(served, group_id="h")
    await served.call(
        groups.handle_leave_group, ApiKey.LEAVE_GROUP, group_id="h", members=[{"member_id": joined.member_id}]
    )
    reply = await served.call(
        groups.handle_delete_groups, ApiKey.DELETE_GROUPS, version, groups_names=["g", "h", "h", "c"]
    )
    assert {result.group_id: result.error_code for result in reply.results} == {
        "g": ErrorCode.NON_EMPTY_GROUP,
        "h": 0,
        "c": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert served.context.groups.find("h") is None
