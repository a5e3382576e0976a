"""The page: complete, self-contained, and safe whatever topics are called."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from penstock.spark.report import wording
from penstock.spark.report.charts import Bar, Point, bars_by_name, bars_over_time, line_with_band, round_step
from penstock.spark.report.facts import DAY_MS, GB, Bucket, DeepFacts, Report, Settings, Topic, as_document
from penstock.spark.report.judging import judge
from penstock.spark.report.page import render_page
from penstock.spark.report.prices import Prices
from penstock.spark.report.totals import add_up

NOW_MS = 1_790_035_200_000
NASTY = "<script>alert('1')</script>&\"x"
DEEP = DeepFacts(100, 1, 2, 90, 12.5, {"p50": 10, "max": 99}, 1000, 9000, 1.5)


def topic(name: str, daily: int | None) -> Topic:
    first_ms = NOW_MS - 10 * DAY_MS
    days = tuple(Bucket(first_ms + DAY_MS * day, 10, daily, 0 < day < 10) for day in range(11))
    held = None if daily is None else daily * 11
    return Topic(name, 3, 2, 110, held, None if held is None else held * 2, first_ms, days, days, Settings("delete"))


def report(*topics: Topic, currency: str | None = "EUR") -> Report:
    prices = Prices("EUR", 0.1, 0.02, 0.05, 2, 0.001) if currency else None
    return Report("b:9092", NOW_MS, 30, currency, tuple(judge(one, 30, prices, DEEP) for one in topics), ("A note.",))


def test_the_page_asks_nobody_for_anything() -> None:
    page = render_page(report(topic("orders", GB), topic("unknown", None)))
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=[\"'](?!data:)", page)
    assert "url(" not in page
    assert "<script" not in page
    assert "@import" not in page


def test_a_topics_name_is_never_markup() -> None:
    page = render_page(report(topic(NASTY, GB)))
    assert "<script" not in page
    assert "&lt;script&gt;alert(" in page


def test_every_drawing_is_well_formed() -> None:
    page = render_page(report(topic(NASTY, GB), topic("b", 10), topic("c", None)))
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) >= 10
    for drawing in drawings:
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing.lower().replace("name", "")


def test_an_empty_cluster_has_a_page_too() -> None:
    assert "All topics" in render_page(report(currency=None))


def test_totals_are_sums_of_what_is_known() -> None:
    totals = add_up(report(topic("a", GB), topic("b", 2 * GB), topic("c", None)))
    assert totals.partitions == 9
    assert totals.rows == 330
    assert totals.stored_bytes == 66 * GB
    assert totals.days[5].bytes == 3 * GB
    assert totals.incoming_rows_a_day == 30
    assert totals.disk[-1].likely > totals.disk[0].likely > totals.stored_bytes


def test_a_topic_without_a_forecast_stays_as_it_is_in_the_sum() -> None:
    alone = add_up(report(topic("a", GB)))
    compacted = replace(topic("b", GB), settings=Settings("compact"))
    both = add_up(report(topic("a", GB), compacted))
    assert both.disk[-1].likely == pytest.approx(alone.disk[-1].likely + 22 * GB)


def test_the_document_for_scripts_has_every_number_of_the_page() -> None:
    document = as_document(report(topic("a", GB)))
    one = document["topics"][0]
    assert one["topic"]["name"] == "a"
    assert one["cost"]["total"] == pytest.approx(sum(value for name, value in one["cost"].items() if name != "total"))
    assert len(one["forecast"]["disk_bytes"]) == 30
    assert one["deep"]["value_bytes_percentiles"] == {"p50": 10, "max": 99}


def test_charts_of_nothing_and_of_zeros() -> None:
    assert bars_over_time([], "t", wording.size) == ""
    assert line_with_band([Point("a", 1, 1, 1)], "t", wording.size) == ""
    assert bars_by_name([], "t") == ""
    ElementTree.fromstring(bars_over_time([Bar("a", 0, "h")], "t", wording.size))
    ElementTree.fromstring(line_with_band([Point("a", 0, 0, 0)] * 2, "t", wording.size))


@pytest.mark.parametrize(("rough", "step"), [(1, 1), (1.1, 2), (2.2, 2.5), (3, 5), (7, 10), (0.03, 0.05), (1200, 2000)])
def test_axes_have_round_steps(rough: float, step: float) -> None:
    assert round_step(rough) == pytest.approx(step)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (wording.size(999), "999 B"),
        (wording.size(1500), "1.5 kB"),
        (wording.size(999_999), "1 MB"),
        (wording.size(None), "–"),
        (wording.count(1234), "1.2k"),
        (wording.money(0.001, "EUR"), "0.0010 EUR"),
        (wording.money(12, None), "12.00"),
        (wording.share(1, 0), "–"),
        (wording.minute(10**18), str(10**18)),
    ],
)
def test_numbers_as_people_read_them(text: str, expected: str) -> None:
    assert text == expected
