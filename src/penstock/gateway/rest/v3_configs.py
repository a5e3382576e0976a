"""REST v3: settings of topics, of one broker, of all brokers: seen, set, put back to their defaults.

Called by gateway.rest. The three differ in where they are and what they are called, and in nothing else.
"""

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, json_response
from penstock.gateway.limits import read_json
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import CLUSTER_ID, Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.names import topic_name
from penstock.gateway.rest.table import (
    BOOLEAN,
    INTEGER,
    STRING,
    Answer,
    Body,
    Operation,
    Parameter,
    Row,
    Schema,
    fields,
    list_of,
    nullable,
    path_int,
    path_parameters,
    strict,
)
from penstock.gateway.rest.v2_topics import TOPIC_NAME
from penstock.gateway.rest.v3_cluster import BROKER_ID, broker_not_found
from penstock.gateway.rest.v3_partitions import not_found
from penstock.gateway.rest.v3_topics import CONFIGS_MAX, clean_setting

TAG = "Configs (v3)"
CONFIG_NOT_FOUND = 40404
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}

_CONFIG = resource_schema(
    ("name", "value", "is_default", "is_read_only", "is_sensitive", "source", "synonyms"),
    name=STRING,
    value=nullable(STRING),
    is_default=BOOLEAN,
    is_read_only=BOOLEAN,
    is_sensitive=BOOLEAN,
    source=STRING,
    synonyms=list_of({"type": "object"}),
    topic_name=STRING,
    broker_id=INTEGER,
    config_type=STRING,
)
_VALUE = strict((), value=nullable(STRING))
_BATCH = strict(
    ("data",),
    data=list_of(
        strict(
            ("name",),
            name=_NAME,
            value=nullable(STRING),
            operation={"type": ["string", "null"], "enum": ["SET", "DELETE", None]},
        ),
        minItems=1,
        maxItems=CONFIGS_MAX,
    ),
    validate_only=BOOLEAN,
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Whose settings."""

    resource: str  # Kafka's kind of it
    kind: str  # REST's
    path: str
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class _Owner:
    """One of that kind, as a request names it."""

    kind: _Kind
    name: str
    segments: tuple[object, ...]
    crn: tuple[tuple[str, object], ...]
    config_word: str
    facts: dict[str, Any]


_TOPIC = _Kind(
    asking.TOPIC,
    "KafkaTopicConfig",
    "topics/{topic_name}/configs",
    path_parameters(cluster_id=CLUSTER_ID, topic_name=TOPIC_NAME),
)
_BROKER = _Kind(
    asking.BROKER,
    "KafkaBrokerConfig",
    "brokers/{broker_id}/configs",
    path_parameters(cluster_id=CLUSTER_ID, broker_id=BROKER_ID),
)
_CLUSTER = _Kind(asking.BROKER, "KafkaClusterConfig", "broker-configs", path_parameters(cluster_id=CLUSTER_ID))


class V3Configs:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        return [row for kind in (_TOPIC, _BROKER, _CLUSTER) for row in self._rows(kind)]

    def _rows(self, kind: _Kind) -> list[Row]:
        at = f"/v3/clusters/{{cluster_id}}/{kind.path}"
        named = (*kind.parameters, *path_parameters(name=_NAME))
        listed = (Answer(200, "All settings.", collection_schema(_CONFIG)),)
        found, done = (Answer(200, "The setting.", _CONFIG),), (Answer(204, "Done."),)
        wrong = (400, 404, 408, 413, 415, 422)

        def bound(method: Any) -> Any:
            async def handle(request: Request) -> Response:
                return await method(request, kind)

            return handle

        # `configs:alter` before `configs/{name}`: they differ, but whoever reads the table should not have to check.
        return [
            Operation(
                "POST",
                f"{at}:alter",
                bound(self._alter),
                "Change several.",
                TAG,
                done,
                kind.parameters,
                Body(_BATCH),
                wrong,
            ),
            Operation("GET", at, bound(self._list), "All settings.", TAG, listed, kind.parameters, None, (404,)),
            Operation("GET", f"{at}/{{name}}", bound(self._get), "One setting.", TAG, found, named, None, (404,)),
            Operation("PUT", f"{at}/{{name}}", bound(self._put), "Set it.", TAG, done, named, Body(_VALUE), wrong),
            Operation(
                "DELETE",
                f"{at}/{{name}}",
                bound(self._reset),
                "Back to its default.",
                TAG,
                done,
                named,
                None,
                (400, 404),
            ),
        ]

    async def _list(self, request: Request, kind: _Kind) -> Response:
        links, owner = await self._owner(request, kind)
        configs = await self._configs(owner)
        told = [_tell(links, owner, one) for one in configs]
        return json_response(links.collection(f"{kind.kind}List", links.to(*owner.segments), told))

    async def _get(self, request: Request, kind: _Kind) -> Response:
        links, owner = await self._owner(request, kind)
        return json_response(_tell(links, owner, await self._config(request, owner)))

    async def _put(self, request: Request, kind: _Kind) -> Response:
        _, owner = await self._owner(request, kind)
        body = fields(await read_json(request), "the request", {"value": str})
        name = await self._name(request, owner)
        value = body.get("value")
        await self._change(owner, {name: None if value is None else clean_setting(value)})
        return Response(status_code=204)

    async def _reset(self, request: Request, kind: _Kind) -> Response:
        _, owner = await self._owner(request, kind)
        await self._change(owner, {await self._name(request, owner): None})
        return Response(status_code=204)

    async def _alter(self, request: Request, kind: _Kind) -> Response:
        _, owner = await self._owner(request, kind)
        body = fields(await read_json(request), "the request", {"data": list, "validate_only": bool})
        rows = body.get("data")
        if not rows or len(rows) > CONFIGS_MAX:
            raise HttpProblem(422, 422, f"data must be a list of 1 to {CONFIGS_MAX} changes.")
        changes: dict[str, str | None] = {}
        for one in rows:
            row = fields(one, "a change", {"name": str, "value": str, "operation": str})
            name, operation = row.get("name"), row.get("operation") or "SET"
            if not name or operation not in ("SET", "DELETE"):
                raise HttpProblem(422, 422, "A change needs a name, and SET or DELETE as its operation.")
            value = None if operation == "DELETE" else row.get("value")
            changes[clean_setting(name)] = None if value is None else clean_setting(value)
        await self._change(owner, changes, validate_only=bool(body.get("validate_only")))
        return Response(status_code=204)

    async def _owner(self, request: Request, kind: _Kind) -> tuple[Links, _Owner]:
        links = await links_for(request, self._services)
        if kind is _TOPIC:
            name = topic_name(request.path_params["topic_name"], not_found())
            own = _Owner(kind, name, ("topics", name, "configs"), (("topic", name),), "config", {"topic_name": name})
        elif kind is _BROKER:
            number = path_int(request, "broker_id", broker_not_found())
            facts = await self._kafka.ask(asking.describe_cluster)
            # librdkafka asks that broker itself, and would wait for one that does not exist.
            if number not in [node.id for node in facts.nodes]:
                raise broker_not_found()
            segments = ("brokers", number, "configs")
            own = _Owner(kind, str(number), segments, (("broker", number),), "config", {"broker_id": number})
        else:
            own = _Owner(kind, asking.EVERY_BROKER, ("broker-configs",), (), "broker-config", {"config_type": "BROKER"})
        return links, own

    async def _configs(self, owner: _Owner) -> list[asking.Config]:
        return await self._kafka.ask(lambda cluster: asking.describe_configs(cluster, owner.kind.resource, owner.name))

    async def _config(self, request: Request, owner: _Owner) -> asking.Config:
        wanted = request.path_params["name"]
        for one in await self._configs(owner):
            if one.name == wanted:
                return one
        raise HttpProblem(404, CONFIG_NOT_FOUND, f"There is no setting {wanted[:60]!r} here.")

    async def _name(self, request: Request, owner: _Owner) -> str:
        # All brokers together list only what was set for all of them; any other setting can be, too.
        if owner.kind is _CLUSTER:
            return clean_setting(request.path_params["name"])
        return (await self._config(request, owner)).name

    async def _change(self, owner: _Owner, changes: dict[str, str | None], *, validate_only: bool = False) -> None:
        await self._kafka.ask(
            lambda cluster: asking.alter_configs(cluster, owner.kind.resource, owner.name, changes, validate_only)
        )


def _tell(links: Links, owner: _Owner, config: asking.Config) -> dict[str, Any]:
    return links.resource(
        owner.kind.kind,
        links.to(*owner.segments, config.name),
        links.name(*owner.crn, (owner.config_word, config.name)),
        **owner.facts,
        name=config.name,
        value=config.value,
        is_default=config.is_default,
        is_read_only=config.is_read_only,
        is_sensitive=config.is_sensitive,
        source=config.source,
        synonyms=[{"name": name, "value": value, "source": source} for name, value, source in config.synonyms],
    )
