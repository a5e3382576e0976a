"""A classic group under any sequence of requests, commits, refusals and time: what must hold after every step."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from penstock.coordination import Decision, Now
from penstock.errors import ErrorCode
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.group_records import GroupMetadata, GroupRecord, decode_record, encode_record
from penstock.groups.group_state import COMPLETING, EMPTY, PREPARING, STABLE
from penstock.groups.member import JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest

SESSION_MS = 10_000
REBALANCE_MS = 20_000
PROTOCOLS = [(("a", b"1"),), (("a", b"2"), ("b", b"")), (("b", b""), ("a", b"1"))]


@dataclass(eq=False)
class Client:
    """What one client knows of itself; `waiting` until the group answers it."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    is_leader: bool = False
    waiting: str | None = None
    assigned: dict[int, bytes] = field(default_factory=dict)


class Answer:
    def __init__(self, machine: "GroupMachine", client: Client | None) -> None:
        self.machine = machine
        self.client = client
        self.answered = False

    def done(self) -> bool:
        return self.answered

    def set_result(self, result: Any, /) -> None:
        assert not self.answered, "answered twice"
        self.answered = True
        if self.client is not None:
            self.machine.heard(self.client, result)

    def set_exception(self, exception: Any, /) -> None:
        raise AssertionError(exception)


class GroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.group = ClassicGroup("g", 3_000, 4)
        self.steady_ms = 1_000
        self.ids = 0
        self.highest_generation = 0
        self.leaders: dict[int, str] = {}
        self.sent: dict[int, dict[str, bytes]] = {}
        self.stored: dict[int, GroupMetadata] = {}
        self.last_stored: GroupMetadata | None = None
        self.in_flight: list[Decision[Any]] = []
        self.answers: list[Answer] = []

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000 + self.steady_ms, self.steady_ms)

    # Carrying decisions out, as coordination does

    def carry_out(self, step: Decision[Any]) -> None:
        if step.records:
            self.in_flight.append(step)
        else:
            self.tell(step.replies)

    def tell(self, replies: Any) -> None:
        for waiter, reply in replies:
            if not waiter.done():
                waiter.set_result(reply)

    def heard(self, client: Client, reply: JoinReply | SyncReply) -> None:
        client.waiting = None
        if isinstance(reply, JoinReply):
            if reply.code is ErrorCode.NONE:
                leader = self.leaders.setdefault(reply.generation, reply.leader)
                is_takeover = reply.generation in self.stored
                assert leader == reply.leader or is_takeover, "two leaders in one generation"
                client.member_id, client.generation = reply.member_id, reply.generation
                client.is_leader = reply.leader == reply.member_id and not reply.skip_assignment
                assert not client.is_leader or reply.members
            elif reply.code is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = reply.member_id
            elif reply.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
                client.member_id, client.generation = "", -1
        elif reply.code is ErrorCode.NONE:
            # Exactly what the record of this generation says, and that is what the leader sent first.
            stored = {member.member_id: member.assignment for member in self.stored[client.generation].members}
            assert reply.assignment == stored[client.member_id]
            assert client.assigned.setdefault(client.generation, reply.assignment) == reply.assignment

    def waiter(self, client: Client, what: str) -> Answer:
        client.waiting = what
        self.answers.append(Answer(self, client))
        return self.answers[-1]

    # What clients do

    @initialize(target=clients)
    def first_clients(self) -> Any:
        return multiple(Client(None), Client(None), Client("one"))

    @rule(target=clients, instance_id=st.sampled_from([None, None, "one", "two"]))
    def another_client(self, instance_id: str | None) -> Client:
        return Client(instance_id)

    @rule(client=clients, protocols=st.sampled_from(PROTOCOLS), knows=st.booleans(), skips=st.booleans())
    def joins(self, client: Client, protocols: Any, knows: bool, skips: bool) -> None:
        if client.waiting:
            return
        self.ids += 1
        request = JoinRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id="c",
            client_host="/h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=protocols,
            reason="",
            new_member_id=f"m{self.ids}",
            must_know_its_id=knows,
            may_skip_assignment=skips,
        )
        self.carry_out(self.group.join(request, self.waiter(client, "join"), self.now))

    @rule(client=clients, salt=st.binary(max_size=2))
    def syncs(self, client: Client, salt: bytes) -> None:
        if client.waiting or client.generation < 0:
            return
        ids = [member.member_id for member in self.group.members] if client.is_leader else []
        request = SyncRequest(
            member_id=client.member_id,
            instance_id=client.instance_id,
            generation=client.generation,
            protocol_type=None,
            protocol=None,
            assignments={member_id: member_id.encode() + salt for member_id in ids},
        )
        step = self.group.sync(request, self.waiter(client, "sync"), self.now)
        for record in step.records:
            # A second assignment may follow only if the first was refused.
            assert client.generation not in self.sent
            self.sent[client.generation] = request.assignments
            assert record.metadata.generation == client.generation
        self.carry_out(step)

    @rule(client=clients)
    def heartbeats(self, client: Client) -> None:
        self.group.heartbeat(client.member_id, client.instance_id, client.generation, self.now)

    @rule(client=clients, stale_by=st.integers(0, 2))
    def commits(self, client: Client, stale_by: int) -> None:
        generation = client.generation - stale_by
        if generation < 0:
            return
        code = self.group.check_commit(client.member_id, client.instance_id, generation, self.now)
        if code is ErrorCode.NONE:
            assert generation == self.group.generation, "a commit of an old generation was taken"
            assert client.member_id in self.group.members
            assert self.group.state in (STABLE, PREPARING)
            if client.instance_id is not None:
                assert self.group.members.static_id(client.instance_id) == client.member_id

    @rule(client=consumes(clients))
    def leaves(self, client: Client) -> None:
        step, (code,) = self.group.leave([Leaver(client.member_id, client.instance_id, "")], self.now)
        self.carry_out(step)
        if code is ErrorCode.NONE:
            assert client.member_id not in self.group.members

    @rule(client=consumes(clients))
    def vanishes(self, client: Client) -> None:
        client.waiting = "gone"

    # What the log and time do

    @rule(count=st.integers(1, 5))
    def commits_records(self, count: int) -> None:
        for step in self.in_flight[:count]:
            for record in step.records:
                # Through bytes and back: what is stored is all there is after a restart.
                read = decode_record(*encode_record(record))
                assert isinstance(read, GroupRecord)
                assert read == record
                assert read.metadata is not None
                self.stored[read.metadata.generation] = self.last_stored = read.metadata
                self.tell(self.group.committed(read.metadata, self.now))
            self.tell(step.replies)
        del self.in_flight[:count]

    @rule()
    def refuses_records(self) -> None:
        for step in reversed(self.in_flight):
            for record in step.records:
                self.sent.pop(record.metadata.generation, None)
            if step.undo is not None:
                self.tell(step.undo(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            for waiter, reply in step.replies:
                if not waiter.done():
                    failed = type(reply)(ErrorCode.COORDINATOR_NOT_AVAILABLE, "") if reply else reply
                    waiter.set_result(failed)
        self.in_flight.clear()

    @rule(ms=st.sampled_from([1, 500, 2_999, 3_000, SESSION_MS - 1, SESSION_MS, REBALANCE_MS, 300_000]))
    def time_passes(self, ms: int) -> None:
        self.steady_ms += ms
        self.carry_out(self.group.tick(self.now))
        late = [m.member_id for m in self.group.members if m.session_deadline_ms <= self.steady_ms and not m.is_parked]
        assert late == [], "a member outlived its session"
        due = self.group.next_deadline_ms()
        assert due is None or due > self.steady_ms, "what is due was left undone"

    @rule()
    def restarts(self) -> None:
        """Memory is gone, and with it all who waited; the log is what was committed."""
        self.in_flight.clear()
        for answer in self.answers:
            answer.answered = True
            if answer.client is not None and answer.client.waiting != "gone":
                answer.client.waiting = None
        self.answers.clear()
        # Generations that were never stored are no more, and may be given out again.
        kept = 0 if self.last_stored is None else self.last_stored.generation
        self.highest_generation = kept
        self.leaders = {generation: leader for generation, leader in self.leaders.items() if generation <= kept}
        self.sent = {generation: sent for generation, sent in self.sent.items() if generation <= kept}
        if self.last_stored is None:
            self.group = ClassicGroup("g", 3_000, 4)
            return
        self.group = ClassicGroup.restored("g", self.last_stored, 3_000, 4)
        assert (
            self.group._snapshot(  # pyright: ignore[reportPrivateUsage]
                {member.member_id: member.assignment for member in self.group.members}, self.group.state_ms
            )
            == self.last_stored
        )
        self.carry_out(self.group.resume(self.now))

    # What always holds

    @invariant()
    def the_generation_never_falls(self) -> None:
        assert self.group.generation >= self.highest_generation
        self.highest_generation = self.group.generation

    @invariant()
    def the_roster_is_whole(self) -> None:
        members = {member.member_id for member in self.group.members}
        assert (self.group.members.leader in members) if members else self.group.members.leader is None
        supporters = Counter(protocol for member in self.group.members for protocol in member.protocols)
        assert self.group.members._supporters == supporters  # pyright: ignore[reportPrivateUsage]
        instances = [member.instance_id for member in self.group.members if member.instance_id is not None]
        assert len(instances) == len(set(instances))
        assert (self.group.state is EMPTY) <= (not members)
        assert (not members) <= (self.group.state in (EMPTY, PREPARING))

    @invariant()
    def who_waits_is_waited_for(self) -> None:
        for member in self.group.members:
            assert (member.joining is not None) <= (self.group.state is PREPARING)
            assert (member.syncing is not None) <= (self.group.state is COMPLETING)
        parked = {id(waiter) for waiter in self.group.waiters()}
        held = {id(waiter) for step in self.in_flight for waiter, _ in step.replies}
        for answer in self.answers:
            assert answer.answered or id(answer) in parked | held, "somebody waits and nobody knows"


TestClassicGroup = GroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
