"""aiokafka behind the vocabulary of drivers. All of it runs on one event loop, beside the threads of the commands."""

# The library has no or few types of its own.
# pyright: basic, reportMissingTypeStubs=false, reportPrivateImportUsage=false

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import for_code
from serve_commands import Told, decoded, encoded, serve, tell

CALL_S = 40
RECORD_BYTES = 24  # about what one of our numbered records takes in a batch, to turn their number into bytes
QUICK: dict[str, Any] = {"retry_backoff_ms": 20, "metadata_max_age_ms": 300}
STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
RESOURCES = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}


class Teller(ConsumerRebalanceListener):
    def __init__(self, consumer: str) -> None:
        self._consumer = consumer

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        tell(consumer=self._consumer, assigned=[list(partition) for partition in assigned])

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        tell(consumer=self._consumer, revoked=[list(partition) for partition in revoked])


class AiokafkaDriver:
    def __init__(self) -> None:
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._consumers: dict[str, tuple[AIOKafkaConsumer, asyncio.Task[None]]] = {}
        self._admins: dict[str, AIOKafkaAdminClient] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

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
        async def start() -> None:
            settings: dict[str, Any] = dict(QUICK)
            if batch_records is not None:
                settings["max_batch_size"] = batch_records * RECORD_BYTES
            opened = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if compression == "none" else compression,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=idempotent,
                transactional_id=transactional_id,
                transaction_timeout_ms=transaction_timeout_ms,
                **settings,
            )
            self._producers[producer] = opened
            await opened.start()

        self._run(start())

    def send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> list[list[int | None]]:
        async def send_all() -> list[list[int | None]]:
            opened = self._producers[producer]
            futures = [
                await opened.send(
                    topic,
                    decoded(record["value"]),
                    decoded(record["key"]),
                    record["partition"],
                    record["timestamp"],
                    [(name, decoded(value)) for name, value in record["headers"]],
                )
                for record in records
            ]
            answers = await asyncio.gather(*futures)
            return [[answer.partition, answer.offset] if answer is not None else [None, None] for answer in answers]

        return self._run(send_all())

    def begin_transaction(self, producer: str) -> None:
        self._run(self._producers[producer].begin_transaction())

    def send_offsets(self, producer: str, consumer: str, group: str, offsets: list[list[Any]]) -> None:
        # It knows the group by its name alone, not who in the group asks.
        reached = {TopicPartition(topic, partition): offset for topic, partition, offset in offsets}
        self._run(self._producers[producer].send_offsets_to_transaction(reached, group))

    def end_transaction(self, producer: str, commit: bool) -> None:
        opened = self._producers[producer]
        self._run(opened.commit_transaction() if commit else opened.abort_transaction())

    def close_producer(self, producer: str) -> None:
        self._run(self._producers.pop(producer).stop())

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
    ) -> None:
        async def start() -> None:
            opened = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                client_id=consumer,
                group_instance_id=instance_id,
                enable_auto_commit=False,
                auto_offset_reset=reset,
                partition_assignment_strategy=[STRATEGIES[strategy]],
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=200,
                isolation_level=isolation,
                **QUICK,
            )
            if assign is None:
                opened.subscribe(list(topics), listener=Teller(consumer))
                await opened.start()
            else:
                await opened.start()
                partition = TopicPartition(assign["topic"], assign["partition"])
                opened.assign([partition])
                await _seek(opened, partition, assign["start"])
            self._consumers[consumer] = opened, asyncio.create_task(_poll(consumer, opened))

        self._run(start())

    def commit(self, consumer: str) -> None:
        self._run(self._consumers[consumer][0].commit())

    def close_consumer(self, consumer: str) -> None:
        async def stop() -> None:
            opened, polling = self._consumers.pop(consumer)
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling
            await opened.stop()

        self._run(stop())

    def close_all(self) -> None:
        for consumer in list(self._consumers):
            self.close_consumer(consumer)
        for producer in list(self._producers):
            self.close_producer(producer)
        for bootstrap in list(self._admins):
            self._run(self._admins.pop(bootstrap).close())

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: dict[str, str]) -> None:
        wanted = NewTopic(topic, partitions, 1, topic_configs=configs)
        _check(self._run(self._admin(bootstrap).create_topics([wanted])).topic_errors)

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        _check(self._run(self._admin(bootstrap).delete_topics([topic])).topic_error_codes)

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        self._run(self._admin(bootstrap).create_partitions({topic: NewPartitions(count)}))

    def list_topics(self, bootstrap: str) -> list[str]:
        return self._run(self._admin(bootstrap).list_topics())

    def describe_topic(self, bootstrap: str, topic: str) -> dict[str, Any]:
        (described,) = self._run(self._admin(bootstrap).describe_topics([topic]))
        return {"partitions": len(described["partitions"])}

    def describe_config(self, bootstrap: str, kind: str, name: str) -> dict[str, str | None]:
        (described,) = self._run(self._admin(bootstrap).describe_configs([ConfigResource(RESOURCES[kind], name)]))
        (resource,) = described.resources
        return {entry[0]: entry[1] for entry in resource[-1]}

    def replace_config(self, bootstrap: str, kind: str, name: str, configs: dict[str, str]) -> None:
        resource = ConfigResource(RESOURCES[kind], name, configs)
        for response in self._run(self._admin(bootstrap).alter_configs([resource])):
            _check((name, code, message) for code, message, *_ in response.resources)

    def list_groups(self, bootstrap: str) -> list[str]:
        return [group for group, *_ in self._run(self._admin(bootstrap).list_consumer_groups())]

    def describe_group(self, bootstrap: str, group: str) -> dict[str, Any]:
        (response,) = self._run(self._admin(bootstrap).describe_consumer_groups([group]))
        ((code, name, state, _, _, members, *_),) = response.groups
        _check([(name, code)])
        return {
            "state": state,
            "members": [
                {
                    "client_id": member[1] if len(member) == 5 else member[2],
                    "partitions": [
                        [topic, partition]
                        for topic, partitions in ConsumerProtocolMemberAssignment.decode(member[-1]).assignment
                        for partition in partitions
                    ],
                }
                for member in members
            ],
        }

    def group_offsets(self, bootstrap: str, group: str) -> list[list[Any]]:
        offsets = self._run(self._admin(bootstrap).list_consumer_group_offsets(group))
        return [[*partition, committed.offset] for partition, committed in offsets.items()]

    def list_offset(self, bootstrap: str, topic: str, partition: int, at: Any) -> int:
        async def ask() -> int:
            place = TopicPartition(topic, partition)
            asking = AIOKafkaConsumer(bootstrap_servers=bootstrap)
            await asking.start()
            try:
                if isinstance(at, dict):
                    return (await asking.offsets_for_times({place: at["time"]}))[place].offset
                ends = asking.beginning_offsets if at == "earliest" else asking.end_offsets
                return (await ends([place]))[place]
            finally:
                await asking.stop()

        return self._run(ask())

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return self._run(self._admin(bootstrap).delete_records({place: RecordsToDelete(before)}))[place]

    def describe_cluster(self, bootstrap: str) -> dict[str, Any]:
        described = self._run(self._admin(bootstrap).describe_cluster())
        return {
            "cluster_id": described["cluster_id"],
            "controller": described["controller_id"],
            "brokers": [[broker["node_id"], broker["host"], broker["port"]] for broker in described["brokers"]],
        }

    def _admin(self, bootstrap: str) -> AIOKafkaAdminClient:
        async def start() -> None:
            self._admins[bootstrap] = AIOKafkaAdminClient(bootstrap_servers=bootstrap, **QUICK)
            await self._admins[bootstrap].start()

        if bootstrap not in self._admins:
            self._run(start())
        return self._admins[bootstrap]

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)


