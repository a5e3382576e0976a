"""`penstock bench` against a real broker: what it measures is what was sent and read, and how it ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.testing import EmbeddedBroker

DEADLINE_S = 60
PERCENTILES = ("p50_ms", "p95_ms", "p99_ms", "p99_9_ms", "max_ms")

Run = Callable[..., Result]


@pytest.fixture
def run(penstock_broker: EmbeddedBroker) -> Run:
    def invoke(*arguments: str, code: int = 0) -> Result:
        environment = {"PENSTOCK_BOOTSTRAP": penstock_broker.bootstrap}
        result = CliRunner().invoke(app, ["bench", *arguments], env=environment)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def ask(run: Run) -> Callable[..., Any]:
    return lambda *arguments: json.loads(run(*arguments, "--json").stdout)


def test_what_is_sent_is_what_is_read_alone_and_in_a_group(run: Run, ask: Callable[..., Any]) -> None:
    made = run("produce", "-t", "t", "-n", "1500", "--size", "50", "-p", "3", "--warm-up", "0", "--acks", "1")
    assert "Made topic t (partitions: 3, replicas of each: 1)" in made.stderr
    assert made.stdout.startswith("1,500 records sent in ")
    assert "to the acknowledgement" in made.stdout

    sent = ask(
        "produce", "-t", "t", "-n", "500", "--size", "50", "-z", "lz4", "--throughput", "5000", "--warm-up", "0.1"
    )
    assert (sent["messages"], sent["failed"], sent["partitions"], sent["brokers"]) == (500, 0, 3, 1)
    assert sent["bytes_per_s"] == pytest.approx(50 * sent["messages_per_s"], rel=0.001)
    latencies = [sent["latency"][name] for name in PERCENTILES]
    assert latencies == sorted(latencies)
    assert latencies[0] > 0
    total = 2000 + sent["warm_up_messages"]
    assert sent["warm_up_messages"] > 0

    # Only the end of the topic can end this in time.
    read = ask("consume", "-t", "t", "--timeout", "600")
    assert read["messages"] == total
    assert read["bytes_per_s"] * read["elapsed_s"] == pytest.approx(50 * total, rel=0.01)
    assert "join_s" not in read

    member = ask("consume", "-t", "t", "-g", "g", "-n", "700")
    assert (member["messages"], member["interrupted"]) == (700, False)
    assert member["join_s"] > 0

    short = run("consume", "-t", "t", "-n", str(total + 1), "--timeout", "1.5", code=1)
    assert f"{total:,} records read in" in short.stdout
    assert f"only {total} of {total + 1} messages came" in short.stderr


def test_latency_is_measured_to_the_acknowledgement_and_to_the_reader(run: Run, ask: Callable[..., Any]) -> None:
    # What lies in the topic already, and what warms up, is not counted.
    run("produce", "-t", "t", "-n", "100", "--warm-up", "0")
    found = ask("latency", "-t", "t", "-n", "300", "--throughput", "2000", "--warm-up", "0.1")
    assert (found["messages"], found["missing"], found["failed"]) == (300, 0, 0)
    for name in ("latency", "end_to_end"):
        latencies = [found[name][percentile] for percentile in PERCENTILES]
        assert latencies == sorted(latencies)
        assert latencies[0] > 0
    assert ask("consume", "-t", "t")["messages"] == 400 + found["warm_up_messages"]


def test_what_cannot_be_measured_is_said_in_a_sentence(run: Run) -> None:
    assert "there is no topic t" in run("consume", "-t", "t", code=1).stderr
    run("produce", "-t", "t", "-n", "1", "--warm-up", "0")
    other = run("produce", "-t", "t", "-n", "1", "-p", "7", code=1)
    assert "has 1 partitions, not 7" in other.stderr
    large = run("produce", "-t", "t", "-n", "2", "--size", "2000000", "--warm-up", "0", code=1)
    assert "2 of 2 messages were not acknowledged" in large.stderr
    assert "max.message.bytes" in large.stderr


def test_an_interrupted_run_shows_what_it_has_measured(penstock_broker: EmbeddedBroker) -> None:
    command = (sys.executable, "-m", "penstock.cli.main", "bench", "produce", "-s", "600", "--throughput", "100")
    environment = os.environ | {"PENSTOCK_BOOTSTRAP": penstock_broker.bootstrap}
    with subprocess.Popen(
        [*command, "--warm-up", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        try:
            lines = [process.stderr.readline(), process.stderr.readline()]
            assert lines[1].startswith("sent: "), lines
            assert "records/s" in lines[1]
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert " records sent in " in out
    assert "P99.9" in out
