"""Metrics: what is counted is what the page shows, in the form Prometheus reads, and never without bound."""

import os
import re
from collections.abc import Iterator

import pytest

from penstock.metrics import BrokerMetrics, Counter, Family, Histogram, Registry
from penstock.metrics import registry as registry_module
from penstock.metrics.process import cpu_seconds, open_files, resident_bytes


class HandClock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def metrics(clock: HandClock) -> BrokerMetrics:
    return BrokerMetrics(clock)


def samples(page: str) -> dict[str, float]:
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if not line.startswith("#")
    }


def test_a_counter_shows_what_was_added():
    registry = Registry()
    counter = registry.counter("x_total", "Things.")
    counter.value += 2
    counter.value += 3
    assert "# HELP x_total Things.\n# TYPE x_total counter\nx_total 5\n" in registry.render()


def test_a_bucket_counts_everything_up_to_its_bound_and_the_bound_itself():
    registry = Registry()
    histogram = registry.histogram("x_ms", "Times.", [1, 5, 10])
    for value in (0, 1, 1.5, 5, 11):
        histogram.observe(value)
    assert (
        "# TYPE x_ms histogram\n"
        'x_ms_bucket{le="1"} 2\n'
        'x_ms_bucket{le="5"} 4\n'
        'x_ms_bucket{le="10"} 4\n'
        'x_ms_bucket{le="+Inf"} 5\n'
        "x_ms_sum 18.5\n"
        "x_ms_count 5\n"
    ) in registry.render()


def test_bounds_out_of_order_are_a_bug():
    with pytest.raises(AssertionError):
        Histogram([5, 1])


def test_labels_and_help_are_escaped():
    registry = Registry()
    registry.counters("x_total", "A \\ and\na line.", "topic").child('a"b\\c\nd').value += 1
    page = registry.render()
    assert "# HELP x_total A \\\\ and\\na line.\n" in page
    assert 'x_total{topic="a\\"b\\\\c\\nd"} 1\n' in page


def test_a_family_of_histograms_keeps_its_labels_beside_the_bound():
    registry = Registry()
    registry.histograms("x_ms", "Times.", [1], "api").child("Fetch").observe(0)
    page = registry.render()
    assert 'x_ms_bucket{api="Fetch",le="1"} 1\n' in page
    assert 'x_ms_sum{api="Fetch"} 0\n' in page
    assert "# TYPE x_ms histogram\n" in page


def test_a_family_gives_the_same_child_for_the_same_name():
    family = Family(Counter, ("topic",), 10)
    assert family.child("a") is family.child("a")
    assert family.child("a") is not family.child("b")


def test_names_past_the_limit_share_one_child():
    family = Family(Counter, ("topic",), 2)
    for name in ("a", "b", "c", "d", "c"):
        family.child(name).value += 1
    assert {labels: child.value for labels, child in family.children()} == {("a",): 1, ("b",): 1, ("_other",): 3}


def test_a_removed_name_leaves_the_page_and_its_count_stays_in_the_sum():
    family = Family(Counter, ("topic",), 2)
    family.child("a").value += 5
    family.remove("a")
    family.remove("never was")
    assert {labels: child.value for labels, child in family.children()} == {("_other",): 5}
    family.child("a").value += 1
    assert sum(child.value for _, child in family.children()) == 6


def test_a_removed_histogram_is_added_to_the_rest():
    family = Family(lambda: Histogram([1]), ("api",), 2)
    family.child("a").observe(0.5)
    family.child("b").observe(7)
    family.remove("a")
    family.remove("b")
    ((labels, rest),) = family.children()
    assert (labels, rest.counts, rest.sum) == (("_other",), [1, 1], 7.5)


def test_the_wrong_number_of_labels_is_a_bug():
    with pytest.raises(AssertionError):
        Family(Counter, ("topic",), 2).child("a", "b")


def test_gauges_are_read_when_the_page_is_and_not_shown_before_somebody_knows_them():
    registry = Registry()
    plain = registry.gauge("x", "One.")
    rows = registry.gauges("y", "Many.", "topic", "partition")
    assert "x" not in samples(registry.render())
    plain.read = lambda: 1.5
    rows.read = lambda: [(("a", "0"), 3), (("a", "1"), float("inf"))]
    page = samples(registry.render())
    assert (page["x"], page['y{topic="a",partition="0"}'], page['y{topic="a",partition="1"}']) == (1.5, 3, float("inf"))


def test_a_gauge_that_fails_leaves_the_rest_of_the_page():
    registry = Registry()

    def broken() -> float:
        raise OSError("the disk is gone")

    registry.gauge("x", "Broken.", broken)
    registry.gauge("y", "Whole.", lambda: 1)
    assert samples(registry.render())["y"] == 1
    assert samples(registry.render())["mq_metric_read_errors_total"] == 1


def test_more_rows_than_the_page_holds_are_left_off_and_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_module, "ROWS_MAX", 3)
    registry = Registry()

    def rows() -> Iterator[tuple[tuple[str], float]]:
        for number in range(10):
            yield (str(number),), number

    registry.gauges("x", "Many.", "n", read=rows)
    assert len([name for name in samples(registry.render()) if name.startswith("x{")]) == 3
    assert samples(registry.render())["mq_metric_rows_dropped_total"] == 7


