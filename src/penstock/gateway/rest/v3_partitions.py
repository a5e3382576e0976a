"""REST v3: partitions of a topic, their replicas, and moves of replicas that are under way.

Called by gateway.rest; v3_cluster tells replicas with its help.
"""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import list_moves
from penstock.gateway.app import Services
from penstock.gateway.errors import NOT_SERVED, HttpProblem, json_response
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import RELATED, Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.reading import path_int
from penstock.gateway.rest.shapes import BOOLEAN, BROKER_ID, INTEGER, STRING, list_of
from penstock.gateway.rest.table import Row, path_parameters
from penstock.gateway.rest.v3_paths import (
    IN_CLUSTER,
    IN_PARTITION,
    IN_TOPIC,
    TOPIC,
    TOPICS,
    describe_topic,
    get_row,
    not_found,
)

TAG = "Partitions (v3)"
_PLACE = {"topic_name": STRING, "partition_id": INTEGER}
_NAMED = tuple(_PLACE)
_PARTITION = resource_schema(_NAMED, **_PLACE, leader=RELATED, replicas=RELATED)
REPLICA = resource_schema(
    (*_NAMED, "broker_id", "is_leader", "is_in_sync"),
    **_PLACE,
    broker_id=INTEGER,
    is_leader=BOOLEAN,
    is_in_sync=BOOLEAN,
)
_MOVE = resource_schema(
    (*_NAMED, "adding_replicas", "removing_replicas"),
    **_PLACE,
    adding_replicas=list_of(INTEGER),
    removing_replicas=list_of(INTEGER),
)

Move = tuple[str, int, tuple[int, ...], tuple[int, ...]]


class V3Partitions:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        get, many = partial(get_row, TAG, problems=(404, 501)), collection_schema
        in_replica = (*IN_PARTITION, *path_parameters(broker_id=BROKER_ID))
        all_of, one = f"{TOPIC}/partitions", f"{TOPIC}/partitions/{{partition_id}}"
        all_moves = f"{TOPICS}/-/partitions/-/reassignment"
        return [
            get(all_moves, self.list_all_moves, "All moves of replicas.", many(_MOVE), IN_CLUSTER),
            get(f"{all_of}/-/reassignment", self.list_moves, "A topic's moves.", many(_MOVE), IN_TOPIC),
            get(all_of, self.list_partitions, "Partitions.", many(_PARTITION), IN_TOPIC),
            get(one, self.get_partition, "A partition.", _PARTITION, IN_PARTITION),
            get(f"{one}/replicas", self.list_replicas, "Its replicas.", many(REPLICA), IN_PARTITION),
            get(f"{one}/replicas/{{broker_id}}", self.get_replica, "A replica.", REPLICA, in_replica),
            get(f"{one}/reassignment", self.get_move, "A partition's move.", _MOVE, IN_PARTITION),
        ]

    async def list_partitions(self, request: Request) -> Response:
        links, topic = await describe_topic(request, self._services)
        told = [_tell_partition(links, topic.name, one) for one in topic.partitions]
        return links.answer_list("KafkaPartition", told, "topics", topic.name, "partitions")

    async def get_partition(self, request: Request) -> Response:
        return json_response(_tell_partition(*await self._partition(request)))

    async def list_replicas(self, request: Request) -> Response:
        links, topic, partition = await self._partition(request)
        told = [tell_replica(links, topic, partition, broker) for broker in partition.replicas]
        return links.answer_list("KafkaReplica", told, "topics", topic, "partitions", partition.id, "replicas")

    async def get_replica(self, request: Request) -> Response:
        missing = HttpProblem(404, 404, "The partition has no replica on this broker.")
        broker = path_int(request, "broker_id", missing)
        links, topic, partition = await self._partition(request)
        if broker not in partition.replicas:
            raise missing
        return json_response(tell_replica(links, topic, partition, broker))

    async def list_all_moves(self, request: Request) -> Response:
        links = links_for(request, self._services)
        told = [_tell_move(links, move) for move in await self._kafka.ask(_find_moves)]
        return links.answer_list("KafkaReassignment", told, "topics", "-", "partitions", "-", "reassignment")

    async def list_moves(self, request: Request) -> Response:
        links, topic = await describe_topic(request, self._services)
        told = [_tell_move(links, move) for move in await self._kafka.ask(_find_moves) if move[0] == topic.name]
        return links.answer_list("KafkaReassignment", told, "topics", topic.name, "partitions", "-", "reassignment")

    async def get_move(self, request: Request) -> Response:
        links, topic, partition = await self._partition(request)
        for move in await self._kafka.ask(_find_moves):
            if move[:2] == (topic, partition.id):
                return json_response(_tell_move(links, move))
        raise HttpProblem(404, 404, "No replica of this partition is being moved.")

    async def _partition(self, request: Request) -> tuple[Links, str, asking.Partition]:
        number = path_int(request, "partition_id", not_found())
        links, topic = await describe_topic(request, self._services)
        for partition in topic.partitions:
            if partition.id == number:
                return links, topic.name, partition
        raise not_found()


def _find_moves(cluster: Cluster) -> list[Move]:
    """librdkafka has no question for them; ours is plaintext only."""
    if not cluster.is_plaintext:
        raise HttpProblem(501, NOT_SERVED, "Moves of replicas are told for clusters with plaintext listeners only.")
    return sorted((at.topic, at.partition, move.adding, move.removing) for at, move in list_moves(cluster).items())


def _tell_partition(links: Links, topic: str, partition: asking.Partition) -> dict[str, Any]:
    at = ("topics", topic, "partitions", partition.id)
    leader = {} if partition.leader is None else {"leader": links.related(*at, "replicas", partition.leader)}
    return links.resource(
        "KafkaPartition",
        links.to(*at),
        links.name(("topic", topic), ("partition", partition.id)),
        topic_name=topic,
        partition_id=partition.id,
        **leader,
        replicas=links.related(*at, "replicas"),
        reassignment=links.related(*at, "reassignment"),
    )


def tell_replica(links: Links, topic: str, partition: asking.Partition, broker: int) -> dict[str, Any]:
    return links.resource(
        "KafkaReplica",
        links.to("topics", topic, "partitions", partition.id, "replicas", broker),
        links.name(("topic", topic), ("partition", partition.id), ("replica", broker)),
        topic_name=topic,
        partition_id=partition.id,
        broker_id=broker,
        is_leader=broker == partition.leader,
        is_in_sync=broker in partition.isr,
        broker=links.related("brokers", broker),
    )


def _tell_move(links: Links, move: Move) -> dict[str, Any]:
    topic, partition, adding, removing = move
    at = ("topics", topic, "partitions", partition)
    return links.resource(
        "KafkaReassignment",
        links.to(*at, "reassignment"),
        f"{links.name(('topic', topic), ('partition', partition))}/reassignment",
        topic_name=topic,
        partition_id=partition,
        adding_replicas=list(adding),
        removing_replicas=list(removing),
        replicas=links.related(*at, "replicas"),
    )
