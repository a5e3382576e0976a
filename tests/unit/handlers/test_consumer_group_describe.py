"""Groups of the consumer protocol as they are described and listed, in a running broker."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.handlers import consumer_groups, groups
from penstock.wire.apis import ApiKey

MEMBERS = ("kate", "liam")


@pytest.fixture
def settings() -> dict[str, str]:
    return {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
async def served(node: Any) -> Any:
    """The broker once it serves groups, with topics to read."""
    await node.create("orders", 3)
    await node.create("bills", 1)
    await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 0, key="g")
    for _ in range(10_000):
        reply = await node.call(groups.handle_list_groups, ApiKey.LIST_GROUPS, 5)
        described = await describe(node, "g")
        if reply.error_code == 0 and described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return node
        await asyncio.sleep(0)
    raise AssertionError("the groups were not loaded")


async def heartbeat(node: Any, member: str, epoch: int = 0, **changes: Any) -> Any:
    body: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch}
    if epoch == 0:
        body |= {"rebalance_timeout": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    handler = consumer_groups.handle_consumer_group_heartbeat
    reply = await node.call(handler, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **{**body, **changes})
    assert reply.error_code == 0, reply
    return reply


async def describe_all(node: Any, *names: str, version: int = 1, operations: bool = False) -> list[Any]:
    handler = consumer_groups.handle_consumer_group_describe
    body = {"group_ids": names, "include_authorized_operations": operations}
    return (await node.call(handler, ApiKey.CONSUMER_GROUP_DESCRIBE, version, **body)).groups


async def describe(node: Any, name: str = "g", version: int = 1) -> Any:
    (described,) = await describe_all(node, name, version=version)
    return described


async def join_classic(node: Any, group_id: str = "old") -> None:
    body: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert (await node.call(groups.handle_join_group, ApiKey.JOIN_GROUP, 3, **body)).error_code == 0


def places(assignment: Any) -> dict[str, list[int]]:
    return {one.topic_name: list(one.partitions) for one in assignment.topic_partitions}


async def test_a_group_is_described_with_its_epochs_and_what_members_hold_and_are_to_hold(served: Any) -> None:
    await heartbeat(served, "kate", instance_id="static-1", rack_id="r1")
    await heartbeat(served, "liam")
    described = await describe(served)
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Reconciling", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    kate, liam = sorted(described.members, key=lambda member: member.member_id)
    assert (kate.instance_id, kate.rack_id, kate.member_epoch) == ("static-1", "r1", 1)
    assert (kate.client_id, kate.client_host) == ("a-client", "/127.0.0.1")
    assert (kate.subscribed_topic_names, kate.subscribed_topic_regex) == (("orders",), None)
    assert places(kate.assignment) == {"orders": [0, 1, 2]}
    assert places(kate.target_assignment) == {"orders": [0, 1]}
    assert (places(liam.assignment), places(liam.target_assignment)) == ({}, {"orders": [2]})
    assert (kate.member_type, liam.member_type) == (1, 1)
    (topic,) = kate.assignment.topic_partitions
    assert topic.topic_id == served.context.image.topics["orders"].id


async def test_a_pattern_is_described_as_it_was_sent(served: Any) -> None:
    await heartbeat(served, "kate", subscribed_topic_names=[], subscribed_topic_regex="o.*|b.*")
    (member,) = (await describe(served)).members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ((), "o.*|b.*")
    assert places(member.assignment) == {"orders": [0, 1, 2], "bills": [0]}


async def test_the_assignor_most_members_ask_for_is_shown(served: Any) -> None:
    await heartbeat(served, "kate", server_assignor="range")
    assert (await describe(served)).assignor_name == "range"


async def test_the_cause_of_the_last_rebalance_is_told_in_both_kinds_of_groups(served: Any) -> None:
    await heartbeat(served, "kate")
    note = (await describe(served)).error_message
    when, _, cause = note.removeprefix("rebalanced at ").partition(": ")
    assert cause == "member kate joined"
    assert datetime.fromisoformat(when).timestamp() * 1000 == pytest.approx(served.context.clock.now_ms(), abs=600_000)
    await heartbeat(served, "liam")
    await heartbeat(served, "liam", -1)
    assert (await describe(served)).error_message.endswith("member liam left")
    await join_classic(served)
    reply = await served.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, 6, groups=["old"])
    assert reply.groups[0].error_code == 0
    assert "joined" in reply.groups[0].error_message


async def test_a_topic_that_is_gone_has_no_name_and_is_left_out(served: Any) -> None:
    await heartbeat(served, "kate", subscribed_topic_names=["orders", "bills"])
    await served.context.controller.delete_topics(["bills"])
    (member,) = (await describe(served)).members
    assert places(member.assignment) == places(member.target_assignment) == {"orders": [0, 1, 2]}


async def test_a_group_without_members_is_empty_and_keeps_its_epoch(served: Any) -> None:
    await heartbeat(served, "kate")
    await heartbeat(served, "kate", -1)
    described = await describe(served)
    assert (described.group_state, described.members, described.error_code) == ("Empty", (), 0)
    assert described.group_epoch == 2


@pytest.mark.parametrize("version", [0, 1])
async def test_a_group_that_is_not_there_and_a_classic_one_are_not_found(served: Any, version: int) -> None:
    await join_classic(served)
    nobody, old = await describe_all(served, "nobody", "old", version=version)
    assert (nobody.error_code, nobody.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")
    assert (old.error_code, old.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group old is not a consumer group.")


@pytest.mark.parametrize("version", [0, 5, 6])
async def test_a_consumer_group_is_no_classic_one(served: Any, version: int) -> None:
    await heartbeat(served, "kate")
    reply = await served.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, version, groups=["g"])
    (described,) = reply.groups
    assert (described.group_state, described.members) == ("Dead", ())
    if version < 6:
        assert described.error_code == 0
    else:
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == "Group g is not a classic group."


async def test_a_group_named_twice_is_described_once_and_operations_only_if_asked_for(served: Any) -> None:
    await heartbeat(served, "kate")
    (described,) = await describe_all(served, "g", "g")
    assert described.authorized_operations == groups.UNKNOWN_OPERATIONS
    (described,) = await describe_all(served, "g", operations=True)
    assert described.authorized_operations == groups.GROUP_OPERATIONS


async def test_a_broker_that_does_not_keep_the_group_says_so(node: Any) -> None:
    described = await describe(node)
    assert described.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ([], {"g": "consumer", "old": "classic"}),
        (["consumer"], {"g": "consumer"}),
        (["Classic"], {"old": "classic"}),
        (["CONSUMER", "classic"], {"g": "consumer", "old": "classic"}),
        (["share"], {}),
    ],
)
async def test_groups_are_listed_by_type(served: Any, types: list[str], names: dict[str, str]) -> None:
    await heartbeat(served, "kate")
    await join_classic(served)
    reply = await served.call(groups.handle_list_groups, ApiKey.LIST_GROUPS, 5, types_filter=types, states_filter=[])
    assert {group.group_id: group.group_type for group in reply.groups} == names


async def test_states_of_consumer_groups_can_be_asked_for(served: Any) -> None:
    for member in MEMBERS:
        await heartbeat(served, member)
    for states, count in ((["reconciling"], 1), (["Stable"], 0), (["stable", "RECONCILING"], 1)):
        reply = await served.call(
            groups.handle_list_groups, ApiKey.LIST_GROUPS, 5, types_filter=[], states_filter=states
        )
        assert len(reply.groups) == count


async def test_a_groups_own_heartbeat_interval_is_what_its_members_are_told(served: Any) -> None:
    from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
    from penstock.config import Scope

    assert (await heartbeat(served, "kate")).heartbeat_interval.total_seconds() == 5
    change = ConfigChange("consumer.heartbeat.interval.ms", ConfigOp.SET, "7000")
    await served.context.controller.alter_configs(ConfigResource(Scope.GROUP, "g"), [change])
    assert (await heartbeat(served, "liam")).heartbeat_interval.total_seconds() == 7
