"""What a classic group answers to a request it does not grant; NONE to one it does. Looks only, changes nothing.

Called by groups.classic_group, before it acts on a request.
"""

from typing import TYPE_CHECKING

from penstock.errors import ErrorCode
from penstock.groups.group_state import COMPLETING, DEAD, EMPTY, PREPARING
from penstock.groups.member import UNKNOWN_MEMBER, JoinRequest, SyncRequest

if TYPE_CHECKING:
    from penstock.groups.classic_group import ClassicGroup

PENDING_MEMBERS_MAX = 10_000


def of_join(group: "ClassicGroup", request: JoinRequest) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room_for(group, request):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _can_work_with(group, request):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.member_id == UNKNOWN_MEMBER:
        return ErrorCode.NONE
    if request.member_id in group.pending:
        # Ids are reserved for dynamic members only, so this one belongs to somebody else.
        return ErrorCode.NONE if request.instance_id is None else ErrorCode.UNKNOWN_MEMBER_ID
    return group.members.check(request.member_id, request.instance_id)


def of_sync(group: "ClassicGroup", request: SyncRequest) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if (code := group.members.check(request.member_id, request.instance_id)) is not ErrorCode.NONE:
        return code
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def of_heartbeat(group: "ClassicGroup", member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if (code := group.members.check(member_id, instance_id)) is not ErrorCode.NONE:
        return code
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE


def of_commit(
    group: "ClassicGroup", member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is EMPTY:
        return ErrorCode.NONE
    if generation < 0 and member_id == UNKNOWN_MEMBER and instance_id is None:
        # Before KIP-447 a transaction did not say which member it speaks for; its transactional id fences it.
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    if (code := group.members.check(member_id, instance_id)) is not ErrorCode.NONE:
        return code
    # A member that still waits for its first generation cannot have read anything in this one.
    if generation != group.generation or group.members[member_id].is_new:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is COMPLETING and not is_transactional:
        # It has joined but has no assignment yet, so whatever it commits it no longer owns.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _has_room_for(group: "ClassicGroup", request: JoinRequest) -> bool:
    member = group.members.get(request.member_id)
    if member is None and len(group.pending) >= PENDING_MEMBERS_MAX and request.member_id not in group.pending:
        return False
    if len(group.members) < group.size_max:
        return True
    if group.state is PREPARING:
        # Those who wait already, not all members: if the limit was lowered, the last to rejoin are turned away.
        waiting = sum(member.joining is not None for member in group.members)
        return (member is not None and member.joining is not None) or waiting < group.size_max
    return member is not None


def _can_work_with(group: "ClassicGroup", request: JoinRequest) -> bool:
    if not request.protocol_type or not request.protocols:
        return False
    if not group.members:
        return True
    return request.protocol_type == group.protocol_type and group.members.shares_a_protocol_with(request)
