"""REST v3: topics: made, listed, described, given more partitions, deleted.

Called by gateway.rest.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import BAD_CONFIG, HttpProblem, json_response
from penstock.gateway.limits import read_json
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import RELATED, Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.names import topic_name
from penstock.gateway.rest.reading import Known, fields, integer, is_c_string
from penstock.gateway.rest.shapes import (
    BOOLEAN,
    INT32_MAX,
    INTEGER,
    SETTING_NAME,
    STRING,
    TOPIC_NAME,
    list_of,
    nullable,
    strict,
)
from penstock.gateway.rest.table import Answer, Body, Operation, Row
from penstock.gateway.rest.v3_paths import (
    IN_CLUSTER,
    IN_TOPIC,
    TOPIC,
    TOPICS,
    WRONG_CHANGE,
    describe_topic,
    get_row,
    name_topic,
)

TAG = "Topics (v3)"
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 32_767
CONFIGS_MAX = 200
_CHOSEN_BY_CLUSTER = -1

_TOPIC = resource_schema(
    ("topic_name", "is_internal", "replication_factor", "partitions_count"),
    topic_name=STRING,
    is_internal=BOOLEAN,
    replication_factor=INTEGER,
    partitions_count=INTEGER,
    partitions=RELATED,
    configs=RELATED,
    partition_reassignments=RELATED,
)
_SETTING = strict(("name",), name=SETTING_NAME, value=nullable(STRING))
_NEW = strict(
    ("topic_name",),
    topic_name=TOPIC_NAME,
    partitions_count={"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX},
    replication_factor={"type": "integer", "minimum": 1, "maximum": REPLICAS_MAX},
    replicas_assignments=list_of(
        strict(("partition_id", "broker_ids"), partition_id=INTEGER, broker_ids=list_of(INTEGER))
    ),
    configs=list_of(_SETTING, maxItems=CONFIGS_MAX),
    validate_only=BOOLEAN,
)
_GROWN = strict(("partitions_count",), partitions_count={"type": "integer", "minimum": 1, "maximum": PARTITIONS_MAX})
_KNOWN: Known = {
    "topic_name": str,
    "partitions_count": int,
    "replication_factor": int,
    "replicas_assignments": list,
    "configs": list,
    "validate_only": bool,
}


class V3Topics:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        made = (Answer(201, "The topic as it was made.", _TOPIC), Answer(200, "It could be made.", _TOPIC))
        grown, gone = (Answer(200, "The topic.", _TOPIC),), (Answer(204, "Done."),)
        return [
            get_row(TAG, TOPICS, self.list_topics, "All topics.", collection_schema(_TOPIC), IN_CLUSTER),
            Operation("POST", TOPICS, self.create, "Make a topic.", TAG, made, IN_CLUSTER, Body(_NEW), WRONG_CHANGE),
            get_row(TAG, TOPIC, self.get, "A topic.", _TOPIC, IN_TOPIC),
            Operation("PATCH", TOPIC, self.grow, "Add partitions.", TAG, grown, IN_TOPIC, Body(_GROWN), WRONG_CHANGE),
            Operation("DELETE", TOPIC, self.delete, "Delete a topic.", TAG, gone, IN_TOPIC, None, (404,)),
        ]

    async def list_topics(self, request: Request) -> Response:
        links = links_for(request, self._services)
        topics = await self._kafka.ask(asking.list_topics)
        return links.answer_list("KafkaTopic", [_tell(links, topic) for topic in topics], "topics")

    async def get(self, request: Request) -> Response:
        return json_response(_tell(*await describe_topic(request, self._services)))

    async def create(self, request: Request) -> Response:
        links = links_for(request, self._services)
        body = fields(await read_json(request), "the topic", _KNOWN)
        name = body.get("topic_name")
        if not isinstance(name, str):
            raise HttpProblem(422, 422, "The topic needs a topic_name.")
        topic_name(name, HttpProblem(400, BAD_CONFIG, f"{name[:60]!r} cannot be a topic's name."))
        partitions = _count(body, "partitions_count", PARTITIONS_MAX)
        factor = _count(body, "replication_factor", REPLICAS_MAX)
        assignments = _assignments(body)
        if assignments and (partitions, factor) != (_CHOSEN_BY_CLUSTER, _CHOSEN_BY_CLUSTER):
            raise HttpProblem(422, 422, "replicas_assignments say it all: leave out the counts.")
        configs, validate_only = _configs(body), bool(body.get("validate_only"))
        await self._kafka.ask(
            lambda cluster: asking.create_topic(cluster, name, partitions, factor, assignments, configs, validate_only)
        )
        self._kafka.forget_topic(name)
        replicas = len(assignments[0]) if assignments else max(0, factor)
        count = len(assignments) if assignments else max(0, partitions)
        if not validate_only and _CHOSEN_BY_CLUSTER in (partitions, factor) and not assignments:
            # What the cluster has chosen is to be told. It knows the topic a moment after it has made it.
            made = await self._describe(name)
            count, replicas = len(made.partitions), _factor(made)
        told = _tell_as(links, name, False, count, replicas)
        return json_response(told, 200 if validate_only else 201)

    async def grow(self, request: Request) -> Response:
        links, name = name_topic(request, self._services)
        body = fields(await read_json(request), "the request", {"partitions_count": int})
        count = integer(body.get("partitions_count"), "partitions_count", 1, PARTITIONS_MAX)
        before = await self._describe(name)
        await self._kafka.ask(lambda cluster: asking.grow_topic(cluster, name, count))
        self._kafka.forget_topic(name)
        return json_response(_tell_as(links, name, before.is_internal, count, _factor(before)))

    async def delete(self, request: Request) -> Response:
        _, name = name_topic(request, self._services)
        await self._kafka.ask(lambda cluster: asking.delete_topic(cluster, name))
        self._kafka.forget_topic(name)
        return Response(status_code=204)

    async def _describe(self, name: str) -> asking.Topic:
        return await self._kafka.ask(lambda cluster: asking.describe_topic(cluster, name))


def _count(body: dict[str, Any], name: str, maximum: int) -> int:
    given = body.get(name)
    return _CHOSEN_BY_CLUSTER if given is None else integer(given, name, 1, maximum)


def _assignments(body: dict[str, Any]) -> list[list[int]] | None:
    """In the order of the partitions, which must be all from 0 on."""
    given = body.get("replicas_assignments")
    if not given:
        return None
    found: dict[int, list[int]] = {}
    for one in given:
        row = fields(one, "an assignment", {"partition_id": int, "broker_ids": list})
        brokers: list[Any] = row.get("broker_ids") or []
        place = integer(row.get("partition_id"), "partition_id", 0, PARTITIONS_MAX)
        found[place] = [integer(broker, "a broker's id", 0, INT32_MAX) for broker in brokers]
    if sorted(found) != list(range(len(given))) or not all(found.values()):
        raise HttpProblem(422, 422, "replicas_assignments must name every partition from 0 on once, with its brokers.")
    return [found[place] for place in sorted(found)]


def _configs(body: dict[str, Any]) -> dict[str, str]:
    given: list[Any] = body.get("configs") or []
    if len(given) > CONFIGS_MAX:
        raise HttpProblem(422, 422, f"A topic is given at most {CONFIGS_MAX} settings at once.")
    found: dict[str, str] = {}
    for one in given:
        row = fields(one, "a setting", {"name": str, "value": str})
        name, value = row.get("name"), row.get("value")
        if not name:
            raise HttpProblem(422, 422, "Every setting needs a name.")
        if value is not None:
            found[clean_setting(name)] = clean_setting(value)
    return found


def clean_setting(text: str) -> str:
    if not is_c_string(text):
        raise HttpProblem(422, 422, "Names and values of settings cannot hold NUL or unpaired surrogates.")
    return text


def _factor(topic: asking.Topic) -> int:
    return len(topic.partitions[0].replicas) if topic.partitions else 0


def _tell(links: Links, topic: asking.Topic) -> dict[str, Any]:
    return _tell_as(links, topic.name, topic.is_internal, len(topic.partitions), _factor(topic))


def _tell_as(links: Links, name: str, is_internal: bool, partitions: int, replicas: int) -> dict[str, Any]:
    at = ("topics", name)
    return links.resource(
        "KafkaTopic",
        links.to(*at),
        links.name(("topic", name)),
        topic_name=name,
        is_internal=is_internal,
        replication_factor=replicas,
        partitions_count=partitions,
        partitions=links.related(*at, "partitions"),
        configs=links.related(*at, "configs"),
        partition_reassignments=links.related(*at, "partitions", "-", "reassignment"),
        authorized_operations=[],
    )
