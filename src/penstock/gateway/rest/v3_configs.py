"""REST v3: settings of topics, of one broker, of all brokers: seen, set, put back to their defaults.

Called by gateway.rest. The three differ in where they are and what they are called, and in nothing else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, json_response
from penstock.gateway.limits import read_json
from penstock.gateway.rest.asking_configs import (
    BROKER,
    EVERY_BROKER,
    TOPIC,
    Config,
    alter_configs,
    describe_configs,
)
from penstock.gateway.rest.envelope import Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.reading import fields
from penstock.gateway.rest.shapes import BOOLEAN, INTEGER, SETTING_NAME, STRING, list_of, nullable, strict
from penstock.gateway.rest.table import Answer, Body, Handler, Operation, Parameter, Row, path_parameters
from penstock.gateway.rest.v3_paths import (
    CLUSTER,
    IN_BROKER,
    IN_CLUSTER,
    IN_TOPIC,
    WRONG_CHANGE,
    describe_broker,
    get_row,
    name_topic,
)
from penstock.gateway.rest.v3_topics import CONFIGS_MAX, clean_setting

TAG = "Configs (v3)"
CONFIG_NOT_FOUND = 40404

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
_CHANGES = strict(
    ("data",),
    data=list_of(
        strict(
            ("name",),
            name=SETTING_NAME,
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


_OF_TOPIC = _Kind(TOPIC, "KafkaTopicConfig", "topics/{topic_name}/configs", IN_TOPIC)
_OF_BROKER = _Kind(BROKER, "KafkaBrokerConfig", "brokers/{broker_id}/configs", IN_BROKER)
_OF_CLUSTER = _Kind(BROKER, "KafkaClusterConfig", "broker-configs", IN_CLUSTER)


class V3Configs:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        return [row for kind in (_OF_TOPIC, _OF_BROKER, _OF_CLUSTER) for row in self._rows(kind)]

    def _rows(self, kind: _Kind) -> list[Row]:
        at, one, of = f"{CLUSTER}/{kind.path}", f"{CLUSTER}/{kind.path}/{{name}}", kind.parameters
        named = (*of, *path_parameters(name=SETTING_NAME))
        done = (Answer(204, "Done."),)

        def bound(method: Callable[[Request, _Kind], Awaitable[Response]]) -> Handler:
            async def handle(request: Request) -> Response:
                return await method(request, kind)

            return handle

        alter, put, reset = bound(self._alter), bound(self._put), bound(self._reset)
        # `configs:alter` before `configs/{name}`: they differ, but whoever reads the table should not have to check.
        return [
            Operation("POST", f"{at}:alter", alter, "Change several.", TAG, done, of, Body(_CHANGES), WRONG_CHANGE),
            get_row(TAG, at, bound(self._list), "All settings.", collection_schema(_CONFIG), of),
            get_row(TAG, one, bound(self._get), "One setting.", _CONFIG, named),
            Operation("PUT", one, put, "Set it.", TAG, done, named, Body(_VALUE), WRONG_CHANGE),
            Operation("DELETE", one, reset, "Back to its default.", TAG, done, named, None, (400, 404)),
        ]

    async def _list(self, request: Request, kind: _Kind) -> Response:
        links, owner = await self._owner(request, kind)
        told = [_tell(links, owner, one) for one in await self._configs(owner)]
        return links.answer_list(kind.kind, told, *owner.segments)

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
        if kind is _OF_TOPIC:
            links, name = name_topic(request, self._services)
            own = _Owner(kind, name, ("topics", name, "configs"), (("topic", name),), "config", {"topic_name": name})
        elif kind is _OF_BROKER:
            # librdkafka asks that broker itself, and would wait for one that does not exist.
            links, broker = await describe_broker(request, self._services)
            number, segments = broker.id, ("brokers", broker.id, "configs")
            own = _Owner(kind, str(number), segments, (("broker", number),), "config", {"broker_id": number})
        else:
            links = links_for(request, self._services)
            own = _Owner(kind, EVERY_BROKER, ("broker-configs",), (), "broker-config", {"config_type": "BROKER"})
        return links, own

    async def _configs(self, owner: _Owner) -> list[Config]:
        return await self._kafka.ask(lambda cluster: describe_configs(cluster, owner.kind.resource, owner.name))

    async def _config(self, request: Request, owner: _Owner) -> Config:
        wanted = request.path_params["name"]
        for one in await self._configs(owner):
            if one.name == wanted:
                return one
        raise HttpProblem(404, CONFIG_NOT_FOUND, f"There is no setting {wanted[:60]!r} here.")

    async def _name(self, request: Request, owner: _Owner) -> str:
        # All brokers together list only what was set for all of them; any other setting can be, too.
        if owner.kind is _OF_CLUSTER:
            return clean_setting(request.path_params["name"])
        return (await self._config(request, owner)).name

    async def _change(self, owner: _Owner, changes: dict[str, str | None], *, validate_only: bool = False) -> None:
        await self._kafka.ask(
            lambda cluster: alter_configs(cluster, owner.kind.resource, owner.name, changes, validate_only)
        )


def _tell(links: Links, owner: _Owner, config: Config) -> dict[str, Any]:
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
