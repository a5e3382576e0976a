"""confluent-kafka (librdkafka) against a real broker."""

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from penstock.testing import EmbeddedBroker


def produce(bootstrap: str, topic: str, count: int, **settings: object) -> list[int]:
    """Offsets of `count` messages, in the order they were sent."""
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for number in range(count):
        producer.produce(topic, str(number), partition=0, on_delivery=delivered)
    assert producer.flush(30) == 0
    return offsets


def read_from(bootstrap: str, topic: str, offset: int, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, offset)])
    values: list[str] = []
    while len(values) < count:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        values.append(message.value().decode())
    consumer.close()
    return values


def test_what_is_produced_is_read_back_in_order(penstock_broker: EmbeddedBroker) -> None:
    offsets = produce(penstock_broker.bootstrap, "walk", 1000)
    assert offsets == list(range(1000))
    assert read_from(penstock_broker.bootstrap, "walk", 0, 1000) == [str(number) for number in range(1000)]


def test_acknowledged_messages_survive_a_crash(penstock_broker: EmbeddedBroker) -> None:
    produce(penstock_broker.bootstrap, "walk", 500, acks="all")
    penstock_broker.crash_and_restart()
    assert produce(penstock_broker.bootstrap, "walk", 1) == [500]
    assert read_from(penstock_broker.bootstrap, "walk", 0, 500) == [str(number) for number in range(500)]
