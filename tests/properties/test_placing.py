"""admin.placing: plans over any assignment, any set of brokers and racks."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.admin.failures import CommandFailed
from penstock.admin.placing import Assignment, Racks, balance, changes, copies, doubled_racks, evacuate
from penstock.model import TopicPartition

RACKS = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))


@st.composite
def clusters(draw: st.DrawFn, *, with_racks: bool = True) -> tuple[Assignment, dict[int, str | None]]:
    nodes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=7, unique=True))
    racks = {node: draw(RACKS) if with_racks else None for node in nodes}
    assignment: dict[TopicPartition, tuple[int, ...]] = {}
    for name in draw(st.lists(st.sampled_from(["orders", "bills", "clicks"]), max_size=3, unique=True)):
        for index in range(draw(st.integers(1, 12))):
            held = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=min(4, len(nodes)), unique=True))
            assignment[TopicPartition(name, index)] = tuple(held)
    return assignment, racks


def held(assignment: Assignment, racks: Racks) -> dict[int, int]:
    counts = Counter(node for replicas in assignment.values() for node in replicas)
    return {node: counts[node] for node in racks}


def led(assignment: Assignment, racks: Racks) -> dict[int, int]:
    counts = Counter(replicas[0] for replicas in assignment.values())
    return {node: counts[node] for node in racks}


def difference(counts: dict[int, int]) -> int:
    return max(counts.values()) - min(counts.values())


def leaving(racks: Racks, assignment: Assignment) -> set[int]:
    """As many brokers as can go, from the highest id down."""
    needed = max((len(replicas) for replicas in assignment.values()), default=1)
    return set(sorted(racks)[needed:])


@given(clusters())
def test_a_plan_keeps_the_number_of_replicas_and_puts_each_on_a_broker_of_its_own(cluster) -> None:
    before, racks = cluster
    for gone in (set(), leaving(racks, before)):
        for after in (evacuate(before, racks, gone), balance(before, racks, gone)):
            assert after.keys() == before.keys()
            for at, replicas in after.items():
                assert len(set(replicas)) == len(replicas) == len(before[at])
                assert not set(replicas) & gone
                assert set(replicas) <= racks.keys()


@given(clusters())
def test_draining_moves_nothing_but_what_the_leaving_brokers_hold(cluster) -> None:
    before, racks = cluster
    gone = leaving(racks, before)
    after = evacuate(before, racks, gone)
    assert copies(before, after) == sum(node in gone for replicas in before.values() for node in replicas)
    for at, replicas in after.items():
        stayed = [node for node in before[at] if node not in gone]
        assert set(stayed) <= set(replicas)
        # Who leads and stays goes on to lead.
        assert before[at][0] in gone or replicas[0] == before[at][0]


@given(clusters())
def test_balancing_never_lets_replicas_share_a_rack_that_did_not(cluster) -> None:
    before, racks = cluster
    for at, replicas in balance(before, racks).items():
        assert doubled_racks(replicas, racks) <= doubled_racks(before[at], racks)


@given(clusters())
def test_after_balancing_replicas_share_a_rack_only_where_every_rack_has_one(cluster) -> None:
    before, racks = cluster
    distinct = len({f"\0{node}" if rack is None else rack for node, rack in racks.items()})
    for replicas in balance(before, racks).values():
        assert doubled_racks(replicas, racks) == max(0, len(replicas) - distinct)


@given(clusters())
def test_brokers_of_one_rack_hold_equally_many_after_balancing(cluster) -> None:
    before, racks = cluster
    counts = held(balance(before, racks), racks)
    for rack in {rack for rack in racks.values() if rack is not None}:
        assert difference({node: counts[node] for node in racks if racks[node] == rack}) <= 1


@given(clusters(with_racks=False))
def test_without_racks_no_broker_holds_two_more_than_another_and_no_copy_is_made_in_vain(cluster) -> None:
    before, racks = cluster
    after = balance(before, racks)
    assert difference(held(after, racks)) <= 1
    average = sum(map(len, before.values())) // len(racks)
    assert copies(before, after) <= sum(max(0, count - average) for count in held(before, racks).values())


@given(clusters())
def test_no_change_of_order_could_make_leaders_more_even(cluster) -> None:
    """Nobody hands leadership to a broker that leads two fewer, directly: longer chains are for the next test."""
    before, racks = cluster
    after = balance(before, racks)
    leads = led(after, racks)
    for replicas in after.values():
        assert all(leads[replicas[0]] - leads[other] <= 1 for other in replicas)


def test_leaders_are_evened_along_a_chain_of_brokers() -> None:
    """Broker 1 shares nothing with 3, so 2 takes one from 1 and gives another to 3."""
    before = {
        TopicPartition("a", 0): (1, 2),
        TopicPartition("a", 1): (1, 2),
        TopicPartition("a", 2): (2, 3),
        TopicPartition("a", 3): (3, 2),
        TopicPartition("a", 4): (1, 4),
        TopicPartition("a", 5): (4, 1),
    }
    racks: Racks = {1: None, 2: None, 3: None, 4: None}
    after = balance(before, racks)
    assert difference(led(after, racks)) <= 1


@settings(max_examples=50)
@given(clusters())
def test_what_is_balanced_stays_as_it_is(cluster) -> None:
    before, racks = cluster
    after = balance(before, racks)
    assert changes(after, balance(after, racks)) == {}


def test_a_new_broker_gets_its_share_with_one_copy_for_each() -> None:
    before = {TopicPartition("orders", index): (1 + index % 3, 1 + (index + 1) % 3) for index in range(12)}
    racks: Racks = dict.fromkeys((1, 2, 3, 4))
    after = balance(before, racks)
    assert held(after, racks) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert led(after, racks) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert copies(before, after) == 6


def test_the_leaders_of_a_drained_broker_are_shared_out_among_the_others() -> None:
    before = {TopicPartition("orders", index): (1, 2, 3, 4) for index in range(12)}
    racks: Racks = dict.fromkeys((1, 2, 3, 4, 5))
    after = evacuate(before, racks, {1})
    assert led(after, racks) == {1: 0, 2: 3, 3: 3, 4: 3, 5: 3}


def test_a_broker_too_few_is_said_before_anything_moves() -> None:
    with pytest.raises(CommandFailed, match="orders-0 has 3 replicas, and only 2 brokers are left"):
        evacuate({TopicPartition("orders", 0): (1, 2, 3)}, dict.fromkeys((1, 2, 3)), {3})
