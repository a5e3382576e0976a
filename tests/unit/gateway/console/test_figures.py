"""What charts and lists are made of: history, pages of /metrics, rates from offsets, lists."""

import pytest

from penstock.gateway.console import scraping
from penstock.gateway.console.history import History
from penstock.gateway.console.listing import Wanted, choose
from penstock.gateway.console.scraping import Reading, quantile, rates, read_page
from penstock.gateway.console.snapshot import growth, sum_lag
from penstock.model import TopicPartition

IN = ("topic", "orders", "messages_in")


def test_history_keeps_the_last_moments_and_knows_gaps() -> None:
    history = History(samples_max=3)
    assert history.times() == []
    assert history.latest(IN) is None
    for moment, value in ((1, 0.0), (2, 5.0), (3, None), (4, 7.0)):
        history.append(moment, {IN: value, ("cluster", "", "lag"): 1.0})
    assert history.times() == [2, 3, 4]
    assert history.series(IN) == [5.0, None, 7.0]
    assert history.latest(IN) == 7.0
    # Nobody measured this topic, or it was always zero: it takes no memory.
    assert history.series(("topic", "quiet", "messages_in")) == [0.0, 0.0, 0.0]
    history.drop([IN])
    assert history.series(IN) == [0.0, 0.0, 0.0]


def test_history_is_bounded_in_series() -> None:
    history = History(samples_max=2, series_max=3)
    history.append(1, {("topic", str(one), "messages_in"): 1.0 for one in range(10)})
    assert len(history.known()) == 3


def test_a_latency_nobody_measured_is_unknown_and_not_zero() -> None:
    history = History()
    history.append(1, {("cluster", "", "produce_p99"): None})
    history.append(2, {("cluster", "", "produce_p99"): 4.0})
    assert history.series(("cluster", "", "produce_p99")) == [None, 4.0]


PAGE = """# HELP mq_messages_in_total Messages.
mq_messages_in_total{{topic="a"}} {a}
mq_messages_in_total{{topic="odd\\"name"}} {odd}
mq_bytes_out_total{{topic="a"}} 10
mq_produce_latency_ms_bucket{{le="1"}} {b1}
mq_produce_latency_ms_bucket{{le="10"}} {b10}
mq_produce_latency_ms_bucket{{le="+Inf"}} {b10}
mq_connections 4
mq_messages_in_total{{topic="broken"}} many
process_resident_memory_bytes 1e6
"""


def reading(**figures: int) -> Reading:
    made = Reading()
    read_page(PAGE.format(**figures), "one", made)
    return made


def test_rates_and_quantiles_come_from_two_readings() -> None:
    before, after = reading(a=10, odd=0, b1=0, b10=0), reading(a=30, odd=5, b1=50, b10=100)
    found = rates(before, after, 10.0)
    assert found[("a", "messages_in")] == 2.0
    assert found[('odd"name', "messages_in")] == 0.5
    assert found[("", "messages_in")] == 2.5
    assert after.brokers == {"one": {"connections": 4.0, "memory_bytes": 1e6}}
    assert quantile(before.latency, after.latency, 0.5) == pytest.approx(1.0)
    assert quantile(before.latency, after.latency, 0.99) == pytest.approx(9.82)
    assert quantile(after.latency, after.latency, 0.5) is None


def test_a_counter_that_fell_or_a_broker_that_came_gives_no_rate() -> None:
    before, after = reading(a=30, odd=0, b1=9, b10=9), reading(a=10, odd=5, b1=1, b10=1)
    assert rates(before, after, 10.0)[("a", "messages_in")] is None
    assert quantile(before.latency, after.latency, 0.5) is None
    read_page(PAGE.format(a=1, odd=1, b1=0, b10=0), "two", after)
    assert rates(before, after, 10.0)[("", "messages_in")] is None


def test_a_metrics_page_that_is_not_there_is_no_failure() -> None:
    assert scraping.scrape(["http://127.0.0.1:9/metrics", "no address"]).brokers == {}


def test_growth_and_lag_count_only_what_is_known() -> None:
    a, b, gone = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
    assert growth({a: 5, gone: 9}, {a: 8, b: 100}) == {"t": 3}
    assert growth({a: 8}, {a: 2}) == {"t": 0}
    # What retention has deleted nobody can read.
    assert sum_lag({a: 1, gone: 5}, {a: 4}, {a: 10}) == 6
    assert sum_lag({gone: 5}, {}, {}) is None
    assert sum_lag({}, {}, {}) == 0


def test_a_list_is_searched_sorted_and_cut() -> None:
    sizes = {"topic-10": 5, "topic-9": None, "topic-2": 7, "Other": 1}
    keys = {"size": lambda name: sizes[name]}

    def page(search: str = "", sort: str = "name", order: str = "asc", page: int = 1, per_page: int = 10) -> list[str]:
        wanted = Wanted(search, sort, order == "desc", page, per_page)
        return choose(sizes, wanted, lambda name: name, keys)[0]

    assert page() == ["Other", "topic-2", "topic-9", "topic-10"]
    assert page("topic") == ["topic-2", "topic-9", "topic-10"]
    assert page("1 topic") == ["topic-10"]
    assert page(sort="size") == ["Other", "topic-10", "topic-2", "topic-9"]
    assert page(sort="size", order="desc") == ["topic-2", "topic-10", "Other", "topic-9"]
    assert page(order="desc") == ["topic-10", "topic-9", "topic-2", "Other"]
    # A page that is no longer there is the last one.
    assert page(page=7, per_page=3) == ["topic-10"]
