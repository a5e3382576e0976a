"""Who leads and who is in sync, under any order of deaths, returns, moves and changes of min.insync.

The model keeps what really counts: how much each replica's disk holds, and how much was ever committed. Replicas of a
partition hold a prefix of what its leader wrote, so a number stands for a log, as long as no election was unclean.
"""

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import elections, reassignment
from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.cluster.partition_writes import check_step
from penstock.errors import InvalidReplicaAssignment

NODES = range(1, 6)


@dataclass
class World:
    state: PartitionState
    min_insync: int
    live: set[int] = field(default_factory=lambda: set(NODES))
    stopping: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    committed: int = 0
    leaders: dict[int, int] = field(default_factory=dict)

    @property
    def may_lead(self) -> set[int]:
        return self.live - self.stopping

    def take(self, new: PartitionState | None) -> None:
        if new is None:
            return
        check_step(self.state, new)
        old, self.state = self.state, new
        if new.leader != NO_LEADER:
            assert self.leaders.setdefault(new.leader_epoch, new.leader) == new.leader, "two leaders in one epoch"
            if new.leader != old.leader:
                assert new.leader in {*old.isr, *old.elr}, "elected from outside"
                assert self.held[new.leader] >= self.committed, "a leader without what is committed"
                # What others have beyond it is not what it will write there.
                for node in NODES:
                    self.held[node] = min(self.held[node], self.held[new.leader])

    def check(self) -> None:
        state = self.state
        for node in {*state.isr, *state.elr}:
            assert self.held[node] >= self.committed, f"{node} counts as holding {self.committed}: {self}"

    # What leader and followers do

    def write(self, _: int = 0) -> None:
        if self.state.leader in self.live:
            self.held[self.state.leader] += 1

    def copy(self, node: int) -> None:
        if self.state.leader in self.live and node in self.live and node in self.state.replicas:
            self.held[node] = self.held[self.state.leader]

    def commit(self) -> None:
        """The leader's law, as replication.progress has it."""
        state = self.state
        enough = elections.effective_min_insync(self.min_insync, state.replicas)
        if state.leader in self.live and len(state.isr) >= enough and not state.elr:
            self.committed = max(self.committed, min(self.held[node] for node in state.isr))

    def grow_isr(self, node: int) -> None:
        state = self.state
        is_eligible = node in self.may_lead and node in state.replicas and node not in state.isr
        if state.leader in self.live and is_eligible and self.held[node] >= self.held[state.leader]:
            self.take(elections.with_isr(state, (*state.isr, node), self.min_insync))

    def shrink_isr(self, node: int) -> None:
        if self.state.leader in self.live and node in self.state.isr and node != self.state.leader:
            isr = [other for other in self.state.isr if other != node]
            self.take(elections.with_isr(self.state, isr, self.min_insync))

    # What brokers and the controller do

    def die(self, node: int) -> None:
        self.live.discard(node)
        self.stopping.discard(node)

    def come_back(self, node: int) -> None:
        """After a clean stop or a pause: all is there."""
        self.live.add(node)

    def come_back_with_less(self, node: int) -> None:
        if node in self.live:
            return
        self.take(elections.lost_data(self.state, node, may_stay=False))
        self.held[node] = 0
        self.live.add(node)

    def lose_disk(self, node: int) -> None:
        self.die(node)
        self.come_back_with_less(node)

    def lose_power(self, node: int) -> None:
        """It leaves what others can lead, and stays where it is alone: there nobody has more than it has."""
        self.die(node)
        is_alone = {*self.state.isr, *self.state.elr} == {node}
        self.take(elections.lost_data(self.state, node, may_stay=True))
        self.held[node] = self.held[node] if is_alone else 0
        self.live.add(node)

    def stop(self, node: int) -> None:
        if node in self.live:
            self.stopping.add(node)
            self.take(elections.hand_over(self.state, node, self.may_lead, self.min_insync))

    def supervise(self, _: int) -> None:
        self.take(
            elections.repaired(
                self.state, self.live, self.may_lead, is_unclean_allowed=False, min_insync=self.min_insync
            )
        )

    def prefer(self, _: int) -> None:
        preferred = elections.preferred_order(self.state)[0]
        if preferred in self.state.isr and preferred in self.may_lead and self.state.leader != preferred:
            self.take(elections.lead_by(self.state, preferred))

    def set_min_insync(self, value: int) -> None:
        self.min_insync = value

    def reassign(self, target: tuple[int, ...]) -> None:
        try:
            reassignment.check_target(self.state, target, self.live)
            before = reassignment.original(self.state)
            self.take(reassignment.begun(self.state, target, self.may_lead, self.min_insync))
            self.check_move(before)
        except InvalidReplicaAssignment:
            return

    def check_move(self, before: tuple[int, ...]) -> None:
        if not reassignment.is_running(self.state):
            assert set(self.state.replicas) <= {*before, *self.state.isr}, "ended before the new ones had all"

    def cancel(self, _: int) -> None:
        if reassignment.is_running(self.state):
            try:
                self.take(reassignment.cancelled(self.state, self.may_lead, self.min_insync))
            except InvalidReplicaAssignment:
                return

    def finish(self, _: int) -> None:
        before = reassignment.original(self.state)
        self.take(reassignment.finished(self.state, self.may_lead, self.min_insync))
        self.check_move(before)


