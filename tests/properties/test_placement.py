"""Replica placement over any set of brokers and racks."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.placement import Candidate, place
from penstock.errors import InvalidReplicationFactor

RACKS = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))
BROKERS = st.lists(
    st.builds(Candidate, st.integers(0, 20), RACKS), min_size=1, max_size=9, unique_by=lambda c: c.node_id
)


@st.composite
def placements(draw: st.DrawFn) -> tuple[list[Candidate], int, list[tuple[int, ...]]]:
    brokers = draw(BROKERS)
    factor = draw(st.integers(1, len(brokers)))
    return brokers, factor, place(brokers, draw(st.integers(0, 40)), factor, draw(st.integers(0, 100)))


@given(placements())
def test_every_partition_has_its_replicas_on_different_brokers(placed):
    brokers, factor, assignment = placed
    for replicas in assignment:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= {broker.node_id for broker in brokers}


@given(placements())
def test_no_broker_leads_more_than_one_partition_above_another(placed):
    brokers, _, assignment = placed
    leads = Counter({broker.node_id: 0 for broker in brokers})
    leads.update(replicas[0] for replicas in assignment)
    assert max(leads.values()) - min(leads.values()) <= 1


@given(placements())
def test_a_rack_gets_a_second_replica_only_when_every_rack_has_one_or_is_full(placed):
    brokers, _, assignment = placed
    racks = {broker.node_id: broker.rack or f"own rack of {broker.node_id}" for broker in brokers}
    sizes = Counter(racks.values())
    for replicas in assignment:
        uses = Counter(dict.fromkeys(sizes, 0))
        uses.update(racks[node] for node in replicas)
        for rack, used in uses.items():
            assert all(other >= used - 1 or other == sizes[name] for name, other in uses.items()), (rack, uses)


@given(st.integers(2, 8), st.integers(1, 3), st.integers(0, 50), st.integers(1, 60))
def test_without_racks_no_broker_holds_more_than_two_replicas_above_another(count, factor, start, partitions):
    factor = min(factor, count)
    assignment = place([Candidate(node) for node in range(count)], partitions, factor, start)
    held = Counter(dict.fromkeys(range(count), 0))
    held.update(node for replicas in assignment for node in replicas)
    assert max(held.values()) - min(held.values()) <= 2


@given(BROKERS, st.integers(-2, 12))
def test_more_replicas_than_brokers_or_fewer_than_one_are_refused(brokers, factor):
    if 1 <= factor <= len(brokers):
        assert len(place(brokers, 1, factor)) == 1
    else:
        with pytest.raises(InvalidReplicationFactor):
            place(brokers, 1, factor)
