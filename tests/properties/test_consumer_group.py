"""A consumer group whose members are late, repeat themselves, crash and come back, while its broker does so too.

Requests may be lost, arrive twice or long after they were sent; the log may refuse or lose what is not committed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.layout import Layout
from penstock.config import BrokerConfig
from penstock.coordination import Decision, Now
from penstock.errors import ErrorCode, PenstockError
from penstock.groups.assignors import Assignment
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import HeartbeatReply, HeartbeatRequest
from penstock.groups.group_shard import GroupShard
from penstock.groups.group_state import STABLE
from penstock.groups.offsets import OffsetToCommit

SESSION_MS = 45_000
REBALANCE_MS = 20_000
NAMES = ["a", "b", "c", "d"]
INSTANCES = {"a": None, "b": None, "c": "left", "d": "right"}

RARELY = st.sampled_from([False, False, False, True])
MOSTLY = st.sampled_from([True, True, True, False])

Place = tuple[UUID, int]


def places(partitions: Mapping[UUID, Iterable[int]]) -> list[Place]:
    return [(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes]


@dataclass(eq=False)
class Client:
    """One process of a consumer; what it believes of itself."""

    name: str
    life: int = 0
    epoch: int = 0
    epoch_before: int = 0
    told: Assignment = field(default_factory=dict)
    owned: Assignment = field(default_factory=dict)
    is_running: bool = False
    must_repeat: bool = False  # it may have missed an answer, so it says everything again

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.life}"

    @property
    def identity(self) -> str:
        return INSTANCES[self.name] or self.member_id

    def start_over(self) -> None:
        self.epoch, self.epoch_before, self.told, self.owned, self.must_repeat = 0, 0, {}, {}, False


class Answer:
    def __init__(self, machine: "GroupMachine", client: Client | None, life: int) -> None:
        self.machine, self.client, self.life = machine, client, life
        self.answered = False

    def done(self) -> bool:
        return self.answered

    def set_result(self, result: Any, /) -> None:
        assert not self.answered, "answered twice"
        self.answered = True
        if self.client is not None and self.client.life == self.life and self.client.is_running:
            self.machine.heard(self.client, result)

    def set_exception(self, exception: PenstockError, /) -> None:
        self.answered = True
        if self.client is not None:
            self.client.must_repeat = True


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage(Layout())
        self.topics_made = 0
        self.put_topic("orders", 5)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.turn: list[Decision[Any]] = []
        self.steady_ms = 1_000
        self.clients = {name: Client(name) for name in NAMES}
        self.sent: list[HeartbeatRequest] = []
        self.comes_late = False
        # To whom each partition was given, by the epoch its member was in.
        self.grants: dict[Place, dict[int, str]] = {}
        self.loaded_length = 0  # of the log when it was last loaded to see what it says
        self.shard = self.new_shard()

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000 + self.steady_ms, self.steady_ms)

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.shard.groups.get("g")
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def new_shard(self) -> GroupShard:
        shard = GroupShard(BrokerConfig({}), lambda _: None, self.image)
        for key, value in self.log:
            record = shard.decode(key, value)
            assert record is not None
            assert list(shard.apply(record, self.now)) == []
        for _ in shard.loaded(self.now):
            pass
        return shard

    def put_topic(self, name: str, partitions: int) -> None:
        known = self.image.topics.get(name)
        if known is None:
            self.topics_made += 1
        topic_id = UUID(int=self.topics_made << 64) if known is None else known.id
        topic = Topic(name, topic_id, (PartitionState(1, 0, (1,), (1,)),) * partitions, {})
        self.image.topics[name] = self.image.topics_by_id[topic_id] = topic

    # As coordination carries decisions out

    def carry_out(self, step: Decision[Any]) -> None:
        if step.records or (step.rests_on_earlier and self.turn):
            self.turn.append(step)
        else:
            self.tell(step)

    def tell(self, step: Decision[Any]) -> None:
        for waiter, reply in step.replies:
            waiter.set_result(reply)

    def commit(self, steps: list[Decision[Any]]) -> None:
        for step in steps:
            for record in step.records:
                self.log.append(self.shard.encode(record))
                assert list(self.shard.apply(record, self.now)) == []
            self.tell(step)

    # What members do

    def request_of(self, client: Client, says_owned: bool = True) -> HeartbeatRequest:
        request = HeartbeatRequest(
            member_id=client.member_id,
            member_epoch=client.epoch,
            client_id="c",
            client_host="/h",
            instance_id=INSTANCES[client.name],
            owned=client.owned if says_owned or client.epoch == 0 or client.must_repeat else None,
        )
        if client.epoch == 0 or client.must_repeat:
            request = replace(request, rebalance_timeout_ms=REBALANCE_MS, topics=frozenset({"orders", "payments"}))
        return request

    def send(self, client: Client | None, request: HeartbeatRequest) -> None:
        waiter = Answer(self, client, -1 if client is None else client.life)
        try:
            step = self.shard.consumer.heartbeat("g", request, waiter, self.now)
        except PenstockError as error:
            if client is not None:
                self.heard_error(client, error.code)
            return
        assert not self.is_outdated(request), "who speaks of what is over is answered as if it were not"
        self.carry_out(step)

    def is_outdated(self, request: HeartbeatRequest) -> bool:
        """Its sender has been in two later epochs since, or it says to hold what was given to others since."""
        said = request.member_epoch
        if said <= 0:
            return False
        sender = self.clients[request.member_id[0]]
        if request.member_id == sender.member_id and said < sender.epoch_before:
            return True
        identity = request.instance_id or request.member_id
        owned = request.owned or {}
        return any(self.was_given_on(place, identity, said) for place in places(owned))

    def was_given_on(self, place: Place, identity: str, epoch: int) -> bool:
        return any(later > epoch and who != identity for later, who in self.grants.get(place, {}).items())

    def heard(self, client: Client, reply: HeartbeatReply) -> None:
        if reply.member_epoch < 0:
            return
        client.must_repeat = False
        if client.epoch != reply.member_epoch:
            client.epoch_before, client.epoch = client.epoch, reply.member_epoch
        if reply.assignment is None:
            return
        client.told = reply.assignment
        for place in places(reply.assignment):
            owner = self.grants.setdefault(place, {}).setdefault(reply.member_epoch, client.identity)
            assert owner == client.identity, f"{place} has two owners in epoch {reply.member_epoch}"
        # New ones are read at once; what is to go goes in a step of its own.
        kept = {topic_id: client.owned[topic_id] | client.told.get(topic_id, frozenset()) for topic_id in client.owned}
        client.owned = {**client.told, **kept}

    def heard_error(self, client: Client, code: ErrorCode) -> None:
        assert code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ), code
        client.start_over()
        if code is ErrorCode.FENCED_INSTANCE_ID:
            client.is_running = False

    @initialize(comes_late=st.booleans(), names=st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    def the_network_is(self, comes_late: bool, names: list[str]) -> None:
        """In half of the runs every request arrives once and in time, and more can be asked of the group."""
        self.comes_late = comes_late
        for name in names:
            self.starts(name)

    @rule(name=st.sampled_from(NAMES))
    def starts(self, name: str) -> None:
        client = self.clients[name]
        if not client.is_running:
            client.start_over()
            client.life += 1
            client.is_running = True
        self.beats(name, says_owned=True, is_lost=False, is_quick=True)

    @rule(name=st.sampled_from(NAMES), says_owned=st.booleans(), is_lost=RARELY, is_quick=MOSTLY)
    def beats(self, name: str, says_owned: bool, is_lost: bool, is_quick: bool) -> None:
        client = self.clients[name]
        if client.is_running:
            request = self.request_of(client, says_owned)
            self.sent.append(request)
            if is_lost:
                client.must_repeat = True
            self.send(None if is_lost else client, request)
            if is_quick and self.turn:
                self.the_log_commits()

    @rule(name=st.sampled_from(NAMES))
    def gives_back(self, name: str) -> None:
        client = self.clients[name]
        client.owned = client.told

    @rule(rounds=st.integers(1, 3))
    def all_take_turns(self, rounds: int) -> None:
        self.take_turns(None, True, rounds)

    @rule(newcomer=st.sampled_from(NAMES), which=st.integers(0, 3), says_owned=st.booleans())
    def a_newcomer_meets_one_that_is_slow_to_give_back(self, newcomer: str, which: int, says_owned: bool) -> None:
        holding = [client.name for client in self.clients.values() if client.owned and client.name != newcomer]
        if holding and not self.clients[newcomer].is_running:
            self.starts(newcomer)
            self.take_turns(holding[which % len(holding)], says_owned, 3)

    def take_turns(self, slow: str | None, says_owned: bool, rounds: int) -> None:
        """Heartbeats as they should be, but for a member that goes on reading what it is to give back."""
        for _ in range(rounds):
            for name in NAMES:
                if name != slow:
                    self.gives_back(name)
                self.beats(name, says_owned or name != slow, is_lost=False, is_quick=True)

    @rule(name=st.sampled_from(NAMES), is_lost=st.booleans())
    def leaves(self, name: str, is_lost: bool) -> None:
        client = self.clients[name]
        if client.is_running and client.epoch > 0:
            epoch = -1 if INSTANCES[name] is None else -2
            request = replace(self.request_of(client), member_epoch=epoch)
            self.sent.append(request)
            client.is_running = False
            client.start_over()
            if not is_lost:
                self.send(None, request)

    @rule(name=st.sampled_from(NAMES))
    def crashes(self, name: str) -> None:
        self.clients[name].is_running = False
        self.clients[name].start_over()

    @rule(back=st.integers(0, 30))
    @precondition(lambda self: self.comes_late)
    def an_old_request_arrives_again(self, back: int) -> None:
        if back < len(self.sent):
            self.send(None, self.sent[-1 - back])
            if self.turn:
                self.the_log_commits()

    @rule(which=st.integers(0, 30))
    def an_outdated_request_arrives(self, which: int) -> None:
        """On the best of networks too, from a connection nobody has any more: it is to change nothing."""
        outdated = [request for request in self.sent if self.is_outdated(request)]
        if outdated:
            self.send(None, outdated[which % len(outdated)])

    @rule(name=st.sampled_from(NAMES))
    @precondition(lambda self: self.comes_late)
    def its_joining_arrives_again(self, name: str) -> None:
        """The worst of late requests: it says that the member holds nothing."""
        member_id = self.clients[name].member_id
        joins = [request for request in self.sent if request.member_epoch == 0 and request.member_id == member_id]
        if joins:
            self.send(None, joins[-1])
            if self.turn:
                self.the_log_commits()

    @rule(name=st.sampled_from(NAMES), place=st.integers(0, 20))
    def commits(self, name: str, place: int) -> None:
        """What it believes to own, in the epoch it believes to be in."""
        client = self.clients[name]
        owned = sorted(places(client.owned))
        if not client.is_running or not owned or client.epoch <= 0:
            return
        topic_id, index = owned[place % len(owned)]
        offset = OffsetToCommit("orders", topic_id, index, 1, 0, "")
        answer = Answer(self, None, -1)
        step = self.shard.commit("g", (client.member_id, None, client.epoch), [offset], -1, answer, self.now)
        (code,) = step.replies[0][1]
        if code is ErrorCode.NONE:
            self.carry_out(step)

    # What else happens

    @rule(seconds=st.sampled_from([1, 5, 21, 46]))
    def time_passes(self, seconds: int) -> None:
        self.steady_ms += seconds * 1000
        self.carry_out(self.shard.tick("g", self.now))

    @rule()
    @precondition(lambda self: self.turn)
    def the_log_commits(self) -> None:
        turn, self.turn = self.turn, []
        self.commit(turn)

    @rule()
    @precondition(lambda self: self.turn)
    def the_log_refuses(self) -> None:
        turn, self.turn = self.turn, []
        for step in reversed(turn):
            if step.undo is not None:
                assert not step.undo(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for waiter, _ in step.replies:
                waiter.set_exception(PenstockError())
        if self.group is not None:
            self.shard.forget_if_vacant(self.group)

    @rule(written=st.integers(0, 3))
    def the_broker_crashes(self, written: int) -> None:
        """Nobody is answered; a part of what was on its way is in the log all the same."""
        for step in self.turn[:written]:
            self.log += [self.shard.encode(record) for record in step.records]
        for step in self.turn:
            for waiter, _ in step.replies:
                waiter.set_exception(PenstockError())
        self.turn = []
        self.shard = self.new_shard()

    @rule(name=st.sampled_from(["orders", "payments"]), partitions=st.integers(1, 6))
    def a_topic_grows(self, name: str, partitions: int) -> None:
        known = self.image.topics.get(name)
        if known is None or len(known.partitions) < partitions:
            self.put_topic(name, partitions)
            self.topics_changed()

    @rule()
    def a_topic_is_deleted(self) -> None:
        topic = self.image.topics.pop("payments", None)
        if topic is not None:
            del self.image.topics_by_id[topic.id]
            self.topics_changed()

    def topics_changed(self) -> None:
        self.shard.consumer.topics_changed()

    # What always holds

    @invariant()
    def a_partition_has_one_owner_at_most(self) -> None:
        group = self.group
        if group is None:
            return
        owners: dict[Place, str] = {}
        for member in group.facts.members.values():
            for held in (member.standing.assigned, member.standing.revoking):
                for place in places(held):
                    assert owners.setdefault(place, member.member_id) == member.member_id
            assert member.standing.epoch <= group.facts.target_epoch
        assert owners == group.facts.owners
        assert group.facts.target_epoch <= group.facts.epoch

    @invariant()
    def a_stale_commit_never_succeeds(self) -> None:
        group = self.group
        if group is None:
            return
        for client in self.clients.values():
            if not client.is_running or client.epoch <= 0:
                continue
            for place, by_epoch in self.grants.items():
                # Sent in any epoch in which it was told of the partition, and in the one it believes to be in.
                sent_in = {epoch for epoch, who in by_epoch.items() if who == client.identity}
                if place[1] in client.owned.get(place[0], ()):
                    sent_in.add(client.epoch)
                for epoch in sent_in:
                    if self.was_given_on(place, client.identity, epoch):
                        code = group.check_commit(client.member_id, epoch, [place])
                        assert code is not ErrorCode.NONE, "a stale commit would be taken"

    @invariant()
    def where_requests_come_in_time_no_two_members_read_the_same(self) -> None:
        group = self.group
        if group is None or self.comes_late:
            return
        readers: dict[Place, str] = {}
        for client in self.clients.values():
            member = group.facts.members.get(client.member_id)
            if not client.is_running or member is None:
                continue  # put out for its silence, and has not heard of it yet
            for place in places(client.owned):
                assert readers.setdefault(place, client.name) == client.name

    @invariant()
    def what_the_log_would_load_is_what_is_known(self) -> None:
        if not self.turn and self.group is not None and len(self.log) != self.loaded_length:
            self.loaded_length = len(self.log)
            loaded = self.new_shard().groups.get("g")
            assert isinstance(loaded, ConsumerGroup)
            for name in ("epoch", "target_epoch", "members", "target", "owners", "static_ids"):
                assert getattr(loaded.facts, name) == getattr(self.group.facts, name), name

    def teardown(self) -> None:
        """Left in peace, the group comes to rest, and everything is read by one member and by all alike."""
        running = [client for client in self.clients.values() if client.is_running]
        for _ in range(30):
            self.steady_ms += 5_000
            for client in running:
                if client.is_running:
                    client.owned = client.told
                    self.send(client, self.request_of(client))
            self.carry_out(self.shard.tick("g", self.now))
            turn, self.turn = self.turn, []
            self.commit(turn)
        running = [client for client in running if client.is_running]
        if not running:
            return
        group = self.group
        assert group is not None
        assert group.state is STABLE
        assert set(group.facts.members) == {client.member_id for client in running}
        held = [place for client in running for place in places(client.owned)]
        topics = self.image.topics.values()
        assert sorted(held) == sorted((topic.id, index) for topic in topics for index in range(len(topic.partitions)))
        counts = [sum(map(len, client.owned.values())) for client in running]
        assert max(counts) - min(counts) <= 1


TestConsumerGroup = GroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
