"""Plans against sums done by hand, and what must hold for any of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capacity.measured import of_this_package
from penstock.capacity.plan import COPIES, FRAMING_BYTES, Demand, Machines, Plan, cores_of, load_of, plan

DAY_S = 86_400
# Of round numbers, so that sums can be done by hand.
NUMBERS = replace(
    of_this_package().numbers,
    write_bytes_per_s=100e6,
    write_bytes_per_s_replicated=50e6 / 0.6,
    read_bytes_per_s=1e9,
    write_cpu_s_per_gb=2,
    replicated_cpu_s_per_gb=12,
    replicated_copies=3,
    read_cpu_s_per_gb=1,
    request_cpu_us=30,
    synced_request_cpu_us=60,
    start_s=1,
    start_after_kill_s_per_partition=0.001,
)
PLENTY = Machines(disk_bytes=1e18, network_bytes_per_s=1e15, restart_s=1e6)


def figure(made: Plan, name: str) -> float:
    return next(one.value for one in made.figures if one.name == name)


def need(made: Plan, limit: str) -> int:
    return next(one.brokers for one in made.needs if one.limit == limit)


def test_a_billion_messages_a_day_for_a_week_in_three_copies_are_21_terabytes() -> None:
    demand = Demand(1e9 / DAY_S, 1000 - FRAMING_BYTES, 7 * DAY_S, 3, peak=1)
    made = plan(demand, Machines(disk_bytes=1e12, spare=0), NUMBERS)
    assert figure(made, "storage") == pytest.approx(21e12)
    assert figure(made, "disk") == pytest.approx(30e12)
    assert (made.brokers, made.limited_by) == (30, "disk")


def test_500_megabytes_a_second_at_50_a_broker_in_three_copies_are_30_brokers_and_50_partitions() -> None:
    demand = Demand(500e3, 1000 - FRAMING_BYTES, DAY_S, 3, peak=1, consumer_bytes_per_s=9.9e6)
    made = plan(demand, replace(PLENTY, spare=0), NUMBERS)
    assert need(made, "writing") == 30
    assert (made.brokers, made.limited_by) == (30, "writing")
    assert figure(made, "consumers") == 50
    assert made.partitions == 60  # 50, and the same for each of 30 brokers
    assert plan(demand, PLENTY, NUMBERS).brokers == 31


def test_network_counts_copies_in_and_copies_and_groups_out() -> None:
    demand = Demand(1000, 10_000 - FRAMING_BYTES, DAY_S, 3, groups=5, peak=2, compression=2)
    made = plan(demand, replace(PLENTY, network_bytes_per_s=20e6), NUMBERS)
    assert figure(made, "bytes in") == pytest.approx(10e6)
    assert figure(made, "network in") == pytest.approx(30e6)
    assert figure(made, "network out") == pytest.approx(70e6)
    assert need(made, "network") == 5  # 70 MB/s over 14 MB/s


def test_cpu_is_that_of_batches_and_of_bytes_written_copied_and_read() -> None:
    one_copy = Demand(1e6, 1000 - FRAMING_BYTES, DAY_S, 1, groups=2, peak=1, batch_bytes=1e5)
    # 1 GB/s in 10,000 batches: written with fsync and 2 s/GB, read twice with 1 s/GB.
    assert cores_of(one_copy, load_of(one_copy), NUMBERS) == pytest.approx(0.6 + 2 + 2 * (0.6 + 1))
    three = replace(one_copy, replication_factor=3)
    # Two more copies of (12 - 2) / 2 s/GB and two requests of 30 µs for each batch.
    assert cores_of(three, load_of(three), NUMBERS) == pytest.approx(0.3 + 2 + 2 * (0.6 + 5) + 2 * (0.3 + 1))
    large = replace(one_copy, messages_per_s=10, batch_bytes=1)
    assert load_of(large).peak_batches_per_s == 10  # a batch holds at least one message


def test_growth_is_compounded_and_partitions_are_limited_by_how_soon_a_killed_broker_is_back() -> None:
    demand = Demand(1000, 100, DAY_S, 3, peak=1, growth_per_year=0.5, years=2, partitions_min=9000)
    made = plan(demand, replace(PLENTY, restart_s=10), NUMBERS)
    assert figure(made, "messages") == pytest.approx(2250)
    assert need(made, "partitions") == 3
    made = plan(replace(demand, partitions_min=9001), replace(PLENTY, restart_s=10), NUMBERS)
    assert (need(made, "partitions"), made.limited_by) == (4, "partitions")


def test_a_load_that_fits_anywhere_is_limited_by_its_copies_alone() -> None:
    made = plan(Demand(1, 100, DAY_S, 1), Machines(), NUMBERS)
    assert (made.brokers, made.partitions, made.limited_by) == (1, 1, COPIES)
    assert plan(Demand(1, 100, DAY_S, 3, groups=0), Machines(), NUMBERS).brokers == 4


DEMANDS = st.builds(
    Demand,
    messages_per_s=st.floats(0.001, 1e9),
    message_bytes=st.floats(1, 1e8),
    retention_s=st.floats(1, 1e9),
    replication_factor=st.integers(1, 10),
    groups=st.integers(0, 100),
    peak=st.floats(1, 100),
    compression=st.floats(0.5, 100),
)


@given(DEMANDS, st.floats(1, 1000))
def test_more_of_anything_never_needs_fewer_brokers(demand: Demand, times: float) -> None:
    before = plan(demand, Machines(), NUMBERS)
    more = (
        replace(demand, messages_per_s=demand.messages_per_s * times),
        replace(demand, retention_s=demand.retention_s * times),
        replace(demand, peak=demand.peak * times),
        replace(demand, groups=demand.groups + 1),
    )
    for each in more:
        assert plan(each, Machines(), NUMBERS).brokers >= before.brokers
    assert before.brokers >= demand.replication_factor
    assert before.partitions % before.brokers == 0
    assert all(one.how and one.value >= 0 for one in before.figures)
