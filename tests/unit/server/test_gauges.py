"""What /metrics says of groups, followed through lives of real consumers of both protocols."""

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from penstock.testing import EmbeddedBroker

DEADLINE_S = 30
POLLS_MAX = 600  # of 50 ms each

# Members hear of a rebalance with their heartbeats.
HURRIED = {"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "100"}

Join = Callable[..., Consumer]


@pytest.fixture
def broker(penstock_broker_factory: Callable[..., EmbeddedBroker]) -> EmbeddedBroker:
    return penstock_broker_factory(HURRIED)


@pytest.fixture
def join(broker: EmbeddedBroker) -> Iterator[Join]:
    """A consumer of group g that has been given as many partitions as it should get."""
    consumers: list[Consumer] = []

    def start(protocol: str, count: int, others: tuple[Consumer, ...] = ()) -> Consumer:
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": protocol}
        consumer = Consumer(settings if protocol == "consumer" else {**settings, "heartbeat.interval.ms": 100})
        consumers.append(consumer)
        consumer.subscribe(["t"])
        poll_until(lambda: len(consumer.assignment()) == count, (consumer, *others))
        return consumer

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 4)])["t"].result(DEADLINE_S)
    yield start
    for consumer in consumers:
        consumer.close()


def poll_until(is_reached: Callable[[], bool], consumers: tuple[Consumer, ...]) -> None:
    for _ in range(POLLS_MAX):
        for consumer in consumers:
            consumer.poll(0.05)
        if is_reached():
            return
    raise AssertionError("it did not come to that")


def rebalances(broker: EmbeddedBroker) -> dict[str, int]:
    """By cause, without those that did not happen."""
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=DEADLINE_S) as page:
        lines = [line for line in page.read().decode().splitlines() if line.startswith("mq_rebalances_total{")]
    counts = {line.split('"')[1]: int(line.split()[-1]) for line in lines}
    assert set(counts) == {"joined", "rejoined", "left", "timed_out", "topics_changed", "other"}
    return {cause: count for cause, count in counts.items() if count}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalances_are_counted_by_what_caused_them(broker: EmbeddedBroker, join: Join, protocol: str) -> None:
    assert rebalances(broker) == {}
    first = join(protocol, 4)
    assert rebalances(broker) == {"joined": 1}
    second = join(protocol, 2, (first,))
    assert rebalances(broker) == {"joined": 2}
    members = {row: count for row, count in rows(broker).items() if row.startswith("mq_group_members{state=")}
    assert sum(members.values()) == 2
    second.unsubscribe()  # which leaves the group
    poll_until(lambda: len(first.assignment()) == 4, (first, second))
    assert rebalances(broker) == {"joined": 2, "left": 1}


def test_new_partitions_are_a_cause_of_their_own_in_the_consumer_protocol(broker: EmbeddedBroker, join: Join) -> None:
    consumer = join("consumer", 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions("t", 6)])["t"].result(DEADLINE_S)
    poll_until(lambda: len(consumer.assignment()) == 6, (consumer,))
    assert rebalances(broker) == {"joined": 1, "topics_changed": 1}


def rows(broker: EmbeddedBroker) -> dict[str, float]:
    with urllib.request.urlopen(f"{broker.http}/metrics", timeout=DEADLINE_S) as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_a_brokers_page_tells_of_its_cluster_its_traffic_and_its_clients(broker: EmbeddedBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "shop"}
    producer = Producer(settings)
    for _ in range(3):
        producer.produce("t", b"value" * 100)
        assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    first = consumer.poll(DEADLINE_S)
    assert first is not None
    consumer.commit(first, asynchronous=False)
    seen = rows(broker)
    at = 'group="g",topic="t",partition="0"'
    assert (seen[f"mq_group_committed_offset{{{at}}}"], seen[f"mq_consumer_lag_messages{{{at}}}"]) == (1, 2)
    later = rows(broker)
    assert later[f"mq_consumer_lag_seconds{{{at}}}"] >= 0
    for name, value in {
        'mq_batches_in_total{topic="t"}': 3,
        "mq_active_controller": 1,
        "mq_broker_registered": 1,
        "mq_brokers": 1,
        "mq_ready": 1,
        "mq_leaderless_partitions": 0,
        "mq_unbalanced_leaders": 0,
        "mq_reassigning_partitions": 0,
        "mq_at_min_isr_partitions": 0,
        "mq_unclean_leader_elections_total": 0,
        "mq_compaction_backlog_partitions": 0,
        'mq_topic_retention_seconds{topic="t"}': 604_800,
    }.items():
        assert seen[name] == value, name
    assert seen["mq_leader_elections_total"] == seen["mq_partitions"] == 5  # of t and of __consumer_offsets
    assert seen["mq_logs_bytes"] >= seen['mq_log_bytes{topic="t",partition="0"}'] > 1500
    assert seen["mq_disk_bytes"] > seen["mq_disk_free_bytes"] > 0
    assert seen['mq_requests_in_flight{api="OffsetCommit"}'] == 0
    assert seen['mq_requests_total{api="OffsetCommit"}'] == 1
    assert seen['mq_requests_by_client_total{client_id="shop"}'] > 5
    assert seen['mq_request_bytes_by_client_total{client_id="shop"}'] > 1500
    assert seen['mq_fetch_bytes_by_client_total{client_id="shop"}'] == seen['mq_bytes_out_total{topic="t"}'] > 1500
    assert seen["mq_network_bytes_in_total"] > 1500
    assert seen["mq_network_bytes_out_total"] > 1500
    (software,) = [row for row in seen if row.startswith("mq_connections_by_software")]
    assert 'software="confluent-kafka-python"' in software
    assert seen['mq_metadata_latency_ms_count{operation="txn"}'] > 0
    (info,) = [row for row in seen if row.startswith("mq_broker_info")]
    assert f'cluster_id="{broker.broker.image.cluster_id}"' in info
    consumer.close()


def test_lag_in_time_grows_while_nobody_commits(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    producer.produce("t", b"value")
    assert producer.flush(DEADLINE_S) == 0
    consumer.commit(offsets=[TopicPartition("t", 0, 0)], asynchronous=False)
    row = 'mq_consumer_lag_seconds{group="g",topic="t",partition="0"}'
    first = rows(broker)[row]
    poll_until(lambda: rows(broker)[row] > first + 0.2, (consumer,))
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    assert rows(broker)[row] == 0
    consumer.close()