def test_a_long_page_comes_in_pieces_that_are_the_page_together(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(registry_module, "PIECE_LINES", 10)
    registry = Registry()
    live = {str(number): number for number in range(95)}
    registry.gauges("x", "Many.", "n", read=lambda: (((name,), value) for name, value in live.items()))
    pieces: list[str] = []
    for piece in registry.parts():
        # Others run in between, and change what is being shown.
        live[f"new-{len(pieces)}"] = 0
        pieces.append(piece)
    assert max(piece.count("\n") for piece in pieces) <= 11
    shown = [name for name in samples("".join(pieces)) if name.startswith("x{")]
    assert shown[:95] == [f'x{{n="{number}"}}' for number in range(95)]
    assert "".join(pieces).count("# TYPE x gauge") == 1


def test_two_metrics_of_one_name_are_a_bug():
    registry = Registry()
    registry.counter("x_total", "Things.")
    with pytest.raises(AssertionError):
        registry.gauge("x_total", "Things.")


def test_numbers_are_written_so_that_none_is_lost():
    registry = Registry()
    registry.counter("x_total", "Many.").value = 2**60 + 1
    registry.gauge("y", "Nothing.", lambda: float("nan"))
    page = registry.render()
    assert f"x_total {2**60 + 1}\n" in page
    assert "y NaN\n" in page


# The broker's own.


def test_the_rate_is_measured_over_the_last_minute(clock: HandClock, metrics: BrokerMetrics):
    messages = metrics.messages_in.child("orders")

    def rate() -> float:
        return samples(metrics.render())["mq_messages_in_per_sec"]

    assert rate() == 0
    for _ in range(6):
        clock.seconds += 10
        messages.value += 100
        assert rate() == 10
    for _ in range(5):
        clock.seconds += 10
        rate()
    clock.seconds += 10
    assert rate() == 0


def test_a_reader_that_comes_once_an_hour_gets_the_rate_of_the_hour(clock: HandClock, metrics: BrokerMetrics):
    metrics.render()
    clock.seconds += 3600
    metrics.messages_out.child("orders").value += 7200
    assert samples(metrics.render())["mq_messages_out_per_sec"] == 2


def test_readers_in_a_hurry_do_not_spoil_the_rate(clock: HandClock, metrics: BrokerMetrics):
    metrics.bytes_in.child("orders").value += 30
    for _ in range(1000):
        clock.seconds += 0.001
        metrics.render()
    clock.seconds += 29
    assert samples(metrics.render())["mq_bytes_in_per_sec"] == pytest.approx(1)


def test_a_deleted_topic_does_not_turn_the_rate_negative(clock: HandClock, metrics: BrokerMetrics):
    metrics.messages_in.child("orders").value += 100
    clock.seconds += 5
    metrics.render()
    metrics.forget_topic("orders")
    clock.seconds += 5
    page = samples(metrics.render())
    assert page["mq_messages_in_per_sec"] == 10
    assert 'mq_messages_in_total{topic="orders"}' not in page


def test_the_specified_names_and_buckets_are_on_the_page(metrics: BrokerMetrics):
    metrics.consumer_lag.read = lambda: [(("billing", "orders", "0"), 42)]
    page = samples(metrics.render())
    assert page['mq_consumer_lag_messages{group="billing",topic="orders",partition="0"}'] == 42
    assert {"mq_messages_in_per_sec", "mq_messages_out_per_sec"} <= page.keys()
    for bound in (1, 5, 10, 50, 100, 500, 1000):
        assert f'mq_produce_latency_ms_bucket{{le="{bound}"}}' in page
    for bound in (10, 50, 100, 500, 1000, 5000):
        assert f'mq_end_to_end_latency_ms_bucket{{le="{bound}"}}' in page
    assert page["mq_under_replicated_partitions"] == 0


def test_every_line_of_the_page_is_of_the_text_format(metrics: BrokerMetrics):
    metrics.requests.child("Produce").value += 1
    metrics.request_latency.child("Produce").observe(3)
    metrics.request_errors.child("Produce", "NOT_LEADER_OR_FOLLOWER").value += 1
    comment = re.compile(
        r"# (HELP [a-zA-Z_:][a-zA-Z0-9_:]* .+|TYPE [a-zA-Z_:][a-zA-Z0-9_:]* (counter|gauge|histogram))"
    )
    sample = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (-?[0-9.e+-]+|[+-]Inf|NaN)')
    page = metrics.render()
    assert page.endswith("\n")
    for line in page.splitlines():
        assert comment.fullmatch(line) or sample.fullmatch(line), line


def test_the_process_is_on_the_page_with_the_usual_names(clock: HandClock, metrics: BrokerMetrics):
    clock.seconds += 7
    page = metrics.render()
    values = samples(page)
    assert values["mq_uptime_seconds"] == 7
    assert values["process_start_time_seconds"] == 1000
    assert "# TYPE process_cpu_seconds_total counter\n" in page
    assert values["process_resident_memory_bytes"] > 1_000_000


def test_the_kernel_is_asked_about_this_process():
    before = open_files()
    descriptors = os.pipe()
    try:
        assert open_files() == before + 2
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    assert resident_bytes() > 1_000_000
    assert cpu_seconds() > 0
