"""--from and --to as people write them, and where that is in a log."""

from collections.abc import Mapping
from typing import Any, cast

import pytest
import typer

from penstock.cli.sql import parse_edge
from penstock.clock import SystemClock
from penstock.model import TopicPartition
from penstock.spark.sql.ranges import BEGINNING, END, Edge, Span, as_option, resolve
from penstock.spark.sql.sampling import ROWS_EACH, ends_of

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Offsets:
    """A cluster's answers: 10..20 in one partition, with a record every second; the other is empty at 5."""

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: str
    ) -> dict[TopicPartition, tuple[int, int]]:
        assert isolation == "read_committed"
        found: dict[TopicPartition, tuple[int, int]] = {}
        for at, moment in wanted.items():
            start, end = (10, 20) if at == ONE else (5, 5)
            if moment == -2:
                found[at] = (start, -1)
            elif moment == -1:
                found[at] = (end, -1)
            else:
                offset = start + -(-max(0, moment) // 1000)
                found[at] = (offset, offset * 1000) if offset < end else (-1, -1)
        return found


@pytest.mark.parametrize(
    ("text", "edge"),
    [
        ("earliest", BEGINNING),
        ("latest", END),
        ("100", Edge("offset", 100)),
        ("offset:900000000000", Edge("offset", 900_000_000_000)),
        ("1715934600000", Edge("time", 1_715_934_600_000)),
        ("-5", Edge("back", 5)),
        ("2024-05-17T08:30:00Z", Edge("time", 1_715_934_600_000)),
    ],
)
def test_edges_are_read_as_written(text: str, edge: Edge) -> None:
    assert parse_edge(text) == edge


def test_a_length_of_time_is_so_long_ago() -> None:
    before = SystemClock().now_ms() - 5_400_000
    assert before <= parse_edge("1h30m").value <= SystemClock().now_ms() - 5_400_000


@pytest.mark.parametrize("text", ["", "yesterday", "offset:x", "--5"])
def test_what_is_no_edge_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_edge(text)


@pytest.mark.parametrize(
    ("begin", "until", "one"),
    [
        (BEGINNING, END, Span(10, 20)),
        (Edge("offset", 12), Edge("offset", 15), Span(12, 15)),
        (Edge("offset", 3), Edge("offset", 99), Span(10, 20)),
        (Edge("offset", 18), Edge("offset", 12), Span(18, 18)),
        (Edge("back", 3), END, Span(17, 20)),
        (Edge("back", 300), END, Span(10, 20)),
        (Edge("time", 1500), Edge("time", 4000), Span(12, 14)),
        (Edge("time", 99_000), END, Span(20, 20)),
    ],
)
def test_spans_lie_within_the_log_and_never_run_backwards(begin: Edge, until: Edge, one: Span) -> None:
    cluster = cast("Any", Offsets())
    assert resolve(cluster, [ONE, TWO], begin, until, "read_committed") == {ONE: one, TWO: Span(5, 5)}


def test_offsets_are_handed_over_as_the_source_takes_them() -> None:
    assert as_option({TWO: Span(5, 6), ONE: Span(1, 2)}, "start") == '{"t": {"0": 1, "1": 5}}'
    assert as_option({ONE: Span(1, 2)}, "end") == '{"t": {"0": 2}}'


def test_both_ends_of_a_long_log_are_sampled() -> None:
    assert ends_of(Span(0, 10_000)) == [Span(0, ROWS_EACH), Span(10_000 - ROWS_EACH, 10_000)]
    assert ends_of(Span(7, 9)) == [Span(7, 9)]
