"""Transactions as each client runs them: all of one is seen or none, over partitions, topics, offsets, and crashes."""

import pytest
from client import Client, Consumer, Producer, numbered
from driver import ClientError, Driver
from roster import clients

from penstock.testing import EmbeddedBroker
from penstock.testing.plugin import BrokerFactory

DEBITS = "debits"
CREDITS = "credits"
INPUT = "orders"
GROUP = "billing"
ID = "copier"
COMMITTED = "read_committed"
PARTITIONS = 2


def values(consumer: Consumer, count: int) -> list[int]:
    return [int(record.value or b"-1") for record in consumer.wait_for_records(count)]


def committed_offsets(client: Client, producer: Producer, topic: str) -> list[list[object]]:
    """The group's offsets once the producer's latest transaction has ended everywhere, which its next one waits for."""
    producer.begin_transaction()
    producer.send(topic, numbered(1))
    producer.abort_transaction()
    return client.admin("group_offsets", group=GROUP)


@clients()
def test_readers_of_committed_records_see_all_of_a_transaction_or_nothing(client: Client) -> None:
    client.create_topic(DEBITS, PARTITIONS)
    client.create_topic(CREDITS)
    producer = client.producer(transactional_id=ID)
    for start, is_commit in ((0, True), (10, False), (20, True), (30, False), (40, True)):
        producer.begin_transaction()
        producer.send(DEBITS, numbered(10, start=start, partitions=PARTITIONS))
        producer.send(CREDITS, numbered(10, start=start))
        producer.begin_end(is_commit=is_commit).result()

    everything = list(range(50))
    kept = [number for number in everything if number // 10 % 2 == 0]
    for topic, partition, of in ((DEBITS, 0, PARTITIONS), (DEBITS, 1, PARTITIONS), (CREDITS, 0, 1)):
        mine = [number for number in kept if number % of == partition]
        assert values(client.reader(topic, "beginning", partition, isolation=COMMITTED), len(mine)) == mine
        mine = [number for number in everything if number % of == partition]
        assert values(client.reader(topic, "beginning", partition), len(mine)) == mine


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@clients()
def test_an_open_transaction_holds_back_committed_readers_and_nobody_else(client: Client, is_commit: bool) -> None:
    client.create_topic(DEBITS)
    client.produce(DEBITS, numbered(5))
    producer = client.producer(transactional_id=ID)
    producer.begin_transaction()
    producer.send(DEBITS, numbered(5, start=5))
    client.produce(DEBITS, numbered(5, start=10))
    # One fetch would bring it all: that only the first five come is the broker's doing.
    committed = client.reader(DEBITS, "beginning", isolation=COMMITTED)
    assert values(committed, 5) == list(range(5))
    assert values(client.reader(DEBITS, "beginning"), 15) == list(range(15))
    assert len(committed.records) == 5, "neither the open transaction nor what lies behind it"
    producer.begin_end(is_commit=is_commit).result()
    kept = [*range(5), *(range(5, 10) if is_commit else ()), *range(10, 15)]
    assert values(committed, len(kept)) == kept


@clients()
def test_of_two_producers_with_one_id_the_younger_wins(client: Client) -> None:
    client.create_topic(DEBITS)
    older = client.producer(transactional_id=ID)
    older.begin_transaction()
    older.send(DEBITS, numbered(10))
    younger = client.producer(transactional_id=ID)
    younger.begin_transaction()
    younger.send(DEBITS, numbered(10, start=10))
    with pytest.raises(ClientError):
        older.commit_transaction()
    younger.commit_transaction()
    assert values(client.reader(DEBITS, "beginning", isolation=COMMITTED), 10) == list(range(10, 20))


@clients("transactional_offsets")
def test_offsets_are_committed_with_the_transaction_or_not_at_all(client: Client) -> None:
    client.create_topic(INPUT)
    client.create_topic(CREDITS)
    client.produce(INPUT, numbered(10))
    member = client.member(GROUP, INPUT, isolation=COMMITTED)
    values(member, 10)
    producer = client.producer(transactional_id=ID)

    producer.begin_transaction()
    producer.send(CREDITS, numbered(5))
    producer.send_offsets(member, GROUP, {(INPUT, 0): 5})
    producer.abort_transaction()
    assert committed_offsets(client, producer, CREDITS) == []

    producer.begin_transaction()
    producer.send(CREDITS, numbered(10))
    producer.send_offsets(member, GROUP, {(INPUT, 0): 10})
    producer.commit_transaction()
    assert committed_offsets(client, producer, CREDITS) == [[INPUT, 0, 10]]
    assert values(client.reader(CREDITS, "beginning", isolation=COMMITTED), 10) == list(range(10))


@clients("static_members", "fencing", "group_metadata")
def test_a_member_that_was_replaced_brings_no_offsets_into_a_transaction(client: Client) -> None:
    client.create_topic(INPUT)
    client.produce(INPUT, numbered(10))
    older = client.member(GROUP, INPUT, instance_id="one")
    values(older, 10)
    producer = client.producer(transactional_id=ID)
    newer = client.member(GROUP, INPUT, instance_id="one")
    values(newer, 10)

    producer.begin_transaction()
    with pytest.raises(ClientError):
        producer.send_offsets(older, GROUP, {(INPUT, 0): 10})
    producer.abort_transaction()
    assert committed_offsets(client, producer, CREDITS) == []
    producer.begin_transaction()
    producer.send_offsets(newer, GROUP, {(INPUT, 0): 7})
    producer.commit_transaction()
    assert committed_offsets(client, producer, CREDITS) == [[INPUT, 0, 7]]


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@clients()
def test_a_transaction_outlives_a_crash_of_the_broker(
    client: Client, penstock_broker: EmbeddedBroker, is_commit: bool
) -> None:
    client.create_topic(DEBITS, PARTITIONS)
    producer = client.producer(transactional_id=ID)
    producer.begin_transaction()
    producer.send(DEBITS, numbered(10, partitions=PARTITIONS))
    penstock_broker.crash_and_restart()
    producer.send(DEBITS, numbered(10, start=10, partitions=PARTITIONS))
    producer.begin_end(is_commit=is_commit).result()
    penstock_broker.crash_and_restart()
    producer.begin_transaction()
    producer.send(DEBITS, numbered(10, start=20, partitions=PARTITIONS))
    producer.commit_transaction()

    kept = list(range(0 if is_commit else 20, 30))
    for partition in range(PARTITIONS):
        mine = [number for number in kept if number % PARTITIONS == partition]
        assert values(client.reader(DEBITS, "beginning", partition, isolation=COMMITTED), len(mine)) == mine


@clients()
def test_a_transaction_left_open_is_aborted_and_its_producer_told(
    penstock_broker_factory: BrokerFactory, driver: Driver
) -> None:
    broker = penstock_broker_factory({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"})
    client = Client(driver, broker.bootstrap)
    client.create_topic(DEBITS)
    producer = client.producer(transactional_id=ID, transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.send(DEBITS, numbered(10))
    client.produce(DEBITS, numbered(10, start=10))
    # The reader gets past the open transaction only when it has been ended for good.
    assert values(client.reader(DEBITS, "beginning", isolation=COMMITTED), 10) == list(range(10, 20))
    with pytest.raises(ClientError):
        producer.commit_transaction()
    assert values(client.reader(DEBITS, "beginning", isolation=COMMITTED), 10) == list(range(10, 20))
