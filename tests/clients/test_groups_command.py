"""`penstock groups` against a real broker: members, lag and epochs shown, offsets moved and forgotten."""

from collections.abc import Callable
from typing import Any

import pytest
from command_line import Run, commit, produce
from confluent_kafka import Consumer, TopicPartition

from penstock.testing import EmbeddedBroker


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
