"""A member of a classic group, what it asked for, and what the group answers it.

Called by groups.classic_group, which owns every change, and by groups.coordinator, which makes the requests.
"""

from dataclasses import dataclass

from penstock.coordination import Now, Waiter
from penstock.errors import ErrorCode
from penstock.groups.group_records import MemberMetadata

UNKNOWN_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str
    new_member_id: str  # for a member that has none yet: chance is made outside, so that the rules are pure
    must_know_its_id: bool = True  # from version 4 a dynamic member joins a second time with the id it was given
    may_skip_assignment: bool = True  # from version 9 a returning static leader can be told to leave all as it is


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    code: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = UNKNOWN_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None  # what the member believes was chosen; None: a client too old to say
    protocol: str | None
    assignments: dict[str, bytes]  # from the leader


@dataclass(frozen=True, slots=True)
class SyncReply:
    code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Leaver:
    member_id: str
    instance_id: str | None
    reason: str


class Member:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "joining",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(self, member_id: str, request: JoinRequest) -> None:
        self.member_id = member_id
        self.instance_id = request.instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = protocols_of(request)
        self.assignment = b""
        self.session_deadline_ms = 0
        # Has never had a reply to a JoinGroup, so cannot heartbeat: its session is the wait for that reply.
        self.is_new = False
        self.joining: Waiter | None = None
        self.syncing: Waiter | None = None

    @classmethod
    def restored(cls, saved: MemberMetadata, protocol_type: str, protocol: str | None) -> "Member":
        request = JoinRequest(
            member_id=saved.member_id,
            instance_id=saved.instance_id,
            client_id=saved.client_id,
            client_host=saved.client_host,
            session_timeout_ms=saved.session_timeout_ms,
            rebalance_timeout_ms=saved.rebalance_timeout_ms,
            protocol_type=protocol_type,
            # Only what was chosen is kept in the log; what else it supports it says when it joins again.
            protocols=() if protocol is None else ((protocol, saved.subscription),),
            reason="",
            new_member_id=saved.member_id,
        )
        member = cls(saved.member_id, request)
        member.assignment = saved.assignment
        return member

    def saved(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols.get(protocol or "", b""),
            assignment,
        )

    @property
    def is_parked(self) -> bool:
        """Waits for our reply and cannot heartbeat meanwhile, so its session cannot run out."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def renew_session(self, now: Now) -> None:
        self.session_deadline_ms = now.steady_ms + self.session_timeout_ms

    def supports_as_before(self, request: JoinRequest) -> bool:
        # As lists: the order is the member's preference, and a change of it can change the vote.
        return list(self.protocols.items()) == list(protocols_of(request).items())

    def vote(self, candidates: set[str]) -> str:
        return next(protocol for protocol in self.protocols if protocol in candidates)


def protocols_of(request: JoinRequest) -> dict[str, bytes]:
    protocols: dict[str, bytes] = {}
    for name, metadata in request.protocols:
        protocols.setdefault(name, metadata)
    return protocols
