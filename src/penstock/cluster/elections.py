"""Who leads a partition and who is in sync: the rules, from one state to the next.

Called by partition_changes (a broker about itself, or for a client) and supervisor (the controller, about everybody).
Plain functions: nothing here waits or writes. A rule gives the state that should follow, or None where none should.
Invariants, which tests/properties/test_elections.py holds against every order of events:
- A new leader has a new leader epoch; every change has a new partition epoch.
- Whoever is in `isr` or `elr` holds all that is committed. Only a broker that lost data is taken out of both.
- Without leave for an unclean election nobody else is ever made leader.

For this the leader keeps a law of its own: it commits nothing while fewer than min.insync are in sync, nor while `elr`
is not empty. Whoever leaves the ISR below that line goes into `elr` and stays good for a leader (KIP-966).
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import replace

from penstock.cluster.image import NO_LEADER, PartitionState


def effective_min_insync(min_insync: int, replicas: Collection[int]) -> int:
    """A partition of two replicas cannot have three in sync; what it has must do."""
    return min(min_insync, len(replicas))


def first_state(replicas: Sequence[int], live: Set[int]) -> PartitionState:
    """A new partition: nobody has anything, so all who are there are in sync."""
    isr = tuple(node for node in replicas if node in live)
    return PartitionState(leader=isr[0] if isr else NO_LEADER, leader_epoch=0, isr=isr, replicas=tuple(replicas))


def with_isr(state: PartitionState, isr: Collection[int], min_insync: int) -> PartitionState:
    """The same leader with these in sync, in the order of the replicas."""
    assert state.leader == NO_LEADER or state.leader in isr, (state, isr)
    return _stepped(_in_sync(state, isr, min_insync))


def without(state: PartitionState, gone: Set[int], min_insync: int) -> PartitionState | None:
    """Take brokers that are away out of the ISR; the leader stays, and so does the last one in sync."""
    isr = [node for node in state.isr if node not in gone or node == state.leader]
    if not isr or len(isr) == len(state.isr):
        return None
    return _stepped(_in_sync(state, isr, min_insync))


def elect_leader(
    state: PartitionState, live: Set[int], *, is_unclean_allowed: bool, min_insync: int
) -> PartitionState | None:
    """A leader among the live, in a new epoch: the best there is, which may be the one it has."""
    in_sync = [node for node in preferred_order(state) if node in state.isr and node in live]
    if in_sync:
        return _led_by(in_sync[0], _in_sync(state, in_sync, min_insync))
    if eligible := [node for node in preferred_order(state) if node in state.elr and node in live]:
        return _led_by(eligible[0], _in_sync(state, eligible[:1], min_insync))
    if is_unclean_allowed and (anybody := [node for node in preferred_order(state) if node in live]):
        # What the others have may differ from now on, so none of them is good for a clean election any more.
        return _led_by(anybody[0], replace(state, isr=(anybody[0],), elr=()))
    return None


def lead_by(state: PartitionState, node: int) -> PartitionState:
    """Hand the leadership to one who is in sync; nobody else is touched."""
    assert node in state.isr, (node, state)
    return _led_by(node, state)


def offline(state: PartitionState) -> PartitionState | None:
    """Nobody who may lead is there: it has no leader, and who was in sync stays written down."""
    return None if state.leader == NO_LEADER else _led_by(NO_LEADER, state)


def hand_over(state: PartitionState, node: int, live: Set[int], min_insync: int) -> PartitionState | None:
    """A broker about to stop gives up its place, or None if nobody can take it. It keeps what is committed."""
    if node not in state.isr:
        return None
    if state.leader != node:
        return without(state, {node}, min_insync)
    others = [other for other in preferred_order(state) if other in state.isr and other in live and other != node]
    if not others:
        return None
    return _led_by(others[0], _in_sync(state, [other for other in state.isr if other != node], min_insync))


def lost_data(state: PartitionState, node: int, *, may_stay: bool) -> PartitionState | None:
    """A broker comes back and may lack what it had: it must not be elected on the strength of its former life.

    Where it is the only one left who could lead, nobody has more than it has; if its log is whole (`may_stay`) it goes
    on, in a new epoch, by which readers notice that the end of the log may have changed (KIP-320).
    """
    members = {*state.isr, *state.elr}
    if may_stay and members == {node}:
        return _led_by(node, state) if state.leader == node else None
    if node not in members and state.leader != node:
        return None
    left = replace(
        state,
        isr=tuple(other for other in state.isr if other != node),
        elr=tuple(other for other in state.elr if other != node),
    )
    return _led_by(NO_LEADER, left) if state.leader == node else _stepped(left)


def repaired(
    state: PartitionState, registered: Set[int], live: Set[int], *, is_unclean_allowed: bool, min_insync: int
) -> PartitionState | None:
    """What the controller makes of a partition, given who is there; None where it is as it should be.

    A broker that is stopping is registered but not live: it leads on only where nobody else can.
    """
    if state.leader not in live:
        elected = elect_leader(state, live, is_unclean_allowed=is_unclean_allowed, min_insync=min_insync)
        if elected is not None:
            return elected
        if state.leader not in registered:
            return offline(state)
    gone = {node for node in state.isr if node not in registered}
    if gone and (shrunk := without(state, gone, min_insync)) is not None:
        return shrunk
    if state.elr and len(state.isr) >= effective_min_insync(min_insync, state.replicas):
        # The topic's min.insync has been lowered; until this is written its leader commits nothing.
        return _stepped(_in_sync(state, state.isr, min_insync))
    return None


def preferred_order(state: PartitionState) -> list[int]:
    """Those who may lead, best first: a replica on its way out only when no other is there."""
    return sorted(state.replicas, key=lambda node: node in state.removing)


def _in_sync(state: PartitionState, isr: Collection[int], min_insync: int) -> PartitionState:
    """These in sync; who leaves is eligible still while too few are in sync for anything to be committed."""
    ordered = tuple(node for node in state.replicas if node in isr)
    elr: tuple[int, ...] = ()
    if len(ordered) < effective_min_insync(min_insync, state.replicas):
        former = {*state.isr, *state.elr}
        elr = tuple(node for node in state.replicas if node in former and node not in isr)
    return replace(state, isr=ordered, elr=elr)


def _led_by(leader: int, state: PartitionState) -> PartitionState:
    return _stepped(replace(state, leader=leader, leader_epoch=state.leader_epoch + 1))


def _stepped(state: PartitionState) -> PartitionState:
    return replace(state, partition_epoch=state.partition_epoch + 1)
