"""What /metrics says of groups, followed through lives of real consumers of both protocols."""

import urllib.request
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
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
    second.unsubscribe()  # which leaves the group
    poll_until(lambda: len(first.assignment()) == 4, (first, second))
    assert rebalances(broker) == {"joined": 2, "left": 1}


def test_new_partitions_are_a_cause_of_their_own_in_the_consumer_protocol(broker: EmbeddedBroker, join: Join) -> None:
    consumer = join("consumer", 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions("t", 6)])["t"].result(DEADLINE_S)
    poll_until(lambda: len(consumer.assignment()) == 6, (consumer,))
    assert rebalances(broker) == {"joined": 1, "topics_changed": 1}
