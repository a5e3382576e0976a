"""`penstock topics` against a real broker: made, shown, changed, emptied and deleted; and what is refused."""

from collections.abc import Callable
from typing import Any

from command_line import Run, commit, produce
from confluent_kafka import TopicPartition

from penstock.testing import EmbeddedBroker


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
