"""`penstock produce` and `penstock consume` against a real broker: what goes in comes out, and how reading ends."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import COMMAND, DEADLINE_S, Run, produce, started

from penstock.testing import EmbeddedBroker


def test_lines_go_in_and_come_out(run: Run) -> None:
    run("topics", "create", "orders")
    sent = run("produce", "orders", stdin="one\ntwo\n\nthree")
    assert "4 messages sent" in sent.stderr
    assert run("consume", "orders", "--from-beginning", "--exit-at-end").stdout == "one\ntwo\n\nthree\n"


def test_keys_headers_partition_and_compression_arrive(run: Run) -> None:
    run("topics", "create", "orders", "--partitions", "2")
    text = "\n".join(f"k{number}=v{number}" for number in range(100))
    flags = ("--key-separator", "=", "--header", "a=1", "--header", "b=2", "--partition", "1", "--compression", "zstd")
    run("produce", "orders", *flags, stdin=text)
    out = run("consume", "orders", "--from-beginning", "-e", "--json").stdout
    messages = [json.loads(line) for line in out.splitlines()]
    assert [(one["key"], one["value"], one["offset"]) for one in messages] == [
        (f"k{number}", f"v{number}", number) for number in range(100)
    ]
    assert all(one["partition"] == 1 for one in messages)
    assert messages[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]
    assert messages[0]["timestamp_ms"] > 1_700_000_000_000


def test_a_key_goes_to_the_partition_java_would_choose(run: Run) -> None:
    # By murmur2, as kafka-python works it out.
    expected = {"a": 5, "b": 6, "anna": 2, "order-1": 4, "order-2": 1, "order-3": 4, "größe": 4, "1234567890": 1}
    run("topics", "create", "orders", "--partitions", "7")
    run("produce", "orders", "-K", "=", stdin="\n".join(f"{key}=v" for key in expected))
    out = run("consume", "orders", "--from-beginning", "-e", "--format", "{key} {partition}").stdout
    assert {key: int(number) for key, number in (line.split() for line in out.splitlines())} == expected


def test_what_consume_writes_produce_reads(run: Run) -> None:
    run("topics", "create", "orders", "copy")
    run("produce", "orders", "-K", ":", "-H", "h=1", stdin=b"k:\xff\x00\nl:plain\n")
    first = run("consume", "orders", "--from-beginning", "-e", "--json").stdout
    run("produce", "copy", "--input", "json", stdin=first)
    second = run("consume", "copy", "--from-beginning", "-e", "--json").stdout
    assert [json.loads(line) | {"topic": "orders"} for line in second.splitlines()] == [
        json.loads(line) for line in first.splitlines()
    ]
    assert json.loads(first.splitlines()[0])["value_base64"] == "/wA="


def test_a_file_is_read_instead_of_stdin(run: Run, ask: Callable[..., Any], tmp_path: Path) -> None:
    run("topics", "create", "orders")
    (tmp_path / "lines").write_text("a\nb\n")
    counted = ask("produce", "orders", "--file", str(tmp_path / "lines"), "--acks", "1")
    assert (counted["delivered"], counted["failed"]) == (2, 0)
    assert "nowhere" in run("produce", "orders", "--file", str(tmp_path / "nowhere"), code=1).stderr


def test_messages_that_are_not_taken_are_counted_and_told(run: Run) -> None:
    run("topics", "create", "orders", "--partitions", "2", "--config", "max.message.bytes=1000")
    lines = [json.dumps({"value": "x" * size, "partition": size % 2}) for size in (10, 5001)]
    failed = run("produce", "orders", "--input", "json", stdin="\n".join(lines), code=1)
    assert "1 messages sent" in failed.stderr
    assert "1 of 2 messages were not sent" in failed.stderr
    assert "max.message.bytes" in failed.stderr


def test_reading_starts_where_it_is_told_to(run: Run, penstock_broker: EmbeddedBroker) -> None:
    run("topics", "create", "orders")
    produce(penstock_broker, "orders", 10, timestamp_ms=1_700_000_000_000)

    def read(*arguments: str) -> list[str]:
        return run("consume", "orders", "--exit-at-end", *arguments).stdout.split()

    assert read("--offset", "7") == ["7", "8", "9"]
    assert read("--offset", "-2") == ["8", "9"]
    assert read("--offset", "-99", "--max-messages", "3") == ["0", "1", "2"]
    assert read("--from-timestamp", "1700000000006") == ["6", "7", "8", "9"]
    assert read("--from-timestamp", "2040-01-01") == []
    assert read("--from-beginning", "--max-messages", "2", "--format", r"{offset}") == ["0", "1"]
    assert read() == []
    assert read("--from-beginning", "-n", "1", "--verbose")[0] == "orders-0@0"
    assert "starts and ends" in run("consume", "orders", "--offset", "99", code=1).stderr
    assert "has no partition 5" in run("consume", "orders", "-p", "5", code=1).stderr
    assert "penstock topics list" in run("consume", "nothing", code=1).stderr


def test_reading_stops_when_nothing_comes(run: Run, penstock_broker: EmbeddedBroker) -> None:
    run("topics", "create", "orders")
    produce(penstock_broker, "orders", 3)
    assert run("consume", "orders", "--from-beginning", "--timeout", "1").stdout == "0\n1\n2\n"


def test_a_group_goes_on_where_it_stopped(run: Run, penstock_broker: EmbeddedBroker) -> None:
    run("topics", "create", "orders")
    produce(penstock_broker, "orders", 10)
    first = run("consume", "orders", "--group", "g", "--from-beginning", "--max-messages", "4").stdout.split()
    second = run("consume", "orders", "--group", "g", "--exit-at-end").stdout.split()
    assert (first, second) == (["0", "1", "2", "3"], ["4", "5", "6", "7", "8", "9"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_reading_ends_cleanly_when_it_is_told_to(penstock_broker: EmbeddedBroker, number: signal.Signals) -> None:
    produce(penstock_broker, "orders", 3)
    with started("consume", "orders", "--from-beginning", "-b", penstock_broker.bootstrap) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert errors == "3 messages\n"


def test_a_reader_that_has_had_enough_is_no_failure(penstock_broker: EmbeddedBroker) -> None:
    produce(penstock_broker, "orders", 20_000)
    with started("consume", "orders", "--from-beginning", "-b", penstock_broker.bootstrap) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr is not None
        assert "Broken" not in process.stderr.read()
        process.stdout = None


def test_a_pipe_that_nobody_reads_is_no_failure(run: Run, penstock_broker: EmbeddedBroker) -> None:
    run("topics", "create", "orders")
    unread, end = os.pipe()
    os.close(unread)
    command = [*COMMAND, "topics", "list", "-b", penstock_broker.bootstrap]
    # With a buffer, Python would try once more when it ends.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, env=buffered)
    os.close(end)
    assert (done.returncode, done.stderr) == (0, "")
