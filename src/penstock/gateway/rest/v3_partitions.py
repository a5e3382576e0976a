"""REST v3: partitions of a topic, their replicas, and moves of replicas that are under way.

Called by gateway.rest; v3_cluster and v3_topics tell replicas with its help.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import list_moves
from penstock.gateway.app import Services
from penstock.gateway.errors import NOT_SERVED, UNKNOWN_TOPIC_OR_PARTITION, HttpProblem, json_response
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import (
    CLUSTER_ID,
    RELATED,
    Links,
    collection_schema,
    links_for,
    resource_schema,
)
from penstock.gateway.rest.names import topic_in
from penstock.gateway.rest.table import (
    BOOLEAN,
    INTEGER,
    PARTITION,
    STRING,
    Answer,
    Operation,
    Row,
    Schema,
    list_of,
    path_int,
    path_parameters,
)
from penstock.gateway.rest.v2_topics import TOPIC_NAME

TAG = "Partitions (v3)"

_PARTITION = resource_schema(
    ("topic_name", "partition_id"), topic_name=STRING, partition_id=INTEGER, leader=RELATED, replicas=RELATED
)
REPLICA = resource_schema(
    ("topic_name", "partition_id", "broker_id", "is_leader", "is_in_sync"),
    topic_name=STRING,
    partition_id=INTEGER,
    broker_id=INTEGER,
    is_leader=BOOLEAN,
    is_in_sync=BOOLEAN,
)
_MOVE = resource_schema(
    ("topic_name", "partition_id", "adding_replicas", "removing_replicas"),
    topic_name=STRING,
    partition_id=INTEGER,
    adding_replicas=list_of(INTEGER),
    removing_replicas=list_of(INTEGER),
)

Move = tuple[str, int, tuple[int, ...], tuple[int, ...]]


def not_found() -> HttpProblem:
    return HttpProblem(404, UNKNOWN_TOPIC_OR_PARTITION, "This cluster has no such topic or partition.")


class V3Partitions:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        topic = path_parameters(cluster_id=CLUSTER_ID, topic_name=TOPIC_NAME)
        partition = path_parameters(cluster_id=CLUSTER_ID, topic_name=TOPIC_NAME, partition_id=PARTITION)
        replica = path_parameters(
            cluster_id=CLUSTER_ID, topic_name=TOPIC_NAME, partition_id=PARTITION, broker_id=PARTITION
        )

        def get(path: str, handler: Any, summary: str, schema: Schema, parameters: Any) -> Operation:
            answers = (Answer(200, "What was asked for.", schema),)
            where = f"/v3/clusters/{{cluster_id}}/topics/{path}"
            return Operation("GET", where, handler, summary, TAG, answers, parameters, None, (404, 501))

        one = "{topic_name}/partitions/{partition_id}"
        moves = collection_schema(_MOVE)
        all_topics = path_parameters(cluster_id=CLUSTER_ID)
        return [
            get("-/partitions/-/reassignment", self.list_all_moves, "All moves of replicas.", moves, all_topics),
            get("{topic_name}/partitions/-/reassignment", self.list_moves, "A topic's moves.", moves, topic),
            get("{topic_name}/partitions", self.list_partitions, "Partitions.", collection_schema(_PARTITION), topic),
            get(one, self.get_partition, "A partition.", _PARTITION, partition),
            get(f"{one}/replicas", self.list_replicas, "Its replicas.", collection_schema(REPLICA), partition),
            get(f"{one}/replicas/{{broker_id}}", self.get_replica, "A replica.", REPLICA, replica),
            get(f"{one}/reassignment", self.get_move, "A partition's move.", _MOVE, partition),
        ]

    async def list_partitions(self, request: Request) -> Response:
        links, topic = await self._topic(request)
        told = [_tell_partition(links, topic.name, one) for one in topic.partitions]
        return json_response(links.collection("KafkaPartitionList", links.to("topics", topic.name, "partitions"), told))

    async def get_partition(self, request: Request) -> Response:
        links, topic, partition = await self._partition(request)
        return json_response(_tell_partition(links, topic, partition))

    async def list_replicas(self, request: Request) -> Response:
        links, topic, partition = await self._partition(request)
        told = [tell_replica(links, topic, partition, broker) for broker in partition.replicas]
        url = links.to("topics", topic, "partitions", partition.id, "replicas")
        return json_response(links.collection("KafkaReplicaList", url, told))

    async def get_replica(self, request: Request) -> Response:
        missing = HttpProblem(404, 404, "The partition has no replica on this broker.")
        broker = path_int(request, "broker_id", missing)
        links, topic, partition = await self._partition(request)
        if broker not in partition.replicas:
            raise missing
        return json_response(tell_replica(links, topic, partition, broker))

    async def list_all_moves(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        moves = await self._kafka.ask(_find_moves)
        url = links.to("topics", "-", "partitions", "-", "reassignment")
        told = [_tell_move(links, move) for move in moves]
        return json_response(links.collection("KafkaReassignmentList", url, told))

    async def list_moves(self, request: Request) -> Response:
        links, topic = await self._topic(request)
        moves = await self._kafka.ask(_find_moves)
        url = links.to("topics", topic.name, "partitions", "-", "reassignment")
        told = [_tell_move(links, move) for move in moves if move[0] == topic.name]
        return json_response(links.collection("KafkaReassignmentList", url, told))

    async def get_move(self, request: Request) -> Response:
        links, topic, partition = await self._partition(request)
        for move in await self._kafka.ask(_find_moves):
            if move[:2] == (topic, partition.id):
                return json_response(_tell_move(links, move))
        raise HttpProblem(404, 404, "No replica of this partition is being moved.")

    async def _topic(self, request: Request) -> tuple[Links, asking.Topic]:
        links = await links_for(request, self._services)
        name = topic_in(request, not_found(), "topic_name")
        return links, await self._kafka.ask(lambda cluster: asking.describe_topic(cluster, name))

    async def _partition(self, request: Request) -> tuple[Links, str, asking.Partition]:
        number = path_int(request, "partition_id", not_found())
        links, topic = await self._topic(request)
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
