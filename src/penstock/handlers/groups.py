"""Groups and their members: FindCoordinator, Join, Sync, Heartbeat, Leave, Describe, List, Delete.

Called by server.dispatch. Each handler turns a request of any version into a call of the coordinator, and its answer,
or the error it raised, into the response; the rules are in penstock.groups.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, ErrorCode, PenstockError
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.group_state import DEAD, STABLE
from penstock.groups.member import JoinReply, JoinRequest, Leaver, Member, SyncReply, SyncRequest
from penstock.handlers.context import HandlerContext, Request
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

Body = Mapping[str, Any]

GROUP_KEY, TRANSACTION_KEY = 0, 1
KEPT_IN = {GROUP_KEY: GROUP_OFFSETS_TOPIC, TRANSACTION_KEY: TRANSACTION_STATE_TOPIC}
CLASSIC, CONSUMER = "classic", "consumer"
REASON_CHARACTERS_MAX = 255
UNKNOWN_OPERATIONS = -(2**31)  # "not asked for" in a set of authorised operations
# Everything is allowed until a listener authenticates: read, delete, describe, describe and alter configs.
GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8, 10, 11))
_MILLISECOND = timedelta(milliseconds=1)


async def handle_find_coordinator(context: HandlerContext, request: Request) -> Body:
    body = request.body
    key_type: int = getattr(body, "key_type", GROUP_KEY)
    is_batched = request.version >= 4
    keys: tuple[str, ...] = body.coordinator_keys if is_batched else (body.key,)
    try:
        kept_in = KEPT_IN.get(key_type)
        if kept_in is not None and kept_in not in context.image.topics:
            await context.ensure_internal_topic(kept_in)
        found = [_coordinator(context, key_type, key) for key in keys]
    except PenstockError as error:
        found = [_no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) for key in keys]
    if is_batched:
        return {"coordinators": found}
    # Older versions have the one answer in the response itself, and no place for its key.
    return {name: value for name, value in found[0].items() if name != "key"}


def _coordinator(context: HandlerContext, key_type: int, key: str) -> Body:
    node = context.node
    kept_in = KEPT_IN.get(key_type)
    if kept_in is None:
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
    topic = context.image.topics.get(kept_in)
    coordinator = context.groups if key_type == GROUP_KEY else context.transactions
    partition = coordinator.partition_of(key)
    if topic is None or partition >= len(topic.partitions):
        raise CoordinatorNotAvailable(f"{kept_in} is being created")
    leader = topic.partitions[partition].leader
    if leader == node.node_id:
        return {"key": key, "node_id": node.node_id, "host": node.host, "port": node.port}
    broker = context.image.brokers.get(leader)
    if broker is None:
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "its partition has no leader")
    return {"key": key, "node_id": broker.id, "host": broker.endpoint.host, "port": broker.endpoint.port}


def _no_coordinator(key: str, code: ErrorCode, message: str) -> Body:
    return {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message}


async def handle_join_group(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    client_id = request.client_id or ""
    instance_id: str | None = getattr(body, "group_instance_id", None)
    session_timeout_ms = milliseconds(body.session_timeout)
    # Version 0 has no time-out for rebalances; there the session's has to do for both.
    rebalance_timeout_ms = milliseconds(body.rebalance_timeout) if version >= 1 else session_timeout_ms
    join = JoinRequest(
        member_id=body.member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{request.client_host}",  # with the slash that Kafka shows and tools strip
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        reason=_reason(body),
        new_member_id=context.groups.new_member_id(client_id, instance_id),
        must_know_its_id=version >= 4,
        may_skip_assignment=version >= 9,
    )
    try:
        reply = await context.groups.join(body.group_id, join)
    except PenstockError as error:
        reply = JoinReply(error.code, body.member_id)
    return {
        "error_code": group_code(reply.code),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        # Before version 7 the name cannot be null.
        "protocol_name": reply.protocol if version >= 7 else reply.protocol or "",
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
            for member in reply.members
        ],
    }


async def handle_sync_group(context: HandlerContext, request: Request) -> Body:
    body = request.body
    sync = SyncRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        generation=body.generation_id,
        protocol_type=getattr(body, "protocol_type", None),
        protocol=getattr(body, "protocol_name", None),
        assignments={entry.member_id: entry.assignment for entry in body.assignments},
    )
    if request.version >= 5 and (sync.protocol_type is None or sync.protocol is None):
        return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "assignment": b""}
    try:
        reply = await context.groups.sync(body.group_id, sync)
    except PenstockError as error:
        reply = SyncReply(error.code)
    return {
        "error_code": group_code(reply.code),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol,
        "assignment": reply.assignment,
    }


def handle_heartbeat(context: HandlerContext, request: Request) -> Body:
    body = request.body
    instance_id = getattr(body, "group_instance_id", None)
    try:
        code = context.groups.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
    except CoordinatorLoadInProgress:
        # As Kafka does: nothing can be said against the member yet, and some clients take an error for the end.
        code = ErrorCode.NONE
    except PenstockError as error:
        code = error.code
    return {"error_code": code}


async def handle_leave_group(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    if version >= 3:
        leavers = [Leaver(entry.member_id, entry.group_instance_id, _reason(entry)) for entry in body.members]
    else:
        leavers = [Leaver(body.member_id, None, "")]
    try:
        codes = [group_code(code) for code in await context.groups.leave(body.group_id, leavers)]
    except PenstockError as error:
        return {"error_code": group_code(error.code), "members": []}
    if version < 3:
        return {"error_code": codes[0]}
    return {
        "error_code": ErrorCode.NONE,
        "members": [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": code}
            for leaver, code in zip(leavers, codes, strict=True)
        ],
    }


def handle_describe_groups(context: HandlerContext, request: Request) -> Body:
    wants_operations = getattr(request.body, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if wants_operations else UNKNOWN_OPERATIONS
    return {
        "groups": [
            {**_described(context, group_id, request.version), "authorized_operations": operations}
            for group_id in request.body.groups
        ]
    }


def _described(context: HandlerContext, group_id: str, version: int) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }
    try:
        group = context.groups.find(group_id)
    except PenstockError as error:
        return {**nothing, "error_code": error.code}
    if group is None or group.state is DEAD or isinstance(group, ConsumerGroup):
        dead = {**nothing, "error_code": ErrorCode.NONE, "group_state": DEAD.value}
        if version >= 6:
            is_other = group is not None and group.state is not DEAD
            what = "is not a classic group" if is_other else "not found"
            dead |= {"error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": f"Group {group_id} {what}."}
        return dead
    protocol = (group.protocol or "") if group.state is STABLE else ""
    return {
        "error_code": ErrorCode.NONE,
        "error_message": rebalance_note(group),
        "group_id": group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol,
        "members": [_described_member(group, member, protocol) for member in group.members],
    }


def _described_member(group: ClassicGroup, member: Member, protocol: str) -> Body:
    is_settled = group.state is STABLE
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        # While the group rebalances, what was agreed is over and what will be is not known.
        "member_metadata": member.protocols.get(protocol, b"") if is_settled else b"",
        "member_assignment": member.assignment if is_settled else b"",
    }


def handle_list_groups(context: HandlerContext, request: Request) -> Body:
    states = {state.lower() for state in getattr(request.body, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request.body, "types_filter", ())}
    try:
        groups = context.groups.list_groups()
    except PenstockError as error:
        return {"error_code": error.code, "groups": []}
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type or "",
                "group_state": group.state.value,
                "group_type": _type_of(group),
            }
            for group in groups
            if (not states or group.state.value.lower() in states) and (not types or _type_of(group) in types)
        ],
    }


def _type_of(group: ClassicGroup | ConsumerGroup) -> str:
    return CONSUMER if isinstance(group, ConsumerGroup) else CLASSIC


async def handle_delete_groups(context: HandlerContext, request: Request) -> Body:
    # All at once, so that their tombstones share a batch; a group named twice is deleted once.
    group_ids = list(dict.fromkeys(request.body.groups_names))
    codes = await asyncio.gather(*(_delete(context, group_id) for group_id in group_ids))
    return {
        "results": [{"group_id": group_id, "error_code": code} for group_id, code in zip(group_ids, codes, strict=True)]
    }


async def _delete(context: HandlerContext, group_id: str) -> ErrorCode:
    try:
        return group_code(await context.groups.delete_group(group_id))
    except PenstockError as error:
        return group_code(error.code)


def group_code(code: ErrorCode) -> ErrorCode:
    """As it is, but for a group too large to be stored: members would take the log's own word for it as theirs."""
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return code


def rebalance_note(group: ClassicGroup | ConsumerGroup) -> str | None:
    """When the group last rebalanced and why, for a field that clients look at only if there is an error."""
    if group.last_rebalance is None:
        return None
    reason, wall_ms, _ = group.last_rebalance
    at = datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return f"rebalanced at {at}: {reason}"


def _reason(body: Any) -> str:
    reason: str = getattr(body, "reason", None) or ""
    return reason[:REASON_CHARACTERS_MAX]


def milliseconds(duration: timedelta) -> int:
    return duration // _MILLISECOND
