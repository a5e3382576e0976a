"""The schemas topic itself: made when it is missing, refused when it could lose schemas.

Called by registry.py, in a thread: everything here waits for the cluster.
Law: a topic that is not compacted forgets by age or size. Better no registry than one that forgets.
"""

import logging
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 4 * (1 << 20) + (64 << 10)
"""One schema record at its largest, its key, and what frames them."""
ENVELOPE_BYTES = 200
REPLICAS = 3
ASK_TIMEOUT_S = 10.0


class TopicUnfit(PenstockError):
    """The topic exists and must not be used: one sentence that says what to do."""


class TopicNotReady(PenstockError):
    """The cluster does not answer, or not yet."""


def ensure_topic(bootstrap: str, properties: Mapping[str, str], topic: str) -> int:
    """How many bytes a record may have there."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin: Any = AdminClient(
        {**properties, "bootstrap.servers": bootstrap, "client.id": "penstock-registry"}, logger=log
    )
    try:
        cluster: Any = admin.list_topics(timeout=ASK_TIMEOUT_S)
        if topic not in cluster.topics:
            _create(admin, topic, len(cluster.brokers))
        return _check(admin, topic)
    except KafkaException as error:
        raise TopicNotReady(f"the topic {topic} cannot be looked at: {error.args[0].str()}") from None


def _create(admin: Any, topic: str, brokers: int) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.cimpl import NewTopic

    wanted = NewTopic(
        topic,
        num_partitions=1,
        replication_factor=max(1, min(REPLICAS, brokers)),
        config={"cleanup.policy": "compact", "max.message.bytes": str(MESSAGE_BYTES_MAX)},
    )
    try:
        admin.create_topics([wanted], operation_timeout=ASK_TIMEOUT_S, request_timeout=ASK_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        # Another gateway was faster.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _check(admin: Any, topic: str) -> int:
    from confluent_kafka.admin._config import ConfigResource

    partitions = admin.list_topics(topic, timeout=ASK_TIMEOUT_S).topics[topic].partitions
    if len(partitions) > 1:
        raise TopicUnfit(
            f"the topic {topic} has {len(partitions)} partitions, and schemas need one order: delete it, or name "
            "another topic"
        )
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    answer: Any = admin.describe_configs([resource], request_timeout=ASK_TIMEOUT_S)[resource].result()
    policy = answer["cleanup.policy"].value
    if policy != "compact":
        raise TopicUnfit(
            f"the topic {topic} has cleanup.policy={policy} and would lose schemas: set cleanup.policy=compact, or "
            "name another topic"
        )
    return min(MESSAGE_BYTES_MAX, int(answer["max.message.bytes"].value)) - ENVELOPE_BYTES
