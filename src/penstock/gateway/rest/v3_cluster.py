"""REST v3: the cluster, its brokers, the replicas each has; access rules, which no penstock broker has yet.

Called by gateway.rest.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import NOT_SERVED, HttpProblem, json_response
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import (
    CLUSTER_ID,
    RELATED,
    Links,
    collection_schema,
    links_for,
    resource_schema,
)
from penstock.gateway.rest.table import (
    INTEGER,
    PARTITION,
    STRING,
    Answer,
    Operation,
    Row,
    Schema,
    nullable,
    path_int,
    path_parameters,
)
from penstock.gateway.rest.v3_partitions import REPLICA, tell_replica

TAG = "Cluster (v3)"
BROKER_NOT_FOUND = 40403

_CLUSTER = resource_schema((), controller=RELATED, brokers=RELATED, topics=RELATED)
_BROKER = resource_schema(
    ("broker_id", "host", "port"), broker_id=INTEGER, host=STRING, port=INTEGER, rack=nullable(STRING)
)
BROKER_ID = PARTITION


def broker_not_found() -> HttpProblem:
    return HttpProblem(404, BROKER_NOT_FOUND, "The cluster has no such broker.")


class V3Cluster:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        cluster = path_parameters(cluster_id=CLUSTER_ID)
        broker = path_parameters(cluster_id=CLUSTER_ID, broker_id=BROKER_ID)

        def get(path: str, handler: Any, summary: str, schema: Schema, parameters: Any = ()) -> Operation:
            answers = (Answer(200, "What was asked for.", schema),)
            return Operation(
                "GET", path, handler, summary, TAG, answers, parameters, None, (404,) if parameters else ()
            )

        one = "/v3/clusters/{cluster_id}"
        rows: list[Row] = [
            get(
                "/v3/clusters", self.list_clusters, "The one cluster this gateway serves.", collection_schema(_CLUSTER)
            ),
            get(one, self.get_cluster, "The cluster.", _CLUSTER, cluster),
            get(f"{one}/brokers", self.list_brokers, "Its brokers.", collection_schema(_BROKER), cluster),
            get(f"{one}/brokers/{{broker_id}}", self.get_broker, "A broker.", _BROKER, broker),
            get(
                f"{one}/brokers/{{broker_id}}/partition-replicas",
                self.list_replicas,
                "The replicas a broker has.",
                collection_schema(REPLICA),
                broker,
            ),
        ]
        methods: list[tuple[Any, str]] = [("GET", "acls"), ("POST", "acls"), ("DELETE", "acls"), ("POST", "acls:batch")]
        for method, name in methods:
            answers = (Answer(501, "The brokers have no access rules yet.", {"$ref": "#/components/schemas/Problem"}),)
            rows.append(Operation(method, f"{one}/{name}", self.acls, "Not served yet.", TAG, answers, cluster))
        return rows

    async def list_clusters(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        facts = await self._kafka.ask(asking.describe_cluster)
        return json_response(links.collection("KafkaClusterList", links.clusters(), [_tell_cluster(links, facts)]))

    async def get_cluster(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        return json_response(_tell_cluster(links, await self._kafka.ask(asking.describe_cluster)))

    async def list_brokers(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        facts = await self._kafka.ask(asking.describe_cluster)
        told = [_tell_broker(links, node) for node in facts.nodes]
        return json_response(links.collection("KafkaBrokerList", links.to("brokers"), told))

    async def get_broker(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        number = path_int(request, "broker_id", broker_not_found())
        facts = await self._kafka.ask(asking.describe_cluster)
        for node in facts.nodes:
            if node.id == number:
                return json_response(_tell_broker(links, node))
        raise broker_not_found()

    async def list_replicas(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        number = path_int(request, "broker_id", broker_not_found())
        facts = await self._kafka.ask(asking.describe_cluster)
        if number not in [node.id for node in facts.nodes]:
            raise broker_not_found()
        topics = await self._kafka.ask(asking.list_topics)
        told = [
            tell_replica(links, topic.name, partition, number)
            for topic in topics
            for partition in topic.partitions
            if number in partition.replicas
        ]
        url = links.to("brokers", number, "partition-replicas")
        return json_response(links.collection("KafkaReplicaList", url, told))

    async def acls(self, request: Request) -> Response:
        await links_for(request, self._services)
        raise HttpProblem(
            501, NOT_SERVED, "The brokers keep no access rules yet, so there are none to see or to change."
        )


def _tell_cluster(links: Links, facts: asking.ClusterFacts) -> dict[str, Any]:
    controller = None if facts.controller is None else links.related("brokers", facts.controller)
    return links.resource(
        "KafkaCluster",
        links.to(),
        links.name(),
        **({} if controller is None else {"controller": controller}),
        acls=links.related("acls"),
        brokers=links.related("brokers"),
        broker_configs=links.related("broker-configs"),
        consumer_groups=links.related("consumer-groups"),
        topics=links.related("topics"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
    )


def _tell_broker(links: Links, node: asking.Node) -> dict[str, Any]:
    return links.resource(
        "KafkaBroker",
        links.to("brokers", node.id),
        links.name(("broker", node.id)),
        broker_id=node.id,
        host=node.host,
        port=node.port,
        rack=node.rack,
        configs=links.related("brokers", node.id, "configs"),
        partition_replicas=links.related("brokers", node.id, "partition-replicas"),
    )
