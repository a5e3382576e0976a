"""`penstock bench` without a cluster: options that make no sense, and what is shown while it runs."""

import io
import sys

import pytest
from typer.testing import CliRunner

from penstock.bench.histogram import Histogram
from penstock.bench.result import Measurement
from penstock.bench.round_trip import END_TO_END
from penstock.bench.sending import LATENCY, Limit
from penstock.cli.app import app
from penstock.cli.bench_view import Watch, print_result


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class ManualClock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "--throughput", "0"],
        ["produce", "--throughput", "-5"],
        ["produce", "--throughput", "10000001"],
        ["produce", "--acks", "2"],
        ["produce", "--size", "0"],
        ["produce", "--size", "100000001"],
        ["produce", "--messages", "0"],
        ["produce", "--warm-up", "-1"],
        ["latency", "--throughput", "-1"],
        ["latency", "--size", "15"],
        ["consume", "--seconds", "0"],
    ],
)
def test_what_is_asked_wrongly_ends_with_exit_code_2_before_anything_is_sent(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments, "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 2, result.output
    assert "connection refused" not in result.stderr


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_a_cluster_that_is_not_there_is_named(command: str) -> None:
    result = CliRunner().invoke(app, ["bench", command, "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "127.0.0.1:1: connection refused" in result.stderr


def watched(watch: Watch, clock: ManualClock) -> None:
    """Two seconds: a hundred messages of 1 ms, then fifty of 9 ms."""
    found = Measurement(histograms={LATENCY: Histogram()})
    watch.begin("sent", found)
    for count, value_us in ((100, 1000), (50, 9000)):
        for _ in range(count):
            found.histograms[LATENCY].record(value_us)
        found.messages += count
        found.received_bytes += count * 20_000
        clock.now_s += 0.5
        watch.look()  # too early to show anything
        clock.now_s += 0.5
        watch.look()


def test_outside_a_terminal_each_second_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    with Watch(Limit(200, None), quiet=False, clock=clock) as watch:
        watched(watch, clock)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "sent: 100 records/s (2.00 MB/s), 1.0 ms avg, 1.0 ms p99, 1.0 ms max",
        "sent: 50 records/s (1.00 MB/s), 9.0 ms avg, 9.0 ms p99, 9.0 ms max",
    ]
    with Watch(Limit(200, None), quiet=True, clock=clock) as watch:
        watched(watch, clock)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_a_bar_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    clock = ManualClock()
    for limit in (Limit(200, None), Limit(None, 4.0), None):
        with Watch(limit, quiet=True, clock=clock) as watch:
            watched(watch, clock)
    shown = terminal.getvalue()
    assert "━" in shown
    assert "50 records/s (1.00 MB/s), 9.0 ms avg" in shown


def test_the_end_is_one_line_and_a_table_of_latencies(capsys: pytest.CaptureFixture[str]) -> None:
    to_reader = Histogram()
    found = Measurement(messages=1000, received_bytes=500_000, elapsed_s=2.0)
    found.histograms = {LATENCY: Histogram(), END_TO_END: to_reader}
    for number in range(1000):
        found.histograms[LATENCY].record(number % 200)
        to_reader.record(2 * (number % 100))
    print_result("sent", found)
    first, heading, *rows = capsys.readouterr().out.splitlines()
    assert first == (
        "1,000 records sent in 2.00 s: 500.0 records/s (0.25 MB/s), 0.10 ms avg latency, 0.20 ms max latency"
    )
    assert heading.split() == ["LATENCY", "IN", "MS", "AVG", "P50", "P95", "P99", "P99.9", "MAX"]
    assert [row.split()[-6:] for row in rows] == [
        ["0.10", "0.10", "0.19", "0.20", "0.20", "0.20"],
        ["0.10", "0.10", "0.19", "0.20", "0.20", "0.20"],
    ]
    print_result("read", Measurement(join_s=0.25))
    assert capsys.readouterr().out == (
        "0 records read in 0.00 s: 0.0 records/s (0.00 MB/s), after 250 ms to join the group\n"
    )
