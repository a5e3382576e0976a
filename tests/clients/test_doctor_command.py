"""`penstock doctor` against a real broker: it finds what is wrong, and nothing where all is well."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import Run, commit, produce
from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.testing import EmbeddedBroker


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
