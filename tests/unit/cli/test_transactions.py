"""`penstock transactions`, and what doctor and /metrics say of them, against a real broker with real producers."""

import json
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.records.batch import read_header
from penstock.records.record import Record, encode_batch
from penstock.testing import EmbeddedBroker

DEADLINE_S = 30
STRANGER = 4711  # a producer id that no coordinator has given

Run = Callable[..., Result]
Ask = Callable[..., Any]


@pytest.fixture
def run(penstock_broker: EmbeddedBroker) -> Run:
    """Runs a command in this process; its exit code must be the one expected."""

    def invoke(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
        environment = {"PENSTOCK_BOOTSTRAP": penstock_broker.bootstrap}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def ask(run: Run) -> Ask:
    """Runs a command with --json and gives the document."""

    def invoke(*arguments: str, code: int = 0) -> Any:
        return json.loads(run(*arguments, "--json", code=code).stdout)

    return invoke


def start_transaction(
    broker: EmbeddedBroker, transactional_id: str, topic: str, *, timeout_ms: int = 60_000
) -> Producer:
    """A producer with one record in a transaction that it has not ended."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    assert producer.flush(DEADLINE_S) == 0
    return producer


def hang(broker: EmbeddedBroker, topic: str, *, producer_id: int = STRANGER, age_ms: int = 0) -> int:
    """Writes past all checks what opens a transaction nobody knows of; gives its offset."""

    async def append() -> int:
        batch = encode_batch(
            [Record(0, 1000, None, b"x")], producer_id=producer_id, producer_epoch=3, is_transactional=True
        )
        partition = broker.broker.replicas.topics[topic].partitions[0]
        now_ms = broker.broker.clock.now_ms() - age_ms
        return partition.append(memoryview(batch), read_header(batch), now_ms).base_offset

    return broker.run(append())


def metric(broker: EmbeddedBroker, name: str) -> float:
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=DEADLINE_S) as page:
        lines = page.read().decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.split()[0] == name)
    return float(value)


# What coordinators know


def test_without_transactions_there_is_nothing_to_list(run: Run, ask: Ask) -> None:
    assert "There are none" in run("transactions", "list").stderr
    assert ask("transactions", "list") == []
    assert ask("transactions", "find-hanging") == []


def test_a_transaction_is_listed_and_described_while_it_is_open(
    penstock_broker: EmbeddedBroker, run: Run, ask: Ask
) -> None:
    producer = start_transaction(penstock_broker, "pay", "orders")
    (listed,) = ask("transactions", "list")
    assert (listed["transactional_id"], listed["state"], listed["coordinator"]) == ("pay", "Ongoing", 1)
    (described,) = ask("transactions", "describe", "pay")
    assert described["producer_id"] == listed["producer_id"]
    assert described["timeout_ms"] == 60_000
    assert described["since_ms"] == listed["since_ms"]
    assert described["partitions"] == [{"topic": "orders", "partition": 0}]
    assert "orders-0" in run("transactions", "describe", "pay").stdout
    assert "Ongoing" in run("transactions", "list").stdout
    producer.commit_transaction(DEADLINE_S)


def test_listing_takes_every_filter(penstock_broker: EmbeddedBroker, ask: Ask) -> None:
    producer = start_transaction(penstock_broker, "pay", "orders")
    (listed,) = ask("transactions", "list", "--state", "ongoing", "--state", "prepare-commit")
    number = str(listed["producer_id"])
    assert ask("transactions", "list", "--producer-id", number, "--duration-ms", "0", "--pattern", "p.*") == [listed]
    assert ask("transactions", "list", "--state", "Empty") == []
    assert ask("transactions", "list", "--producer-id", str(STRANGER)) == []
    assert ask("transactions", "list", "--duration-ms", "3600000") == []
    assert ask("transactions", "list", "--pattern", "p") == []
    producer.abort_transaction(DEADLINE_S)


def test_only_open_transactions_have_a_duration(penstock_broker: EmbeddedBroker, ask: Ask) -> None:
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "transactional.id": "idle"})
    producer.init_transactions(DEADLINE_S)
    assert len(ask("transactions", "list")) == 1
    assert ask("transactions", "list", "--duration-ms", "0") == []


def test_a_transactional_id_nobody_knows_is_named(penstock_broker: EmbeddedBroker, run: Run) -> None:
    assert "knows transactional id nobody" in run("transactions", "describe", "nobody", code=1).stderr
    producer = start_transaction(penstock_broker, "pay", "orders")
    result = run("transactions", "describe", "pay", "nobody", code=1)
    assert "orders-0" in result.stdout
    assert "knows transactional id nobody" in result.stderr
    producer.abort_transaction(DEADLINE_S)


# What hangs


def test_a_transaction_its_coordinator_knows_is_never_aborted_as_hanging(
    penstock_broker: EmbeddedBroker, run: Run, ask: Ask
) -> None:
    producer = start_transaction(penstock_broker, "pay", "orders")
    assert ask("transactions", "find-hanging") == []
    refusal = run("transactions", "abort-hanging", "--topic", "orders", "--partition", "0", "--yes", code=1)
    assert "does not hang: it belongs to pay" in refusal.stderr
    producer.commit_transaction(DEADLINE_S)


def test_a_hanging_transaction_is_found_and_aborted_and_readers_go_on(
    penstock_broker: EmbeddedBroker, run: Run, ask: Ask
) -> None:
    run("topics", "create", "orders")
    start = hang(penstock_broker, "orders")
    run("produce", "orders", stdin="seen\n")
    (found,) = ask("transactions", "find-hanging", "--topic", "orders")
    assert (found["start_offset"], found["producer_id"], found["producer_epoch"]) == (start, STRANGER, 3)
    assert "abort-hanging --topic orders --partition 0" in run("transactions", "find-hanging").stderr
    read = ("consume", "orders", "--from-beginning", "--exit-at-end")
    assert run(*read).stdout == ""

    done = ask("transactions", "abort-hanging", "-t", "orders", "-p", "0", "--start-offset", str(start), "--yes")
    assert done["outcome"] == "aborted"
    assert run(*read).stdout == "seen\n"
    assert ask("transactions", "find-hanging") == []
    again = run("transactions", "abort-hanging", "-t", "orders", "-p", "0", "--yes", code=1)
    assert "None is open there" in again.stderr


def test_the_marker_that_aborts_has_an_epoch_also_where_no_coordinator_ever_wrote_one(
    penstock_broker: EmbeddedBroker, run: Run, ask: Ask
) -> None:
    run("topics", "create", "orders")
    hang(penstock_broker, "orders")
    assert ask("transactions", "find-hanging")[0]["coordinator_epoch"] == -1
    run("transactions", "abort-hanging", "-t", "orders", "-p", "0", "--yes")
    hang(penstock_broker, "orders")
    assert ask("transactions", "find-hanging")[0]["coordinator_epoch"] == 0


def test_transactions_that_begin_and_end_while_one_looks_are_never_called_hanging(
    penstock_broker: EmbeddedBroker, ask: Ask
) -> None:
    producer = start_transaction(penstock_broker, "busy", "orders")
    is_enough = threading.Event()

    def work() -> int:
        count = 0
        while not is_enough.is_set():
            producer.commit_transaction(DEADLINE_S)
            producer.begin_transaction()
            # In turns: what is open in one topic is soon followed by a transaction that has only the other.
            producer.produce(("bills", "orders")[count % 2], b"x")
            assert producer.flush(DEADLINE_S) == 0
            count += 1
        producer.abort_transaction(DEADLINE_S)
        return count

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        try:
            found = [ask("transactions", "find-hanging", "--topic", "orders") for _ in range(15)]
        finally:
            is_enough.set()
    assert found == [[]] * 15
    assert working.result() > 0


def test_aborting_asks_first_and_takes_no_for_an_answer(penstock_broker: EmbeddedBroker, run: Run, ask: Ask) -> None:
    run("topics", "create", "orders")
    hang(penstock_broker, "orders")
    refused = run("transactions", "abort-hanging", "-t", "orders", "-p", "0", stdin="n\n", code=1)
    assert f"producer {STRANGER}" in refused.stderr
    assert len(ask("transactions", "find-hanging")) == 1
    assert "aborted" in run("transactions", "abort-hanging", "-t", "orders", "-p", "0", stdin="y\n").stdout
    assert ask("transactions", "find-hanging") == []


def test_a_partition_that_is_not_there_is_named(run: Run) -> None:
    refusal = run("transactions", "abort-hanging", "-t", "nowhere", "-p", "0", "--yes", code=1)
    assert "there is no partition nowhere-0" in refusal.stderr


def test_transactions_are_not_asked_for_over_tls(run: Run) -> None:
    refusal = run("transactions", "list", "-X", "security.protocol=ssl", code=2)
    assert "plaintext" in refusal.stderr


# Doctor and metrics


def test_doctor_notes_who_holds_back_readers_and_finds_nothing_wrong_with_it(
    penstock_broker: EmbeddedBroker, ask: Ask
) -> None:
    producer = start_transaction(penstock_broker, "pay", "orders")
    report = ask("doctor")
    assert report["healthy"]
    (note,) = [note for note in report["notes"] if "transactional id pay" in note]
    assert "pins orders-0" in note
    producer.commit_transaction(DEADLINE_S)
    # A new producer begins when the markers of the one before are written.
    successor = Producer({"bootstrap.servers": penstock_broker.bootstrap, "transactional.id": "pay"})
    successor.init_transactions(DEADLINE_S)
    assert any("no open transaction" in line for line in ask("doctor")["sound"])


def test_doctor_finds_what_hangs_and_its_own_advice_mends_it(
    penstock_broker: EmbeddedBroker, run: Run, ask: Ask
) -> None:
    run("topics", "create", "orders")
    hang(penstock_broker, "orders")
    (finding,) = ask("doctor", code=1)["findings"]
    assert f"producer {STRANGER} (epoch 3) hangs" in finding["what"]
    _, command, _ = finding["todo"].split("`")
    run(*command.split()[1:], "--yes")
    assert ask("doctor")["healthy"]


def test_metrics_follow_a_transaction_from_its_beginning_to_its_end(penstock_broker: EmbeddedBroker, run: Run) -> None:
    assert metric(penstock_broker, "mq_transactions_open") == 0
    assert metric(penstock_broker, "mq_transaction_oldest_open_seconds") == 0
    producer = start_transaction(penstock_broker, "pay", "orders")
    assert metric(penstock_broker, "mq_transactions_open") == 1
    assert metric(penstock_broker, "mq_transaction_oldest_open_seconds") > 0
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"y")
    assert producer.flush(DEADLINE_S) == 0
    producer.abort_transaction(DEADLINE_S)
    # The next transaction begins only when the last one is complete.
    producer.begin_transaction()
    producer.produce("orders", b"z")
    assert producer.flush(DEADLINE_S) == 0
    assert metric(penstock_broker, "mq_transactions_committed_total") == 1
    assert metric(penstock_broker, "mq_transactions_aborted_total") == 1
    assert metric(penstock_broker, "mq_transactions_timed_out_total") == 0
    producer.abort_transaction(DEADLINE_S)


def test_a_transaction_that_runs_out_of_time_is_counted(
    penstock_broker_factory: Callable[..., EmbeddedBroker],
) -> None:
    broker = penstock_broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"})
    producer = start_transaction(broker, "slow", "orders", timeout_ms=1000)
    other = Producer({"bootstrap.servers": broker.bootstrap})
    other.produce("orders", b"behind it")
    assert other.flush(DEADLINE_S) == 0
    # Readers of committed data get there only when the transaction before it has ended.
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["orders"])
    message = reader.poll(DEADLINE_S)
    reader.close()
    assert message is not None
    assert message.value() == b"behind it"
    assert metric(broker, "mq_transactions_timed_out_total") == 1
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)


def test_only_a_transaction_older_than_any_may_be_counts_as_overdue(penstock_broker: EmbeddedBroker, run: Run) -> None:
    run("topics", "create", "orders")
    run("topics", "create", "bills")
    hang(penstock_broker, "orders", age_ms=899_000)
    assert metric(penstock_broker, "mq_overdue_transaction_partitions") == 0
    hang(penstock_broker, "bills", age_ms=901_000)
    assert metric(penstock_broker, "mq_overdue_transaction_partitions") == 1


def test_doctor_does_not_call_a_group_stuck_that_only_a_marker_lies_before(
    penstock_broker: EmbeddedBroker, run: Run, ask: Ask
) -> None:
    producer = start_transaction(penstock_broker, "pay", "orders")
    producer.commit_transaction(DEADLINE_S)
    run("consume", "orders", "--group", "billing", "--from-beginning", "--max-messages", "1")
    (view,) = ask("groups", "describe", "billing")
    assert view["total_lag"] == 1
    report = ask("doctor", "--group", "billing")
    assert report["findings"] == []
    assert "group billing has no members; nothing waits" in report["notes"]
