"""REST v3: the cluster, its brokers, the replicas each has; access rules, which no penstock broker has yet.

Called by gateway.rest.
"""

from functools import partial
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import NOT_SERVED, HttpProblem, json_response
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import RELATED, Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.shapes import INTEGER, STRING, nullable
from penstock.gateway.rest.table import Answer, Operation, Row
from penstock.gateway.rest.v3_partitions import REPLICA, tell_replica
from penstock.gateway.rest.v3_paths import BROKERS, CLUSTER, IN_BROKER, IN_CLUSTER, describe_broker, get_row

TAG = "Cluster (v3)"
_CLUSTER = resource_schema((), controller=RELATED, brokers=RELATED, topics=RELATED)
_BROKER = resource_schema(
    ("broker_id", "host", "port"), broker_id=INTEGER, host=STRING, port=INTEGER, rack=nullable(STRING)
)
_Method = Literal["GET", "POST", "DELETE"]
_ACLS: tuple[tuple[_Method, str], ...] = (("GET", "acls"), ("POST", "acls"), ("DELETE", "acls"), ("POST", "acls:batch"))


class V3Cluster:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        get, many = partial(get_row, TAG), collection_schema
        one, replicas = f"{BROKERS}/{{broker_id}}", f"{BROKERS}/{{broker_id}}/partition-replicas"
        all_clusters = "The one cluster this gateway serves."
        no_rules = (Answer(501, "The brokers have no access rules yet.", {"$ref": "#/components/schemas/Problem"}),)
        return [
            get("/v3/clusters", self.list_clusters, all_clusters, many(_CLUSTER), problems=()),
            get(CLUSTER, self.get_cluster, "The cluster.", _CLUSTER, IN_CLUSTER),
            get(BROKERS, self.list_brokers, "Its brokers.", many(_BROKER), IN_CLUSTER),
            get(one, self.get_broker, "A broker.", _BROKER, IN_BROKER),
            get(replicas, self.list_replicas, "The replicas a broker has.", many(REPLICA), IN_BROKER),
            *(
                Operation(method, f"{CLUSTER}/{name}", self.acls, "Not served yet.", TAG, no_rules, IN_CLUSTER)
                for method, name in _ACLS
            ),
        ]

    async def list_clusters(self, request: Request) -> Response:
        links = links_for(request, self._services)
        return links.answer_clusters(_tell_cluster(links, await self._kafka.ask(asking.describe_cluster)))

    async def get_cluster(self, request: Request) -> Response:
        links = links_for(request, self._services)
        return json_response(_tell_cluster(links, await self._kafka.ask(asking.describe_cluster)))

    async def list_brokers(self, request: Request) -> Response:
        links = links_for(request, self._services)
        facts = await self._kafka.ask(asking.describe_cluster)
        return links.answer_list("KafkaBroker", [_tell_broker(links, node) for node in facts.nodes], "brokers")

    async def get_broker(self, request: Request) -> Response:
        return json_response(_tell_broker(*await describe_broker(request, self._services)))

    async def list_replicas(self, request: Request) -> Response:
        links, broker = await describe_broker(request, self._services)
        told = [
            tell_replica(links, topic.name, partition, broker.id)
            for topic in await self._kafka.ask(asking.list_topics)
            for partition in topic.partitions
            if broker.id in partition.replicas
        ]
        return links.answer_list("KafkaReplica", told, "brokers", broker.id, "partition-replicas")

    async def acls(self, request: Request) -> Response:
        links_for(request, self._services)
        raise HttpProblem(
            501, NOT_SERVED, "The brokers keep no access rules yet, so there are none to see or to change."
        )


def _tell_cluster(links: Links, facts: asking.ClusterFacts) -> dict[str, Any]:
    controller = {} if facts.controller is None else {"controller": links.related("brokers", facts.controller)}
    return links.resource(
        "KafkaCluster",
        links.to(),
        links.name(),
        **controller,
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
