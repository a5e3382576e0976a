"""The command line against a real broker: what it prints, what it changes, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.testing import EmbeddedBroker

COMMAND = (sys.executable, "-m", "penstock.cli.main")
DEADLINE_S = 60

Run = Callable[..., Result]


@pytest.fixture
def run(penstock_broker: EmbeddedBroker) -> Run:
    """Runs a command in this process; its exit code must be the one expected."""

    def invoke(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> Result:
        environment = {"PENSTOCK_BOOTSTRAP": penstock_broker.bootstrap}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def ask(run: Run) -> Callable[..., Any]:
    """Runs a command with --json and gives the document."""

    def invoke(*arguments: str, code: int = 0) -> Any:
        return json.loads(run(*arguments, "--json", code=code).stdout)

    return invoke


@contextmanager
def started(*arguments: str, **options: Any) -> Generator["subprocess.Popen[str]"]:
    """A command in a process of its own, killed if it outlives the test."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=DEADLINE_S)


def produce(broker: EmbeddedBroker, topic: str, count: int, partition: int = 0, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(
            topic, str(number), partition=partition, timestamp=timestamp_ms + number if timestamp_ms else 0
        )
    assert producer.flush(DEADLINE_S) == 0


def commit(broker: EmbeddedBroker, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


@pytest.fixture
def member(penstock_broker: EmbeddedBroker) -> Iterator[Callable[..., Consumer]]:
    """Makes members of groups that have their partitions, and closes them."""
    made: list[Consumer] = []

    def join(group: str, *topics: str, **settings: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": penstock_broker.bootstrap,
                "group.id": group,
                "client.id": "anna",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        made.append(consumer)
        assigned: list[Any] = []
        consumer.subscribe(list(topics), on_assign=lambda _, partitions: assigned.extend(partitions))
        while not assigned:
            consumer.poll(0.1)
        return consumer

    yield join
    for consumer in made:
        consumer.close()


# Topics


def test_topics_are_created_listed_described_changed_and_deleted(run: Run, ask: Callable[..., Any]) -> None:
    assert "no topics yet" in run("topics", "list").stderr
    run("topics", "create", "orders", "bills", "--partitions", "3", "--config", "retention.ms=60000")
    assert ask("topics", "list") == [
        {"topic": "bills", "partitions": 3, "replication_factor": 1},
        {"topic": "orders", "partitions": 3, "replication_factor": 1},
    ]
    table = run("topics", "list").stdout.splitlines()
    assert table[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert table[1].split() == ["bills", "3", "1"]

    (orders,) = ask("topics", "describe", "orders")
    assert orders["configs"] == {"retention.ms": "60000"}
    assert [partition["leader"] for partition in orders["partitions"]] == [1, 1, 1]

    run(
        "topics", "alter", "orders", "--partitions", "5", "--config", "segment.bytes=1048576", "--unset", "retention.ms"
    )
    (orders,) = ask("topics", "describe", "orders")
    assert orders["configs"] == {"segment.bytes": "1048576"}
    assert len(orders["partitions"]) == 5

    run("topics", "delete", "orders", "--yes")
    assert [topic["topic"] for topic in ask("topics", "list")] == ["bills"]


def test_a_topic_that_exists_or_does_not_is_told_with_what_to_do(run: Run, ask: Callable[..., Any]) -> None:
    run("topics", "create", "orders")
    refused = run("topics", "create", "orders", code=1)
    assert "already exists" in refused.stderr
    assert "--if-not-exists" in refused.stderr
    assert ask("topics", "create", "orders", "--if-not-exists") == [{"topic": "orders", "outcome": "exists"}]
    assert "penstock topics list" in run("topics", "describe", "ordesr", code=1).stderr
    run("topics", "delete", "ordesr", "--yes", code=1)
    assert ask("topics", "delete", "ordesr", "--yes", "--if-exists") == [{"topic": "ordesr", "outcome": "absent"}]
    # Asking for a topic must not have made it.
    assert [topic["topic"] for topic in ask("topics", "list")] == ["orders"]


def test_a_bad_setting_of_a_topic_is_refused_with_the_brokers_words(run: Run) -> None:
    refused = run("topics", "create", "orders", "--config", "retention.mss=1", code=1)
    assert "retention.mss" in refused.stderr
    refused = run("topics", "create", "orders", "--replication-factor", "3", code=1)
    assert "--replication-factor" in refused.stderr


def test_only_asking_whether_a_topic_could_be_made_makes_none(run: Run, ask: Callable[..., Any]) -> None:
    run("topics", "create", "orders", "--validate-only")
    assert ask("topics", "list") == []


def test_partitions_are_never_taken_away(run: Run) -> None:
    run("topics", "create", "orders", "--partitions", "3")
    assert "never taken away" in run("topics", "alter", "orders", "--partitions", "2", code=1).stderr


def test_offsets_and_sizes_of_a_topic_are_shown(
    run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker
) -> None:
    run("topics", "create", "orders", "--partitions", "2")
    produce(penstock_broker, "orders", 10, partition=1)
    (orders,) = ask("topics", "describe", "orders")
    ends = [(partition["start_offset"], partition["end_offset"]) for partition in orders["partitions"]]
    assert ends == [(0, 0), (0, 10)]
    assert orders["partitions"][0]["size_bytes"] == 0
    assert orders["partitions"][1]["size_bytes"] > 100
    assert ask("topics", "list", "--size")[0]["size_bytes"] == orders["partitions"][1]["size_bytes"]


def test_internal_topics_are_shown_on_demand(
    run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker
) -> None:
    run("topics", "create", "orders")
    commit(penstock_broker, "g", TopicPartition("orders", 0, 0))
    assert [topic["topic"] for topic in ask("topics", "list")] == ["orders"]
    assert [topic["topic"] for topic in ask("topics", "list", "--internal")] == ["__consumer_offsets", "orders"]


def test_the_oldest_records_are_deleted(run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker) -> None:
    run("topics", "create", "orders", "--partitions", "2")
    for partition in (0, 1):
        produce(penstock_broker, "orders", 10, partition, timestamp_ms=1_700_000_000_000)
    assert "?" in run("topics", "delete-records", "orders", "--all", code=1, stdin="n\n").stderr
    cut = ask("topics", "delete-records", "orders:1", "--before-offset", "4", "--yes")
    assert cut == [{"topic": "orders", "partition": 1, "start_offset": 4}]
    cut = ask("topics", "delete-records", "orders:0", "--before", "1700000000007", "--yes")
    assert cut == [{"topic": "orders", "partition": 0, "start_offset": 7}]
    cut = ask("topics", "delete-records", "orders", "--all", "--yes")
    assert [row["start_offset"] for row in cut] == [10, 10]
    assert "no partition 7" in run("topics", "delete-records", "orders:7", "--all", "--yes", code=1).stderr
    assert run("topics", "delete-records", "orders:0", "--before-offset", "99", "--yes", code=1).stderr


# Produce and consume


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


# Groups


def test_a_group_is_described_with_members_and_lag(
    run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker, member: Callable[..., Consumer]
) -> None:
    run("topics", "create", "orders", "--partitions", "2")
    produce(penstock_broker, "orders", 10, partition=0)
    produce(penstock_broker, "orders", 5, partition=1)
    consumer = member("g", "orders")
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)

    assert ask("groups", "list") == [{"group": "g", "state": "stable", "type": "classic"}]
    (group,) = ask("groups", "describe", "g")
    assert (group["state"], group["total_lag"]) == ("stable", 6)
    delays = [one["lag_seconds"] for one in group["partitions"]]
    assert delays == [group["lag_seconds"], None]
    assert group["lag_seconds"] > 0
    (described,) = group["members"]
    assert f"member {described['member_id']} joined" in group["last_rebalance"]["cause"]
    assert (group["epoch"], described["target_partitions"]) == (None, None)
    assert (described["client_id"], described["host"]) == ("anna", "127.0.0.1")
    assert described["partitions"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert [(one["committed_offset"], one["end_offset"], one["lag"]) for one in group["partitions"]] == [
        (4, 10, 6),
        (None, 5, None),
    ]
    table = run("groups", "describe", "--all").stdout
    assert "Total lag    6" in table
    assert "anna" in table


def test_a_group_of_the_consumer_protocol_is_described_with_its_epochs_and_why_it_rebalanced(
    run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker, member: Callable[..., Consumer]
) -> None:
    run("topics", "create", "orders", "--partitions", "2")
    produce(penstock_broker, "orders", 3)
    consumer = member("g", "^ord.*", **{"group.protocol": "consumer"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)

    assert ask("groups", "list") == [{"group": "g", "state": "stable", "type": "consumer"}]
    (group,) = ask("groups", "describe", "g")
    assert (group["type"], group["state"], group["assignor"]) == ("consumer", "stable", "uniform")
    assert (group["epoch"], group["target_epoch"], group["total_lag"]) == (1, 1, 2)
    (described,) = group["members"]
    assert described["epoch"] == 1
    assert described["partitions"] == described["target_partitions"]
    assert described["partitions"] == [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert group["last_rebalance"]["cause"] == f"member {described['member_id']} joined"
    table = run("groups", "describe", "g").stdout
    assert "Type         consumer, epoch 1" in table
    assert group["last_rebalance"]["at"] in table


def test_a_group_that_does_not_exist_is_told(run: Run) -> None:
    assert "no groups" in run("groups", "list").stderr
    assert "penstock groups list" in run("groups", "describe", "nobody", code=1).stderr
    assert "penstock groups list" in run("groups", "delete", "nobody", "--yes", code=1).stderr


def test_a_group_with_members_can_be_neither_deleted_nor_moved(
    run: Run, penstock_broker: EmbeddedBroker, member: Callable[..., Consumer]
) -> None:
    produce(penstock_broker, "orders", 1)
    member("g", "orders")
    assert "Stop its members" in run("groups", "delete", "g", "--yes", code=1).stderr
    moved = run("groups", "reset-offsets", "g", "--topic", "orders", "--to-latest", "--execute", code=1)
    assert "stop" in moved.stderr.lower()


def test_a_group_without_members_is_deleted(run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker) -> None:
    produce(penstock_broker, "orders", 1)
    commit(penstock_broker, "g", TopicPartition("orders", 0, 1))
    assert ask("groups", "delete", "g", "--yes") == [{"group": "g", "outcome": "deleted"}]
    assert ask("groups", "list") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-offset", "7"], [7, 7]),
        (["--shift-by", "-2"], [3, 4]),
        (["--shift-by", "100"], [10, 10]),
        (["--to-timestamp", "1700000000003"], [3, 3]),
        (["--to-datetime", "2023-11-14T22:13:20.008Z"], [8, 8]),
        (["--by-duration", "0s"], [10, 10]),
    ],
)
def test_offsets_are_reset_only_when_told_twice(
    run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker, arguments: list[str], expected: list[int]
) -> None:
    run("topics", "create", "orders", "--partitions", "2")
    for partition in (0, 1):
        produce(penstock_broker, "orders", 10, partition, timestamp_ms=1_700_000_000_000)
    commit(penstock_broker, "g", TopicPartition("orders", 0, 5), TopicPartition("orders", 1, 6))

    def committed() -> list[int]:
        (group,) = ask("groups", "describe", "g")
        return [one["committed_offset"] for one in group["partitions"]]

    plan = ask("groups", "reset-offsets", "g", "--all-topics", *arguments)
    assert [one["new_offset"] for one in plan["partitions"]] == expected
    assert not plan["executed"]
    assert committed() == [5, 6]
    assert "--execute" in run("groups", "reset-offsets", "g", "--topic", "orders:1", *arguments).stderr
    run("groups", "reset-offsets", "g", "--topic", "orders:1", *arguments, "--execute")
    assert committed() == [5, expected[1]]
    run("groups", "reset-offsets", "g", "--topic", "orders:0", *arguments, "--execute")
    assert committed()[0] == expected[0]


def test_offsets_of_a_topic_are_forgotten(run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker) -> None:
    run("topics", "create", "orders", "bills", "--partitions", "2")
    offsets = [TopicPartition(topic, number, 0) for topic in ("orders", "bills") for number in (0, 1)]
    commit(penstock_broker, "g", *offsets)
    gone = ask("groups", "delete-offsets", "g", "--topic", "orders:1", "--topic", "bills")
    assert [(one["topic"], one["partition"]) for one in gone] == [("bills", 0), ("bills", 1), ("orders", 1)]
    (group,) = ask("groups", "describe", "g")
    assert [(one["topic"], one["partition"]) for one in group["partitions"]] == [("orders", 0)]
    assert "committed nothing there" in run("groups", "delete-offsets", "g", "-t", "bills", code=1).stderr


# Settings and quotas


@pytest.mark.parametrize(
    ("resource", "name", "value"),
    [
        (["topic:orders"], "retention.ms", "12345"),
        (["--topic", "orders"], "retention.ms", "12345"),
        (["broker:1"], "log.retention.ms", "60000"),
        (["broker:default"], "log.retention.ms", "60000"),
        (["--broker", "default"], "message.max.bytes", "2000000"),
        (["group:g"], "consumer.session.timeout.ms", "50000"),
    ],
)
def test_settings_are_set_shown_and_unset(
    run: Run, ask: Callable[..., Any], resource: list[str], name: str, value: str
) -> None:
    run("topics", "create", "orders")

    def shown(*flags: str) -> dict[str, str]:
        return {one["name"]: one["value"] for one in ask("configs", "describe", *resource, *flags)["configs"]}

    assert name not in shown()
    run("configs", "set", *resource, f"{name}={value}")
    assert shown()[name] == value
    assert name in run("configs", "describe", *resource).stdout
    run("configs", "unset", *resource, name)
    assert name not in shown()


def test_all_settings_are_shown_on_demand(run: Run, ask: Callable[..., Any]) -> None:
    run("topics", "create", "orders")
    everything = ask("configs", "describe", "topic:orders", "--all")["configs"]
    assert {"cleanup.policy", "retention.ms", "segment.bytes"} <= {one["name"] for one in everything}
    assert {one["source"] for one in everything} >= {"DEFAULT_CONFIG"}


def test_a_setting_that_is_none_is_refused_with_the_brokers_words(run: Run) -> None:
    run("topics", "create", "orders")
    assert "retention.mss" in run("configs", "set", "topic:orders", "retention.mss=1", code=1).stderr
    assert "log.dirs" in run("configs", "set", "broker:1", "log.dirs=/elsewhere", code=1).stderr
    assert "no.such" in run("configs", "set", "broker:default", "no.such=1", code=1).stderr
    assert "penstock topics list" in run("configs", "describe", "topic:nothing", code=1).stderr


def test_quotas_are_set_shown_and_unset(run: Run, ask: Callable[..., Any]) -> None:
    assert "No quotas" in run("quotas", "describe").stderr
    run("quotas", "set", "--user", "anna", "producer_byte_rate=1048576", "consumer_byte_rate=2097152")
    run("quotas", "set", "--client-id", "default", "request_percentage=50")
    run("quotas", "set", "--user", "anna", "--client-id", "web", "producer_byte_rate=1000")
    both = ask("quotas", "describe")
    assert {"entity": {"client-id": "default"}, "quotas": {"request_percentage": 50.0}} in both
    assert len(both) == 3
    (web,) = ask("quotas", "describe", "--user", "anna", "--client-id", "web")
    assert web["quotas"] == {"producer_byte_rate": 1000.0}
    assert "request_percentage" in run("quotas", "describe", "--client-id", "default").stdout
    run("quotas", "unset", "--client-id", "default", "request_percentage")
    assert ask("quotas", "describe", "--client-id", "default") == []
    assert "bogus_rate" in run("quotas", "set", "--user", "anna", "bogus_rate=1", code=1).stderr


def test_what_our_own_connection_cannot_do_is_told_before_it_is_tried(run: Run) -> None:
    refused = run("quotas", "describe", "-X", "security.protocol=ssl", code=2)
    assert "plaintext" in refused.stderr


def test_a_setting_librdkafka_does_not_know_is_asked_wrongly(run: Run) -> None:
    assert "no.such.property" in run("topics", "list", "-X", "no.such.property=1", code=2).stderr


# Doctor


def test_a_healthy_node_is_said_to_be_one(run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker) -> None:
    produce(penstock_broker, "orders", 1)
    flags = ("--data-dir", str(penstock_broker.data_dir), "--http", penstock_broker.http)
    report = ask("doctor", *flags)
    assert report["healthy"]
    assert report["findings"] == []
    assert "All is well" in run("doctor", *flags).stdout


def test_a_node_that_is_not_there_is_found(run: Run, tmp_path: Path) -> None:
    result = run("doctor", "--bootstrap", "127.0.0.1:1", code=1)
    assert "connection refused" in result.stdout
    assert "what to do" in result.stdout


def test_an_advertised_address_that_nobody_reaches_is_found(
    penstock_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        nowhere, somewhere = (f"127.0.0.1:{taken.getsockname()[1]}" for taken in (one, other))
    penstock_broker_factory({"listeners": somewhere, "advertised.listeners": nowhere})
    result = CliRunner().invoke(app, ["doctor", "--bootstrap", somewhere, "--json"])
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert f"broker 1 advertises an address that cannot be reached from here ({nowhere}" in finding["what"]
    assert "--advertise" in finding["todo"]


def test_a_topic_and_a_group_that_do_not_exist_are_found(ask: Callable[..., Any]) -> None:
    report = ask("doctor", "--topic", "orders", "--group", "g", code=1)
    whats = [finding["what"] for finding in report["findings"]]
    assert whats == ["topic orders does not exist", "group g does not exist"]


def test_a_group_whose_member_commits_nothing_is_found(
    ask: Callable[..., Any], penstock_broker: EmbeddedBroker, member: Callable[..., Consumer]
) -> None:
    produce(penstock_broker, "orders", 10)
    consumer = member("g", "orders")
    consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
    report = ask("doctor", "--group", "g", "--interval", "0", code=1)
    (finding,) = report["findings"]
    assert "anna on 127.0.0.1 has committed nothing" in finding["what"]
    assert "6 messages wait" in finding["what"]


def test_retention_that_ran_past_a_group_is_found(
    run: Run, ask: Callable[..., Any], penstock_broker: EmbeddedBroker
) -> None:
    produce(penstock_broker, "orders", 10)
    commit(penstock_broker, "g", TopicPartition("orders", 0, 2))
    run("topics", "delete-records", "orders", "--before-offset", "6", "--yes")
    report = ask("doctor", "--interval", "0", code=1)
    whats = [finding["what"] for finding in report["findings"]]
    assert "group g has no members, and 4 messages wait" in whats
    assert "group g: orders-0 is committed at 2, but starts at 6" in whats


# Client metrics


def test_what_clients_report_is_subscribed_to_shown_listed_and_taken_back(run: Run, ask: Callable[..., Any]) -> None:
    assert ask("configs", "list", "client-metrics") == []
    said = run("configs", "set", "client-metrics:billing", "metrics=org.apache.kafka.producer.", "interval.ms=1000")
    assert "client-metrics billing: interval.ms is now 1000" in said.stdout
    run("configs", "set", "client-metrics:billing", "match=client_id=billing-.*")
    shown = ask("configs", "describe", "client-metrics:billing")
    assert {one["name"]: (one["value"], one["source"]) for one in shown["configs"]} == {
        "metrics": ("org.apache.kafka.producer.", "CLIENT_METRICS_CONFIG"),
        "interval.ms": ("1000", "CLIENT_METRICS_CONFIG"),
        "match": ("client_id=billing-.*", "CLIENT_METRICS_CONFIG"),
    }
    assert ask("configs", "list", "client-metrics") == [{"resource": "client-metrics", "name": "billing"}]
    run("topics", "create", "orders")
    everything = [(one["resource"], one["name"]) for one in ask("configs", "list")]
    assert everything == [("broker", "1"), ("client-metrics", "billing"), ("topic", "orders")]
    assert "interval.ms" in run("configs", "set", "client-metrics:billing", "interval.ms=1", code=1).output
    assert "plaintext" in run("configs", "list", "-X", "security.protocol=ssl", code=2).output
    assert "none of" in run("configs", "list", "colours", code=2).output
    run("configs", "unset", "client-metrics:billing", "metrics", "interval.ms", "match")
    assert ask("configs", "list", "client-metrics") == []


# Serve


def serve(tmp_path: Path, *arguments: str) -> "Any":
    own = ("--no-gateway", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    return started("serve", *own, *arguments)


def read_bootstrap(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    assert lines[0] == "penstock: broker 1 is ready\n", process.stderr
    facts = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert facts["http"].startswith("http://127.0.0.1:")
    assert facts["stop"] == "Ctrl-C,"
    return facts["clients"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with serve(tmp_path) as process:
        bootstrap = read_bootstrap(process)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("orders", b"one")
        assert producer.flush(DEADLINE_S) == 0
        process.send_signal(number)
        out, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert "stopping" in out
    assert "Traceback" not in errors
    assert (tmp_path / "data" / "clean-stop.json").exists()


def test_a_second_signal_ends_a_server_at_once(tmp_path: Path) -> None:
    with serve(tmp_path) as process:
        read_bootstrap(process)
        # While it is stopped both signals come to lie in one pile, and the second is seen before the stop is over.
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert not (tmp_path / "data" / "clean-stop.json").exists()


def test_a_servers_log_goes_to_stderr_as_json_if_wanted(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-format", "json", "--log-level", "debug") as process:
        read_bootstrap(process)
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE_S)
    lines = [json.loads(line) for line in errors.splitlines()]
    assert any("listens on" in line["message"] for line in lines)
    assert {"time_ms", "level", "logger", "message"} <= lines[0].keys()


def test_a_server_without_http_has_none(tmp_path: Path) -> None:
    own = ("--no-gateway", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "")
    with started("serve", *own) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert not any(line.startswith("  http") for line in lines)
        process.terminate()
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
