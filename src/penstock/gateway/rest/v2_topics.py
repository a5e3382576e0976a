"""REST v2, metadata: topics, their partitions and ends, the brokers.

Called by gateway.rest.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.rest import asking
from penstock.gateway.rest.asking_configs import TOPIC, describe_configs
from penstock.gateway.rest.names import topic_in
from penstock.gateway.rest.reading import path_int
from penstock.gateway.rest.shapes import (
    BOOLEAN,
    INTEGER,
    PARTITION,
    STRING,
    TOPIC_NAME,
    Schema,
    list_of,
    nullable,
    structure,
)
from penstock.gateway.rest.table import Answer, Handler, Operation, Parameter, Row, path_parameters
from penstock.gateway.rest.v2_media import (
    ANSWERS,
    V2,
    answer_v2,
    choose_media,
    in_v2,
    partition_not_found,
    topic_not_found,
)
from penstock.model import TopicPartition

TAG = "Topics (v2)"

_REPLICA = structure(("broker", "leader", "in_sync"), broker=INTEGER, leader=BOOLEAN, in_sync=BOOLEAN)
_PARTITION = structure(
    ("partition", "leader", "replicas"), partition=INTEGER, leader=nullable(INTEGER), replicas=list_of(_REPLICA)
)
_TOPIC = structure(
    ("name", "configs", "partitions"),
    name=STRING,
    configs={"type": "object", "additionalProperties": nullable(STRING)},
    partitions=list_of(_PARTITION),
)
_ENDS = structure(("beginning_offset", "end_offset"), beginning_offset=INTEGER, end_offset=INTEGER)


class V2Topics:
    def __init__(self, services: Services) -> None:
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        in_topic = path_parameters(topic=TOPIC_NAME)
        in_partition = path_parameters(topic=TOPIC_NAME, partition=PARTITION)

        def get(
            path: str, handler: Handler, summary: str, schema: Schema, parameters: tuple[Parameter, ...] = ()
        ) -> Operation:
            answers = (Answer(200, "What was asked for.", schema, ANSWERS),)
            problems = (404, 406) if parameters else (406,)
            return Operation("GET", path, handler, summary, TAG, answers, parameters, None, problems, V2)

        brokers = structure(("brokers",), brokers=list_of(INTEGER))
        all_of, one = "/topics/{topic}/partitions", "/topics/{topic}/partitions/{partition}"
        return [
            get("/topics", self.list_topics, "The names of all topics.", list_of(STRING)),
            get("/topics/{topic}", self.get_topic, "A topic, its settings and partitions.", _TOPIC, in_topic),
            get(all_of, self.list_partitions, "A topic's partitions.", list_of(_PARTITION), in_topic),
            get(one, self.get_partition, "A partition.", _PARTITION, in_partition),
            get(f"{one}/offsets", self.ends, "Where it starts and ends.", _ENDS, in_partition),
            get("/brokers", self.list_brokers, "The brokers' ids.", brokers),
        ]

    async def list_topics(self, request: Request) -> Response:
        media = choose_media(request)
        return answer_v2([topic.name for topic in await self._kafka.ask(asking.list_topics)], media)

    async def get_topic(self, request: Request) -> Response:
        media = choose_media(request)
        topic = await self._topic(request)
        configs = await self._kafka.ask(lambda cluster: describe_configs(cluster, TOPIC, topic.name))
        found = {
            "name": topic.name,
            "configs": {one.name: one.value for one in configs},
            "partitions": [_describe(one) for one in topic.partitions],
        }
        return answer_v2(found, media)

    async def list_partitions(self, request: Request) -> Response:
        media = choose_media(request)
        return answer_v2([_describe(one) for one in (await self._topic(request)).partitions], media)

    async def get_partition(self, request: Request) -> Response:
        media = choose_media(request)
        _, partition = await self._partition(request)
        return answer_v2(_describe(partition), media)

    async def ends(self, request: Request) -> Response:
        media = choose_media(request)
        topic, partition = await self._partition(request)
        place = TopicPartition(topic, partition.id)
        first, last = (await self._kafka.ask(lambda cluster: asking.find_ends(cluster, [place])))[place]
        return answer_v2({"beginning_offset": first, "end_offset": last}, media)

    async def list_brokers(self, request: Request) -> Response:
        media = choose_media(request)
        facts = await self._kafka.ask(asking.describe_cluster)
        return answer_v2({"brokers": [node.id for node in facts.nodes]}, media)

    async def _topic(self, request: Request) -> asking.Topic:
        name = topic_in(request, topic_not_found())
        return await in_v2(self._kafka.ask(lambda cluster: asking.describe_topic(cluster, name)))

    async def _partition(self, request: Request) -> tuple[str, asking.Partition]:
        number = path_int(request, "partition", partition_not_found())
        topic = await self._topic(request)
        for partition in topic.partitions:
            if partition.id == number:
                return topic.name, partition
        raise partition_not_found()


def _describe(partition: asking.Partition) -> dict[str, Any]:
    return {
        "partition": partition.id,
        "leader": partition.leader,
        "replicas": [
            {"broker": broker, "leader": broker == partition.leader, "in_sync": broker in partition.isr}
            for broker in partition.replicas
        ],
    }
