"""Commits to a consumer group without being a member of it, and finding a group by what was committed: librdkafka.

Called by progress_group.py, from its thread in the driver or in a task.
"""

from collections.abc import Mapping
from typing import Any

from penstock.model import TopicPartition

REQUEST_TIMEOUT_S = 5.0
# So many groups are asked at the same time.
SEARCH_WIDTH = 50

# Of all that a source or a sink may be given, what a client that only commits understands.
_WANTED = (
    "bootstrap.servers",
    "security.protocol",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "socket.",
    "broker.address",
    "client.",
)


class LibrdkafkaGroups:
    def __init__(self, settings: Mapping[str, str]) -> None:
        # Its own lines on stderr would only repeat what comes as an exception.
        self._settings = {name: value for name, value in settings.items() if name.startswith(_WANTED)} | {
            "log_level": "0"
        }
        self._admin: Any = None
        self._consumers: dict[str, Any] = {}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        import confluent_kafka as ck

        consumer = self._consumers.get(group)
        if consumer is None:
            consumer = self._consumers[group] = ck.Consumer(
                self._settings
                | {"group.id": group, "enable.auto.commit": "false", "topic.metadata.refresh.interval.ms": "-1"}
            )
        answers = consumer.commit(
            offsets=[ck.TopicPartition(at.topic, at.partition, offset, metadata) for at, offset in offsets.items()],
            asynchronous=False,
        )
        failed = [answer for answer in answers if answer.error is not None]
        if failed:
            raise ck.KafkaException(failed[0].error)

    def find(self, prefix: str, metadata: str) -> str | None:
        """The group that begins with `prefix` and in which somebody committed with this metadata."""
        import confluent_kafka as ck
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(dict(self._settings))
        admin = self._admin
        listed = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
        groups = sorted(one.group_id for one in listed.valid if one.group_id.startswith(prefix))
        for first in range(0, len(groups), SEARCH_WIDTH):
            asked = [
                admin.list_consumer_group_offsets(
                    [ck.ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S
                )[group]
                for group in groups[first : first + SEARCH_WIDTH]
            ]
            for answer in asked:
                found = answer.result(REQUEST_TIMEOUT_S)
                if any(one.metadata == metadata for one in found.topic_partitions or []):
                    return str(found.group_id)
        return None

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
