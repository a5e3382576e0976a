"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe.

Called by server.dispatch. Each handler turns a request of any version into a call of the coordinator, and its answer,
or the error it raised, into the response; the rules are in penstock.groups.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from penstock.errors import ErrorCode, InvalidRequest, PenstockError
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    ConsumerMember,
    HeartbeatRequest,
)
from penstock.groups.group_state import DEAD
from penstock.handlers.context import HandlerContext, Request
from penstock.handlers.groups import GROUP_OPERATIONS, UNKNOWN_OPERATIONS, group_code, milliseconds, rebalance_note
from penstock.model import NO_TOPIC_ID

Body = Mapping[str, Any]

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
MEMBERS_MAKE_THEIR_ID_FROM = 1
SUBSCRIPTION_CHARACTERS_MAX = 1024 * 1024  # of all topic names of a member together, which are kept as one record


# ConsumerGroupHeartbeat


async def handle_consumer_group_heartbeat(context: HandlerContext, request: Request) -> Body:
    body = request.body
    try:
        _check_heartbeat(body, request.version)
        reply = await context.groups.consumer_heartbeat(body.group_id, _heartbeat(context, request))
    except PenstockError as error:
        return {"error_code": group_code(error.code), "error_message": str(error)}
    assignment = None
    if reply.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in reply.assignment.items()
            ]
        }
    return {
        "error_code": ErrorCode.NONE,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval": reply.heartbeat_interval_ms,
        "assignment": assignment,
    }


def _check_heartbeat(body: Any, version: int) -> None:
    epoch: int = body.member_epoch
    needs_id = version >= MEMBERS_MAKE_THEIR_ID_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if needs_id and not body.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    for name, value in (("GroupId", body.group_id), ("InstanceId", body.instance_id), ("RackId", body.rack_id)):
        if value == "":
            raise InvalidRequest(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        if milliseconds(body.rebalance_timeout) == UNCHANGED:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        if body.topic_partitions is None or body.topic_partitions:
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
        if body.subscribed_topic_names is None and getattr(body, "subscribed_topic_regex", None) is None:
            raise InvalidRequest(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == STATIC_LEAVE_EPOCH and body.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")
    if sum(map(len, body.subscribed_topic_names or ())) > SUBSCRIPTION_CHARACTERS_MAX:
        raise InvalidRequest("SubscribedTopicNames are too many.")


def _heartbeat(context: HandlerContext, request: Request) -> HeartbeatRequest:
    body = request.body
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return HeartbeatRequest(
        # Before version 1 a member could leave it to the broker.
        member_id=body.member_id or str(context.rng.uuid()),
        member_epoch=body.member_epoch,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",
        instance_id=body.instance_id,
        rack=body.rack_id,
        rebalance_timeout_ms=milliseconds(body.rebalance_timeout),
        topics=None if names is None else frozenset(names),
        pattern=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None if owned is None else _owned(owned),
    )


def _owned(topics: Iterable[Any]) -> dict[UUID, frozenset[int]]:
    owned: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = topic.topic_id or NO_TOPIC_ID
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


# ConsumerGroupDescribe


def handle_consumer_group_describe(context: HandlerContext, request: Request) -> Body:
    operations = GROUP_OPERATIONS if request.body.include_authorized_operations else UNKNOWN_OPERATIONS
    return {
        # Once each: an answer is many times the size of a name, and who repeats it learns nothing more.
        "groups": [
            {**_described(context, group_id), "authorized_operations": operations}
            for group_id in dict.fromkeys(request.body.group_ids)
        ]
    }


def _described(context: HandlerContext, group_id: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
    try:
        group = context.groups.find(group_id)
    except PenstockError as error:
        return {**nothing, "error_code": error.code, "error_message": str(error)}
    if group is None or group.state is DEAD:
        message = f"Group {group_id} not found."
        return {**nothing, "error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": message}
    if not isinstance(group, ConsumerGroup):
        # With this code a client asks again with DescribeGroups.
        message = f"Group {group_id} is not a consumer group."
        return {**nothing, "error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": message}
    facts = group.facts
    return {
        "error_code": ErrorCode.NONE,
        "error_message": rebalance_note(group),
        "group_id": group_id,
        "group_state": group.state.value,
        "group_epoch": facts.epoch,
        "assignment_epoch": facts.target_epoch,
        "assignor_name": group.assignor(context.config.group_consumer_assignors),
        "members": [
            _described_member(context, member, facts.target.get(member.member_id, {}))
            for member in facts.members.values()
        ],
    }


def _described_member(context: HandlerContext, member: ConsumerMember, target: Mapping[UUID, Iterable[int]]) -> Body:
    profile, standing = member.profile, member.standing
    return {
        "member_id": member.member_id,
        "instance_id": profile.instance_id,
        "rack_id": profile.rack,
        "member_epoch": standing.epoch,
        "client_id": profile.client_id,
        "client_host": profile.client_host,
        "subscribed_topic_names": sorted(profile.topics),
        "subscribed_topic_regex": profile.pattern or None,
        "assignment": _topic_partitions(context, standing.assigned),
        "target_assignment": _topic_partitions(context, target),
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


def _topic_partitions(context: HandlerContext, held: Mapping[UUID, Iterable[int]]) -> Body:
    """Topics deleted a moment ago have no name to show and are left out."""
    topics = context.image.topics_by_id
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topics[topic_id].name, "partitions": sorted(partitions)}
            for topic_id, partitions in held.items()
            if topic_id in topics and partitions
        ]
    }
