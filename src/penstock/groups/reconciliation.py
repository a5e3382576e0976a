"""Bringing one member from what it holds to its part of the target: first it gives back, then it is given.

Called by groups.consumer_group with each heartbeat of a member that is not there yet.
Invariants:
- A partition is given only when nobody else holds it or has yet to give it back.
- A member enters the target's epoch only when it holds nothing that the target takes from it.
- A member leaves its epoch with the first partition it has given back, so that it cannot commit it any more.
- A partition keeps the epoch it was given in for as long as the member holds it.
"""

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from penstock.errors import FencedMemberEpoch
from penstock.groups.assignors import Assignment
from penstock.groups.consumer_member import NOTHING_GIVEN, NOTHING_HELD, Held, MemberState, Standing

OwnerOf = Callable[[tuple[UUID, int]], str | None]


def reconcile(
    member_id: str,
    standing: Standing,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[UUID],
    owned: Assignment | None,
    owner_of: OwnerOf,
) -> Standing:
    """Where the member stands next. `owned`: what it says it holds; None if it does not say."""
    if standing.state is MemberState.UNKNOWN and owned != {}:
        raise FencedMemberEpoch("the member is in a state that this broker does not know and must join anew")
    epoch = standing.epoch
    if standing.state is MemberState.UNREVOKED_PARTITIONS:
        if _holds_any_of(standing.revoking, owned):
            return _give_up_unsubscribed(standing, subscribed)
        # Even if it has more to give back by now: in its old epoch it could still commit what is no longer its own.
        epoch += 1
    wanted = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in subscribed}
    kept, taken = _split(standing.assigned, wanted)
    if taken and _holds_any_of(taken, owned):
        return _moved(standing, epoch, MemberState.UNREVOKED_PARTITIONS, kept, taken)
    assigned = {topic_id: dict(partitions) for topic_id, partitions in kept.items()}
    is_waiting = False
    for topic_id, partitions in wanted.items():
        for partition in partitions - kept.get(topic_id, NOTHING_GIVEN).keys():
            # What it has yet to give back itself, and gets again, is in its hands already.
            if owner_of((topic_id, partition)) in (None, member_id):
                assigned.setdefault(topic_id, {})[partition] = target_epoch
            else:
                is_waiting = True
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(standing, target_epoch, state, assigned, NOTHING_HELD)


def _give_up_unsubscribed(standing: Standing, subscribed: Collection[UUID]) -> Standing:
    """While it gives back: topics it no longer subscribes to join what it has to give back."""
    wanted = {topic_id: frozenset(held) for topic_id, held in standing.assigned.items() if topic_id in subscribed}
    kept, taken = _split(standing.assigned, wanted)
    if not taken:
        return standing
    revoking = {topic_id: dict(partitions) for topic_id, partitions in standing.revoking.items()}
    for topic_id, partitions in taken.items():
        revoking.setdefault(topic_id, {}).update(partitions)
    return _moved(standing, standing.epoch, standing.state, kept, revoking)


def _split(held: Held, wanted: Assignment) -> tuple[dict[UUID, Mapping[int, int]], dict[UUID, Mapping[int, int]]]:
    """What stays with the member, and what goes."""
    kept: dict[UUID, Mapping[int, int]] = {}
    taken: dict[UUID, Mapping[int, int]] = {}
    for topic_id, partitions in held.items():
        stays = wanted.get(topic_id, frozenset())
        if stay := {partition: epoch for partition, epoch in partitions.items() if partition in stays}:
            kept[topic_id] = stay
        if go := {partition: epoch for partition, epoch in partitions.items() if partition not in stays}:
            taken[topic_id] = go
    return kept, taken


def _holds_any_of(held: Held, owned: Assignment | None) -> bool:
    if owned is None:
        return True
    return any(partitions & held.get(topic_id, NOTHING_GIVEN).keys() for topic_id, partitions in owned.items())


def _moved(standing: Standing, epoch: int, state: MemberState, assigned: Held, revoking: Held) -> Standing:
    previous = standing.previous_epoch if epoch == standing.epoch else standing.epoch
    return Standing(epoch, previous, state, assigned, revoking)
