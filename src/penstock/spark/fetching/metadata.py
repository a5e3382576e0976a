"""Which topics there are and who leads their partitions, asked of one broker once.

Called by fetching.cluster, which decides what to do about errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from penstock.model import NO_TOPIC_ID, Endpoint
from penstock.spark.fetching.connection import BrokerConnection
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_response, encode_request

# From here on a client can say that it does not want the topic it asks for to be made (Kafka 0.11).
_VERSION_MIN = 4
_API = BY_KEY[ApiKey.METADATA]


class Leader(NamedTuple):
    """`node_id` -1: nobody leads now. An epoch of -1 is one that the broker is too old to tell."""

    node_id: int
    epoch: int
    topic_id: UUID | None


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    error_code: int
    topic_id: UUID | None
    is_internal: bool
    leaders: dict[int, Leader]


@dataclass(frozen=True, slots=True)
class ClusterAnswer:
    brokers: dict[int, Endpoint]
    topics: dict[str, TopicAnswer]


def ask_metadata(connection: BrokerConnection, names: Sequence[str] | None, timeout_s: float) -> ClusterAnswer:
    """Of these topics, or of all."""
    version = connection.version(ApiKey.METADATA, _VERSION_MIN, _API.high)
    body = {
        "topics": None if names is None else [{"name": name} for name in names],
        "allow_auto_topic_creation": False,
    }
    request = encode_request(ApiKey.METADATA, version, body)
    flexible = _API.is_flexible(version)
    reply = connection.call(ApiKey.METADATA, version, request, is_flexible=flexible, timeout_s=timeout_s)
    answer = decode_response(ApiKey.METADATA, version, bytes(reply))
    brokers = {int(broker.node_id): Endpoint(broker.host, broker.port) for broker in answer.brokers}
    topics = {str(topic.name): _topic(topic) for topic in answer.topics if topic.name is not None}
    return ClusterAnswer(brokers, topics)


def _topic(topic: Any) -> TopicAnswer:
    topic_id: UUID | None = getattr(topic, "topic_id", None)
    if topic_id == NO_TOPIC_ID:
        topic_id = None
    leaders = {
        int(partition.partition_index): Leader(
            int(partition.leader_id), int(getattr(partition, "leader_epoch", -1)), topic_id
        )
        for partition in topic.partitions
    }
    return TopicAnswer(int(topic.error_code.value), topic_id, bool(topic.is_internal), leaders)
