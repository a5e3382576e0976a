"""What clients ask of a coordinator of classic groups in tests: to join, to sync, to commit, and what is committed."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.member import JoinReply, JoinRequest, SyncReply, SyncRequest
from penstock.groups.offsets import OffsetToCommit

SESSION_MS = 10_000
TOPIC_ID = UUID("8f0f5f62-7a54-4d3e-9c1f-0d3a3b2c1d0e")
OTHER_TOPIC_ID = UUID("1c2d3e4f-7a54-4d3e-9c1f-0d3a3b2c1d0e")
NOBODY = ("", None, -1)
DAY_S = 86_400

Make = Callable[[], GroupCoordinator]


def join_request(coordinator: GroupCoordinator, **changes: Any) -> JoinRequest:
    fields: dict[str, Any] = {
        "member_id": "",
        "instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"),),
        "reason": "",
        "new_member_id": coordinator.new_member_id("client", changes.get("instance_id")),
        "must_know_its_id": False,
    }
    return JoinRequest(**{**fields, **changes})


async def join(coordinator: GroupCoordinator, group_id: str = "g", **changes: Any) -> JoinReply:
    return await coordinator.join(group_id, join_request(coordinator, **changes))


async def sync(
    coordinator: GroupCoordinator, joined: JoinReply, assignments: dict[str, bytes] | None = None, group_id: str = "g"
) -> SyncReply:
    return await coordinator.sync(
        group_id,
        SyncRequest(
            member_id=joined.member_id,
            instance_id=None,
            generation=joined.generation,
            protocol_type="consumer",
            protocol="range",
            assignments=assignments or {},
        ),
    )


async def stable(coordinator: GroupCoordinator, members: int = 1, group_id: str = "g") -> list[JoinReply]:
    joined = await asyncio.gather(*(join(coordinator, group_id) for _ in range(members)))
    assignments = {reply.member_id: reply.member_id.encode() for reply in joined}
    synced = await asyncio.gather(*(sync(coordinator, reply, assignments, group_id) for reply in joined))
    assert [reply.assignment for reply in synced] == list(assignments.values())
    return joined


def offset(value: int, partition: int = 0, topic: str = "orders", **changes: Any) -> OffsetToCommit:
    return OffsetToCommit(topic, TOPIC_ID, partition, value, 1, "note")._replace(**changes)


async def commit(coordinator: GroupCoordinator, *offsets: OffsetToCommit, by: Any = NOBODY) -> list[ErrorCode]:
    return await coordinator.commit_offsets("g", by, offsets)


def committed(coordinator: GroupCoordinator, partition: int = 0, topic_id: UUID = TOPIC_ID) -> int | None:
    found = coordinator.committed_offset("g", "orders", topic_id, partition)
    return None if found is None else found.offset


def beats(coordinator: GroupCoordinator, joined: JoinReply) -> ErrorCode:
    return coordinator.heartbeat("g", joined.member_id, None, joined.generation)
