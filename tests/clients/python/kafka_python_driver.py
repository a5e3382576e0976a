"""kafka-python behind the vocabulary of drivers."""

# The types pyright has for it are of an older version.
# pyright: basic, reportMissingTypeStubs=false, reportAttributeAccessIssue=false, reportArgumentType=false

from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.structs import OffsetAndMetadata
from serve_commands import POLL_S, PollingConsumer, Told, decoded, encoded, serve, tell

SEND_S = 40
RECORD_BYTES = 24  # about what one of our numbered records takes in a batch, to turn their number into bytes
QUICK: dict[str, Any] = {
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "retry_backoff_ms": 20,
    "metadata_max_age_ms": 300,
}
STRATEGIES = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}
SPECS = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST, "max_timestamp": OffsetSpec.MAX_TIMESTAMP}


class Teller(ConsumerRebalanceListener):
    def __init__(self, consumer: str) -> None:
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        tell(consumer=self._consumer, assigned=[list(partition) for partition in assigned])

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        tell(consumer=self._consumer, revoked=[list(partition) for partition in revoked])


class KafkaPythonDriver:
    def __init__(self) -> None:
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, tuple[PollingConsumer, Any]] = {}
        self._admins: dict[str, Any] = {}

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
        settings: dict[str, Any] = dict(QUICK)
        if batch_records is not None:
            settings["batch_size"] = batch_records * RECORD_BYTES
        opened = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent or transactional_id is not None,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            **settings,
        )
        self._producers[producer] = opened
        if transactional_id is not None:
            opened.init_transactions()

    def send(self, producer: str, topic: str, records: list[dict[str, Any]]) -> list[list[int]]:
        opened = self._producers[producer]
        futures = [
            opened.send(
                topic,
                value=decoded(record["value"]),
                key=decoded(record["key"]),
                headers=[(name, decoded(value)) for name, value in record["headers"]],
                partition=record["partition"],
                timestamp_ms=record["timestamp"],
            )
            for record in records
        ]
        answers = [future.get(SEND_S) for future in futures]
        return [[answer.partition, answer.offset] for answer in answers]

    def begin_transaction(self, producer: str) -> None:
        self._producers[producer].begin_transaction()

    def send_offsets(self, producer: str, consumer: str, group: str, offsets: list[list[Any]]) -> None:
        reached = {TopicPartition(topic, index): OffsetAndMetadata(offset, "", -1) for topic, index, offset in offsets}
        polling, opened = self._consumers[consumer]
        self._producers[producer].send_offsets_to_transaction(reached, polling.run(opened.group_metadata))

    def end_transaction(self, producer: str, commit: bool) -> None:
        opened = self._producers[producer]
        if commit:
            opened.commit_transaction()
        else:
            opened.abort_transaction()

    def close_producer(self, producer: str) -> None:
        self._producers.pop(producer).close()

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
        opened = KafkaConsumer(
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
            fetch_max_wait_ms=100,
            **QUICK,
        )

        def poll() -> Iterable[Told]:
            # kafka-python 3.0.12 forgets a join it began because of new metadata, if the poll ends in the middle of it.
            if opened._coordinator is not None and opened._coordinator._join_task is not None:
                opened._coordinator.rejoin_needed = True
            for records in opened.poll(int(POLL_S * 1000)).values():
                yield from map(_told, records)

        polling = PollingConsumer(consumer, poll)
        self._consumers[consumer] = polling, opened
        if assign is None:
            opened.subscribe(list(topics), listener=Teller(consumer))
        else:
            partition = TopicPartition(assign["topic"], assign["partition"])
            opened.assign([partition])
            _seek(opened, partition, assign["start"])
        polling.start()

    def commit(self, consumer: str) -> None:
        polling, opened = self._consumers[consumer]
        polling.run(opened.commit)

    def close_consumer(self, consumer: str) -> None:
        polling, opened = self._consumers.pop(consumer)
        polling.close(lambda: opened.close(autocommit=False))

    def close_all(self) -> None:
        for consumer in list(self._consumers):
            self.close_consumer(consumer)
        for producer in list(self._producers):
            self._producers.pop(producer).close(timeout=1)
        for bootstrap in list(self._admins):
            self._admins.pop(bootstrap).close()

    def create_topic(self, bootstrap: str, topic: str, partitions: int, configs: dict[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
        self._admin(bootstrap).create_topics({topic: wanted})

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        self._admin(bootstrap).delete_topics([topic])

    def create_partitions(self, bootstrap: str, topic: str, count: int) -> None:
        self._admin(bootstrap).create_partitions({topic: count})

    def list_topics(self, bootstrap: str) -> list[str]:
        return self._admin(bootstrap).list_topics()

    def describe_topic(self, bootstrap: str, topic: str) -> dict[str, Any]:
        (described,) = self._admin(bootstrap).describe_topics([topic])
        return {"partitions": len(described["partitions"])}

    def describe_config(self, bootstrap: str, kind: str, name: str) -> dict[str, str | None]:
        described = self._admin(bootstrap).describe_configs([ConfigResource(kind, name)], config_filter="all")
        return {key: entry["value"] for key, entry in described[kind][name].items()}

    def alter_config(self, bootstrap: str, kind: str, name: str, change: dict[str, str | None]) -> None:
        entries = {
            key: (AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value) for key, value in change.items()
        }
        self._check_altered(bootstrap, ConfigResource(kind, name, entries), incremental=True)

    def _check_altered(self, bootstrap: str, resource: ConfigResource, incremental: bool) -> None:
        answers = self._admin(bootstrap).alter_configs([resource], incremental=incremental)
        for named in answers.values():
            for answer in named.values():
                if answer != "OK":
                    raise RuntimeError(answer)

    def list_groups(self, bootstrap: str) -> list[str]:
        return [group["group_id"] for group in self._admin(bootstrap).list_groups()]

    def describe_group(self, bootstrap: str, group: str) -> dict[str, Any]:
        described = self._admin(bootstrap).describe_groups([group])[group]
        if described["error"] is not None:
            raise RuntimeError(described["error"])
        return {
            "state": described["group_state"],
            "members": [
                {
                    "client_id": member["client_id"],
                    "partitions": [
                        [assigned["topic"], partition]
                        for assigned in member["member_assignment"]["assigned_partitions"]
                        for partition in assigned["partitions"]
                    ],
                }
                for member in described["members"]
            ],
        }

    def delete_group(self, bootstrap: str, group: str) -> None:
        answer = self._admin(bootstrap).delete_groups([group])[group]
        if answer != "OK":
            raise RuntimeError(answer)

    def group_offsets(self, bootstrap: str, group: str) -> list[list[Any]]:
        offsets = self._admin(bootstrap).list_group_offsets(group)[group]
        return [[*partition, committed.offset] for partition, committed in offsets.items()]

    def alter_offsets(self, bootstrap: str, group: str, offsets: list[list[Any]]) -> None:
        wanted = {TopicPartition(topic, index): OffsetAndMetadata(offset, "", -1) for topic, index, offset in offsets}
        for error in self._admin(bootstrap).alter_group_offsets(group, wanted).values():
            if error.errno != 0:
                raise error

    def delete_offsets(self, bootstrap: str, group: str, topic: str, partition: int) -> None:
        answers = self._admin(bootstrap).delete_group_offsets(group, [TopicPartition(topic, partition)])
        for error in answers.values():
            if error.errno != 0:
                raise error

    def list_offset(self, bootstrap: str, topic: str, partition: int, at: Any) -> int:
        place = TopicPartition(topic, partition)
        wanted = at["time"] if isinstance(at, dict) else SPECS[at]
        return self._admin(bootstrap).list_partition_offsets({place: wanted})[place].offset

    def delete_records(self, bootstrap: str, topic: str, partition: int, before: int) -> int:
        place = TopicPartition(topic, partition)
        return self._admin(bootstrap).delete_records({place: before})[place]["low_watermark"]

    def describe_cluster(self, bootstrap: str) -> dict[str, Any]:
        described = self._admin(bootstrap).describe_cluster()
        return {
            "cluster_id": described["cluster_id"],
            "controller": described["controller_id"],
            "brokers": [[broker["broker_id"], broker["host"], broker["port"]] for broker in described["brokers"]],
        }

    def log_dirs(self, bootstrap: str) -> list[list[Any]]:
        return [
            [topic["name"], partition["partition_index"], partition["partition_size"]]
            for broker in self._admin(bootstrap).describe_log_dirs()
            for log_dir in broker["log_dirs"]
            for topic in log_dir["topics"]
            for partition in topic["partitions"]
        ]

    def _admin(self, bootstrap: str) -> Any:
        if bootstrap not in self._admins:
            self._admins[bootstrap] = KafkaAdminClient(bootstrap_servers=bootstrap, **QUICK)
        return self._admins[bootstrap]


def _seek(consumer: Any, partition: TopicPartition, start: Any) -> None:
    if isinstance(start, dict):
        consumer.seek(partition, consumer.offsets_for_times({partition: start["time"]})[partition].offset)
    elif start == "beginning":
        consumer.seek_to_beginning(partition)
    elif start == "end":
        consumer.seek_to_end(partition)
    else:
        consumer.seek(partition, start)
    consumer.position(partition)  # asks the broker now, not at the next poll


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
    serve(KafkaPythonDriver())
