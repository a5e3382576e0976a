"""A topic that is deleted and made anew under its name, while clients are at work on it."""

import pytest
from client import Client, numbered
from driver import ClientError, Driver
from roster import clients

from penstock.testing.plugin import BrokerFactory

TOPIC = "phoenix"

# A client that asks for the topic while it is gone would else bring it back before we do.
NO_AUTO_CREATION = {"auto.create.topics.enable": "false"}


@clients("recreated_topics")
def test_a_producer_goes_on_in_the_new_topic(penstock_broker_factory: BrokerFactory, driver: Driver) -> None:
    client = Client(driver, penstock_broker_factory(NO_AUTO_CREATION).bootstrap)
    client.create_topic(TOPIC)
    producer = client.producer(idempotent=False)
    assert producer.send(TOPIC, numbered(10)) == [(0, offset) for offset in range(10)]
    client.admin("delete_topic", topic=TOPIC)
    client.create_topic(TOPIC)
    assert producer.send(TOPIC, numbered(5)) == [(0, offset) for offset in range(5)]
    assert len(client.read(TOPIC, 5)) == 5


@clients("recreated_topics")
def test_an_idempotent_producer_goes_on_in_the_new_topic(
    penstock_broker_factory: BrokerFactory, driver: Driver
) -> None:
    client = Client(driver, penstock_broker_factory(NO_AUTO_CREATION).bootstrap)
    client.create_topic(TOPIC)
    producer = client.producer(idempotent=True)
    producer.send(TOPIC, numbered(10))
    client.admin("delete_topic", topic=TOPIC)
    client.create_topic(TOPIC)
    assert producer.send(TOPIC, numbered(5)) == [(0, offset) for offset in range(5)]


@clients("recreated_topics")
def test_a_member_reads_the_new_topic_from_its_start(penstock_broker_factory: BrokerFactory, driver: Driver) -> None:
    client = Client(driver, penstock_broker_factory(NO_AUTO_CREATION).bootstrap)
    client.create_topic(TOPIC)
    client.produce(TOPIC, numbered(20))
    member = client.member("readers", TOPIC)
    member.wait_for_records(20)
    member.commit()
    client.admin("delete_topic", topic=TOPIC)
    client.create_topic(TOPIC)
    client.produce(TOPIC, numbered(5, start=100))
    member.wait_until(lambda: len(member.records) >= 25, "the records of the new topic")
    assert [int(value or b"") for value in member.values] == [*range(20), *range(100, 105)]


@clients()
def test_commits_of_the_old_topic_do_not_hold_for_the_new(
    penstock_broker_factory: BrokerFactory, driver: Driver
) -> None:
    client = Client(driver, penstock_broker_factory(NO_AUTO_CREATION).bootstrap)
    client.create_topic(TOPIC)
    client.produce(TOPIC, numbered(5))
    old = client.member("readers", TOPIC)
    old.wait_for_records(5)
    old.commit()
    old.close()
    client.admin("delete_topic", topic=TOPIC)
    client.create_topic(TOPIC)
    client.produce(TOPIC, numbered(10))
    new = client.member("readers", TOPIC)
    assert [int(record.value or b"") for record in new.wait_for_records(10)] == list(range(10))


@clients(only=("franz-go",))
def test_a_client_that_holds_on_to_the_old_topic_is_told_that_it_is_gone(
    penstock_broker_factory: BrokerFactory, driver: Driver
) -> None:
    client = Client(driver, penstock_broker_factory(NO_AUTO_CREATION).bootstrap)
    client.create_topic(TOPIC)
    producer = client.producer()
    producer.send(TOPIC, numbered(3))
    client.admin("delete_topic", topic=TOPIC)
    client.create_topic(TOPIC)
    with pytest.raises(ClientError, match="UNKNOWN_TOPIC_ID"):
        producer.send(TOPIC, numbered(1))
