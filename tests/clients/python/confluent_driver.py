"""confluent-kafka (librdkafka) behind the vocabulary of drivers."""

# The library has no or few types of its own.
# pyright: basic, reportMissingTypeStubs=false, reportPrivateImportUsage=false

import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from serve_commands import POLL_S, PollingConsumer, Told, decoded, encoded, serve, tell

FLUSH_S = 40
CALL_S = 30

# A client in a test comes back at once; the defaults wait up to ten seconds.
QUICK: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 300,
}
STRATEGIES = {"range": "range", "roundrobin": "roundrobin", "cooperative": "cooperative-sticky"}
RESOURCES = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}


class ConfluentDriver:
    def __init__(self) -> None:
        self._producers: dict[str, Producer] = {}
        self._consumers: dict[str, tuple[PollingConsumer, Consumer]] = {}
        self._admins: dict[str, AdminClient] = {}

    def open_producer(
        self,
        producer: str,
        bootstrap: str,
        compression: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        transactional_id: str | None = None,
        batch_records: int | None = None,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "compression.type": compression,
            "acks": acks,
            "enable.idempotence": idempotent or transactional_id is not None,
            **QUICK,
        }
        if batch_records is not None:
            settings["batch.num.messages"] = batch_records
        if transactional_id is not None:
            settings["transactional.id"] = transactional_id
            settings["transaction.timeout.ms"] = transaction_timeout_ms
        opened = Producer(settings)
        if transactional_id is not None:
            opened.init_transactions(CALL_S)
        self._producers[producer] = opened

    def send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> list[list[int]]:
        opened = self._producers[producer]
        answers: list[list[int]] = [[]] * len(records)
        failures: list[KafkaError] = []

        def note(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            answers[number] = [message.partition() or 0, message.offset() or 0]

        for number, record in enumerate(records):
            opened.produce(
                topic,
                decoded(record["value"]),
                decoded(record["key"]),
                -1 if record["partition"] is None else record["partition"],
                lambda error, message, number=number: note(number, error, message),
                timestamp=record["timestamp"] or 0,
                headers=[(name, decoded(value)) for name, value in record["headers"]],
            )
        left = opened.flush(FLUSH_S)
        if failures:
            raise KafkaException(failures[0])
        assert left == 0, f"{left} records were not acknowledged in {FLUSH_S} s"
        return answers

    def begin_transaction(self, producer: str) -> None:
        self._producers[producer].begin_transaction()

    def send_offsets(self, producer: str, consumer: str, group: str, offsets: list[list[Any]]) -> None:
        reached = [TopicPartition(topic, partition, offset) for topic, partition, offset in offsets]
        polling, opened = self._consumers[consumer]
        metadata = polling.run(opened.consumer_group_metadata)
        self._producers[producer].send_offsets_to_transaction(reached, metadata, CALL_S)

    def end_transaction(self, producer: str, commit: bool) -> None:
        opened = self._producers[producer]
        if commit:
            opened.commit_transaction(CALL_S)
        else:
            opened.abort_transaction(CALL_S)

    def close_producer(self, producer: str) -> None:
        self._producers.pop(producer).flush(FLUSH_S)

    def open_consumer(
        self,
        consumer: str,
        bootstrap: str,
        group: str | None = None,
        topics: Iterable[str] = (),
        assign: dict[str, Any] | None = None,
        reset: str = "earliest",
        strategy: str = "range",
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        isolation: str = "read_uncommitted",
        protocol: str = "classic",
    ) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group or f"reader-{consumer}",
            "client.id": consumer,
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
            "isolation.level": isolation,
            "enable.partition.eof": assign is not None,
            "fetch.wait.max.ms": 100,  # closing waits for the last fetch
            **QUICK,
        }
        if protocol == "classic":
            # In the consumer protocol all of this is the broker's business.
            settings["partition.assignment.strategy"] = STRATEGIES[strategy]
            settings["session.timeout.ms"] = session_timeout_ms
            settings["heartbeat.interval.ms"] = 200
        else:
            settings["group.protocol"] = protocol
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        opened = Consumer(settings)
        at_end = threading.Event()

        def poll() -> Iterable[Told]:
            for message in opened.consume(500, POLL_S):
                error = message.error()
                if error is None:
                    yield _told(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.set()
                elif not error.retriable() and error.code() not in PASSING:
                    raise KafkaException(error)

        polling = PollingConsumer(consumer, poll)
        self._consumers[consumer] = polling, opened
        if assign is None:
            opened.subscribe(
                list(topics),
                on_assign=lambda _, taken: tell(consumer=consumer, assigned=_names(taken)),
                on_revoke=lambda _, given: tell(consumer=consumer, revoked=_names(given)),
                on_lost=lambda _, given: tell(consumer=consumer, revoked=_names(given)),
            )
            polling.start()
            return
        opened.assign([_start(opened, assign["topic"], assign["partition"], assign["start"])])
        polling.start()
        if assign["start"] == "end":
            assert at_end.wait(CALL_S), "the end was not found"

    def commit(self, consumer: str) -> None:
        polling, opened = self._consumers[consumer]
        polling.run(lambda: opened.commit(asynchronous=False))

    def close_consumer(self, consumer: str) -> None:
        polling, opened = self._consumers.pop(consumer)
        polling.close(opened.close)

    def close_all(self) -> None:
        for consumer in list(self._consumers):
            self.close_consumer(consumer)
        self._producers.clear()
        self._admins.clear()

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _only(self._admin(bootstrap).create_topics([NewTopic(topic, partitions, 1, config=configs)]))

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        _only(self._admin(bootstrap).delete_topics([topic]))

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        _only(self._admin(bootstrap).create_partitions([NewPartitions(topic, count)]))

    def list_topics(self, bootstrap: str) -> list[str]:
        return list(self._admin(bootstrap).list_topics(timeout=CALL_S).topics)

    def describe_topic(self, bootstrap: str, topic: str) -> dict[str, Any]:
        described = _only(self._admin(bootstrap).describe_topics(TopicCollection([topic])))
        return {"partitions": len(described.partitions)}

    def describe_config(self, bootstrap: str, kind: str, name: str) -> dict[str, str | None]:
        described = _only(self._admin(bootstrap).describe_configs([ConfigResource(RESOURCES[kind], name)]))
        return {entry.name: entry.value for entry in described.values()}

    def alter_config(self, bootstrap: str, kind: str, name: str, change: dict[str, str | None]) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            if value is not None
            else ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
            for key, value in change.items()
        ]
        resource = ConfigResource(RESOURCES[kind], name, incremental_configs=entries)
        _only(self._admin(bootstrap).incremental_alter_configs([resource]))

    def replace_config(self, bootstrap: str, kind: str, name: str, configs: dict[str, str]) -> None:
        _only(self._admin(bootstrap).alter_configs([ConfigResource(RESOURCES[kind], name, set_config=configs)]))

    def list_groups(self, bootstrap: str) -> list[str]:
        listed = self._admin(bootstrap).list_consumer_groups().result(CALL_S)
        assert not listed.errors, listed.errors
        return [group.group_id for group in listed.valid]

    def describe_group(self, bootstrap: str, group: str) -> dict[str, Any]:
        described = _only(self._admin(bootstrap).describe_consumer_groups([group]))
        return {
            "state": described.state.name,
            "members": [
                {"client_id": member.client_id, "partitions": _names(member.assignment.topic_partitions)}
                for member in described.members
            ],
        }

    def delete_group(self, bootstrap: str, group: str) -> None:
        _only(self._admin(bootstrap).delete_consumer_groups([group]))

    def group_offsets(self, bootstrap: str, group: str) -> list[list[Any]]:
        listed = _only(self._admin(bootstrap).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
        return [[place.topic, place.partition, place.offset] for place in listed.topic_partitions]

    def alter_offsets(self, bootstrap: str, group: str, offsets: list[list[Any]]) -> None:
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*place) for place in offsets])
        altered = _only(self._admin(bootstrap).alter_consumer_group_offsets([wanted]))
        for place in altered.topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)

    def list_offset(self, bootstrap: str, topic: str, partition: int, at: Any) -> int:
        spec = {
            "earliest": OffsetSpec.earliest,
            "latest": OffsetSpec.latest,
            "max_timestamp": OffsetSpec.max_timestamp,
        }
        wanted = OffsetSpec.for_timestamp(at["time"]) if isinstance(at, dict) else spec[at]()
        return _only(self._admin(bootstrap).list_offsets({TopicPartition(topic, partition): wanted})).offset

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> int:
        return _only(self._admin(bootstrap).delete_records([TopicPartition(topic, partition, before)])).low_watermark

    def describe_cluster(self, bootstrap: str) -> dict[str, Any]:
        described = self._admin(bootstrap).describe_cluster().result(CALL_S)
        return {
            "cluster_id": described.cluster_id,
            "controller": described.controller.id,
            "brokers": [[node.id, node.host, node.port] for node in described.nodes],
        }

    def _admin(self, bootstrap: str) -> AdminClient:
        # Kept: a client that nobody holds is gone before its answer comes.
        if bootstrap not in self._admins:
            self._admins[bootstrap] = AdminClient({"bootstrap.servers": bootstrap, **QUICK})
        return self._admins[bootstrap]


# librdkafka tells the application of these, and goes on by itself.
PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.UNKNOWN_TOPIC_OR_PART}


def _only(futures: dict[Any, Any]) -> Any:
    """The one answer of a call that can answer for many."""
    (future,) = futures.values()
    return future.result(CALL_S)


def _names(partitions: Iterable[TopicPartition]) -> list[list[Any]]:
    return [[partition.topic, partition.partition] for partition in partitions]


def _start(consumer: Consumer, topic: str, partition: int, start: Any) -> TopicPartition:
    if isinstance(start, dict):
        return consumer.offsets_for_times([TopicPartition(topic, partition, start["time"])], CALL_S)[0]
    offset: Any = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}.get(start, start)
    return TopicPartition(topic, partition, offset)


def _told(message: Message) -> Told:
    _, timestamp = message.timestamp()
    pairs: Any = message.headers() or ()
    headers = [(name, encoded(value)) for name, value in pairs]
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Told(topic, partition, offset, timestamp, encoded(message.key()), encoded(message.value()), headers)


if __name__ == "__main__":
    serve(ConfluentDriver())
