"""Moving a partition to other brokers: begun, taken back, finished. Rules from one state to the next.

Called by partition_changes (what clients ask for) and supervisor (which finishes what is ready, KIP-455).
While a move runs, `replicas` holds the new ones first and the old ones after them; `adding` and `removing` say which
are which. A move is done when all that are added are in sync; only then do those that are removed let go.
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import replace

from penstock.cluster import elections
from penstock.cluster.image import NO_LEADER, PartitionState
from penstock.errors import InvalidReplicaAssignment, NoReassignmentInProgress


def is_running(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def check_target(state: PartitionState, target: Sequence[int], registered: Set[int]) -> None:
    """Raises InvalidReplicaAssignment. A replica the partition has already may be away just now."""
    if not target:
        raise InvalidReplicaAssignment("a partition needs at least one replica")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"replicas {list(target)} name a broker twice")
    if unknown := [node for node in target if node not in registered and node not in original(state)]:
        raise InvalidReplicaAssignment(f"no broker {unknown[0]} is registered")


def begun(state: PartitionState, target: Sequence[int], live: Set[int], min_insync: int) -> PartitionState | None:
    """On the way to these replicas, or there at once where nothing has to be copied; None where it is there already.

    A move that was running is replaced: what only it added is let go again.
    """
    before = original(state)
    adding = tuple(node for node in target if node not in before)
    removing = tuple(node for node in before if node not in target)
    kept = {*target, *before}
    moving = _with_replicas(state, (*target, *removing), kept, live, min_insync)
    moving = replace(moving, adding=adding, removing=removing)
    if replace(moving, partition_epoch=state.partition_epoch) == state:
        return None
    done = finished(moving, live, min_insync)
    if done is None:
        return moving
    # Both are one change, so one step of the epochs.
    epoch = state.leader_epoch + (done.leader_epoch != state.leader_epoch)
    return replace(done, partition_epoch=moving.partition_epoch, leader_epoch=epoch)


def cancelled(state: PartitionState, live: Set[int], min_insync: int) -> PartitionState:
    """Back to the replicas it had. Raises where it would lose the last one in sync."""
    if not is_running(state):
        raise NoReassignmentInProgress("no reassignment of this partition is running")
    kept = original(state)
    reverted = _with_replicas(state, kept, set(kept), live, min_insync)
    return replace(reverted, adding=(), removing=())


def finished(state: PartitionState, live: Set[int], min_insync: int) -> PartitionState | None:
    """The move's end, where it can end now: all that are added are in sync, and enough of those that stay."""
    if not is_running(state) or not set(state.adding) <= set(state.isr):
        return None
    kept = tuple(node for node in state.replicas if node not in state.removing)
    staying = [node for node in state.isr if node in kept]
    # A copy that counts is let go only when enough others are left; else this waits for one more to catch up.
    is_enough = len(staying) >= elections.effective_min_insync(min_insync, kept) or len(staying) == len(state.isr)
    if not staying or not is_enough:
        return None
    if state.leader not in kept and not any(node in live for node in staying):
        return None
    shrunk = _with_replicas(state, kept, set(kept), live, min_insync)
    return replace(shrunk, adding=(), removing=())


def original(state: PartitionState) -> tuple[int, ...]:
    """The replicas before the move that is running, if one is."""
    return tuple(node for node in state.replicas if node not in state.adding)


def _with_replicas(
    state: PartitionState, replicas: Sequence[int], kept: Collection[int], live: Set[int], min_insync: int
) -> PartitionState:
    """The state with these replicas only; a leader that is none of them hands over to one in sync."""
    isr = tuple(node for node in replicas if node in state.isr and node in kept)
    elr = tuple(node for node in replicas if node in state.elr and node in kept)
    if state.isr and not isr:
        raise InvalidReplicaAssignment("none of these replicas is in sync; wait, or elect a leader unclean first")
    if len(isr) >= elections.effective_min_insync(min_insync, replicas):
        elr = ()
    narrowed = replace(state, replicas=tuple(replicas), isr=isr, elr=elr, partition_epoch=state.partition_epoch + 1)
    if state.leader in kept or state.leader == NO_LEADER:
        return narrowed
    heirs = [node for node in isr if node in live]
    if not heirs:
        raise InvalidReplicaAssignment("the leader is to go, and none that stays is there to take over")
    return replace(narrowed, leader=heirs[0], leader_epoch=state.leader_epoch + 1)