ORDINARY = ["copy", "grow_isr", "grow_isr", "shrink_isr", "supervise"]
FAULTS = ["die", "come_back", "come_back_with_less", "lose_disk", "lose_power", "stop", "supervise"]
MOVES = ["prefer", "cancel", "finish"]
TARGETS = st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True).map(tuple)
# Mostly the same three, so that what happens to one matters to the others.
REPLICAS = st.one_of(st.just((1, 2, 3)), st.just((1, 2, 3)), TARGETS)
MIN_INSYNC = st.sampled_from([1, 2, 2, 2, 3])
A_NODE = st.sampled_from([1, 2, 3, 1, 2, 3, 4, 5])
STEPS = st.one_of(
    st.just(("produce", 0)),
    st.just(("produce", 0)),
    st.just(("write", 0)),
    st.tuples(st.sampled_from(ORDINARY), A_NODE),
    st.tuples(st.sampled_from(FAULTS), A_NODE),
    st.one_of(
        st.tuples(st.just("set_min_insync"), MIN_INSYNC),
        st.tuples(st.just("reassign"), REPLICAS),
        st.tuples(st.sampled_from(MOVES), A_NODE),
    ),
)


@settings(max_examples=600, deadline=None)
@given(REPLICAS, MIN_INSYNC, st.lists(STEPS, min_size=10, max_size=40))
def test_whoever_is_in_sync_or_eligible_holds_all_that_is_committed(replicas, min_insync, steps):
    world = World(elections.first_state(replicas, frozenset(NODES)), min_insync)
    world.leaders[0] = world.state.leader
    for act, argument in steps:
        if act == "produce":
            world.write()
            for node in world.state.isr:
                world.copy(node)
        else:
            getattr(world, act)(argument)
        world.commit()
        world.check()


@settings(max_examples=200, deadline=None)
@given(REPLICAS, MIN_INSYNC, st.lists(STEPS, max_size=40))
def test_when_all_are_back_and_the_controller_looks_there_is_a_leader_and_the_move_ends(replicas, min_insync, steps):
    world = World(elections.first_state(replicas, frozenset(NODES)), min_insync)
    world.leaders[0] = world.state.leader
    for act, argument in steps:
        # One that lost its disk may have been the last: then only an operator can help.
        if act not in ("write", "produce", "come_back_with_less", "lose_disk"):
            getattr(world, act)(argument)
    world.live, world.stopping = set(NODES), set()
    for _ in range(20):
        world.supervise(0)
        for node in NODES:
            world.copy(node)
            world.grow_isr(node)
        world.finish(0)
    state = world.state
    assert state.leader in state.replicas
    assert set(state.isr) == set(state.replicas)
    assert not state.elr
    assert not reassignment.is_running(state)


@settings(max_examples=300, deadline=None)
@given(REPLICAS, st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from([1, 2])), st.integers(1, 3), st.booleans())
def test_an_election_takes_the_best_there_is(replicas, live, isr, min_insync, is_unclean_allowed):
    isr_there = tuple(node for node in replicas if node in isr)
    elr = tuple(node for node in replicas if node not in isr_there)[:1]
    state = PartitionState(NO_LEADER, 4, isr_there, replicas, 7, elr)
    elected = elections.elect_leader(state, live, is_unclean_allowed=is_unclean_allowed, min_insync=min_insync)
    in_sync = [node for node in replicas if node in isr_there and node in live]
    eligible = [node for node in elr if node in live]
    anybody = [node for node in replicas if node in live]
    if in_sync:
        assert elected is not None
        assert (elected.leader, list(elected.isr)) == (in_sync[0], in_sync)
    elif eligible:
        assert elected is not None
        assert (elected.leader, elected.isr) == (eligible[0], (eligible[0],))
    elif anybody and is_unclean_allowed:
        assert elected == replace(
            state, leader=anybody[0], isr=(anybody[0],), elr=(), leader_epoch=5, partition_epoch=8
        )
    else:
        assert elected is None
    if elected is not None:
        check_step(state, elected)


@settings(deadline=None)
@given(TARGETS, TARGETS, TARGETS)
def test_a_move_taken_back_leaves_the_replicas_it_found(replicas, target, second):
    state = elections.first_state(replicas, frozenset(NODES))
    for wanted in (target, second):
        begun = reassignment.begun(state, wanted, frozenset(NODES), 1)
        state = begun or state
        if not reassignment.is_running(state):
            return
        assert state.replicas[: len(wanted)] == wanted
        assert set(reassignment.original(state)) == set(replicas)
    back = reassignment.cancelled(state, frozenset(NODES), 1)
    assert set(back.replicas) == set(back.isr) == set(replicas)
    assert not reassignment.is_running(back)
