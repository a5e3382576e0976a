"""Who is in a group: members by id, static instances, the leader, and the protocols they have in common.

Called by groups.classic_group, which decides when someone comes and goes; nothing here knows of states or time.
Invariants:
- The leader is a member, or there are no members.
- Every static instance maps to a member, and every static member is mapped.
- How many members support a protocol is counted as they come, change and go: a join must not look at all the others.
"""

from collections import Counter
from collections.abc import Iterator

from penstock.errors import ErrorCode
from penstock.groups.member import JoinRequest, Member
from penstock.groups.subscription import subscribed_topics

REBALANCE_TIMEOUT_MS_MIN = 1_000  # less would be over between two packets, and the group would never be stable


class Roster:
    __slots__ = ("_members", "_static_ids", "_supporters", "leader")

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        self.leader: str | None = None

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        self._supporters.update(member.protocols.keys())
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self._members.pop(member_id)
        self._withdraw(member.protocols)
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def replace(self, old: Member, new: Member) -> None:
        """The same static instance under a new id, in the old one's place: order is who is next to lead."""
        assert old.instance_id is not None
        assert old.instance_id == new.instance_id
        self._members = {m.member_id: m for m in (new if m is old else m for m in self)}
        self._withdraw(old.protocols)
        self._supporters.update(new.protocols.keys())
        self._static_ids[old.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._withdraw(member.protocols)
        self._supporters.update(protocols.keys())
        member.protocols = protocols

    def static_id(self, instance_id: str) -> str | None:
        return self._static_ids.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            current = self._static_ids.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_leader(self) -> bool:
        """Keep the leader if it joined the new generation, else take the first that did. False if nobody did."""
        joined = [member.member_id for member in self if member.joining is not None]
        if joined and self.leader not in joined:
            self.leader = joined[0]
        return bool(joined)

    def elect_protocol(self) -> str | None:
        """Each member votes for the first of its own that all support; a tie goes to what was voted for first."""
        candidates = {protocol for protocol, count in self._supporters.items() if count == len(self._members)}
        if not candidates:
            return None
        return Counter(member.vote(candidates) for member in self).most_common(1)[0][0]

    def shares_a_protocol_with(self, request: JoinRequest) -> bool:
        return any(self._supporters[name] == len(self._members) for name, _ in request.protocols)

    def rebalance_timeout_ms(self) -> int:
        if not self._members:
            return 0
        return max(REBALANCE_TIMEOUT_MS_MIN, *(member.rebalance_timeout_ms for member in self))

    def is_subscribed_to(self, topic: str) -> bool:
        """By any member; metadata that cannot be read counts as yes, since its owner may well depend on the topic."""
        for member in self:
            for metadata in member.protocols.values():
                topics = subscribed_topics(metadata)
                if topics is None or topic in topics:
                    return True
        return False

    def _withdraw(self, protocols: dict[str, bytes]) -> None:
        self._supporters.subtract(protocols.keys())
        for protocol in protocols:
            # Names come from clients: one that nobody supports any more must not be kept.
            if not self._supporters[protocol]:
                del self._supporters[protocol]
