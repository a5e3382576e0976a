"""How far behind a group is in time: the age of the first message it has yet to read."""

import time

import pytest
from confluent_kafka import Producer

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.group_lag import GroupView, PartitionLag, with_delays
from penstock.admin.text import render_duration
from penstock.model import TopicPartition
from penstock.testing import EmbeddedBroker

DEADLINE_S = 30
HOUR_S = 3600


def group(*partitions: PartitionLag) -> GroupView:
    return GroupView("g", "stable", "classic", "range", None, (), partitions)


def lag(partition: int, committed: int | None, end: int, start: int = 0) -> PartitionLag:
    return PartitionLag(TopicPartition("t", partition), committed, start, end, None, None)


@pytest.fixture
def cluster(penstock_broker: EmbeddedBroker) -> Cluster:
    found = Cluster(penstock_broker.bootstrap, {}, DEADLINE_S)
    created = found.ask(found.admin.create_topics, [admin_types().NewTopic("t", 4)])
    found.results(created, "creating topic")
    return found


def test_the_first_unread_message_says_how_far_behind(penstock_broker: EmbeddedBroker, cluster: Cluster) -> None:
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "linger.ms": 0})
    for hours in (30, 20, 10):
        producer.produce("t", b"x", partition=0, timestamp=now_ms - hours * HOUR_S * 1000)
        assert producer.flush(DEADLINE_S) == 0
    producer.produce("t", b"x", partition=1, timestamp=now_ms + HOUR_S * 1000)
    assert producer.flush(DEADLINE_S) == 0
    view = with_delays(cluster, group(lag(0, 1, 3), lag(1, 0, 1), lag(2, 0, 0), lag(3, None, 0)))
    first, future, empty, never = (one.behind_s for one in view.partitions)
    assert first is not None
    assert 20 * HOUR_S <= first < 21 * HOUR_S
    assert future == 0, "a clock ahead of ours is no lag"
    assert empty == 0
    assert never is None, "a group that has committed nothing has no place to be behind of"
    assert view.behind_s == first
    # What retention took away is not waited for: the place to read from is the start of the log.
    assert (lag(0, 1, 3, start=2).position, lag(0, 1, 3, start=2).lag) == (2, 1)


def test_offsets_without_messages_are_no_delay(penstock_broker: EmbeddedBroker, cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("t", b"x", partition=0)
    producer.abort_transaction(DEADLINE_S)
    view = with_delays(cluster, group(lag(0, 0, 2)))
    assert (view.total_lag, view.behind_s) == (2, 0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, None),
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3725, "1 h 2 min"),
        (86400 * 3 + 3600 * 4, "3 d 4 h"),
    ],
)
def test_a_delay_is_shown_in_its_two_largest_units(seconds: float | None, shown: str | None) -> None:
    assert render_duration(seconds) == shown