async def _poll(name: str, consumer: AIOKafkaConsumer) -> None:
    while True:
        try:
            batches = await consumer.getmany(timeout_ms=1000)
        except Exception as error:
            tell(consumer=name, failed=f"{type(error).__name__}: {error}")
            return
        records = [_told(record) for batch in batches.values() for record in batch]
        if records:
            tell(consumer=name, records=records)


async def _seek(consumer: AIOKafkaConsumer, partition: TopicPartition, start: Any) -> None:
    if isinstance(start, dict):
        found = await consumer.offsets_for_times({partition: start["time"]})
        consumer.seek(partition, found[partition].offset)
    elif start == "beginning":
        await consumer.seek_to_beginning(partition)
    elif start == "end":
        await consumer.seek_to_end(partition)
    else:
        consumer.seek(partition, start)
    await consumer.position(partition)


def _check(answers: Iterable[tuple[Any, ...]]) -> None:
    """Raise the error of a response that aiokafka hands over as it came."""
    for name, code, *message in answers:
        if code:
            raise for_code(code)(f"{name}: {message}")


def _told(record: Any) -> Told:
    headers = [(name, encoded(value)) for name, value in record.headers]
    return Told(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        encoded(record.key),
        encoded(record.value),
        headers,
    )


if __name__ == "__main__":
    serve(AiokafkaDriver())
