"""Settings as clients see and change them: DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources.

Called by server.dispatch. What the settings are is in config, which also keeps secrets back; changes go through the
controller. The error of one resource leaves the others alone.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
from penstock.cluster.topic_plan import check_name
from penstock.config import (
    ConfigEntry,
    Kind,
    Scope,
    describe_broker,
    describe_client_metrics,
    describe_cluster,
    describe_group,
    describe_topic,
)
from penstock.errors import ErrorCode, InvalidRequest, PenstockError, UnknownTopicOrPartition
from penstock.handlers.context import HandlerContext, Request
from penstock.handlers.loggers import logger_levels, set_logger_levels

Body = Mapping[str, Any]

ALL_BROKERS = ""
LOGGER_SOURCE = 6  # ConfigSource of the client's side: DYNAMIC_BROKER_LOGGER_CONFIG


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_SCOPES = {
    ResourceType.TOPIC: Scope.TOPIC,
    ResourceType.BROKER: Scope.BROKER,
    ResourceType.GROUP: Scope.GROUP,
    ResourceType.CLIENT_METRICS: Scope.CLIENT_METRICS,
}


def handle_describe_configs(context: HandlerContext, request: Request) -> Body:
    body = request.body
    # Topics without settings of their own look all the same, and a client may ask for thousands.
    seen: dict[Any, list[Body]] = {}
    results: list[Body] = []
    # Once each: an answer is a hundred times the size of a name, and who repeats it learns nothing more.
    for resource in dict.fromkeys(body.resources):
        named: Body = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            results.append({**named, "configs": _describe(context, body, resource, seen)})
        except PenstockError as error:
            results.append({**named, "error_code": error.code, "error_message": str(error), "configs": []})
    return {"results": results}


def _describe(context: HandlerContext, body: Any, resource: Any, seen: dict[Any, list[Body]]) -> list[Body]:
    kind, name = _resource_type(resource), resource.resource_name
    names: Sequence[str] | None = resource.configuration_keys or None
    match kind:
        case ResourceType.TOPIC:
            check_name(name)
            topic = context.image.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"there is no topic {name!r}")
            key = (tuple(sorted(topic.configs.items())), names)
            if key not in seen:
                seen[key] = _rows(body, describe_topic(context.config, topic.configs, names))
            return seen[key]
        case ResourceType.BROKER:
            if _broker_name(context, name) == ALL_BROKERS:
                return _rows(body, describe_cluster(context.config.cluster_dynamic, names))
            return _rows(body, describe_broker(context.config, names))
        case ResourceType.BROKER_LOGGER:
            _require_own_id(context, name)
            return [
                {"name": logger, "value": level, "config_source": LOGGER_SOURCE, "config_type": Kind.STRING}
                for logger, level in logger_levels().items()
                if names is None or logger in names
            ]
        case ResourceType.GROUP:
            if not name:
                raise InvalidRequest("a group's settings need the name of the group")
            return _rows(body, describe_group(context.config, context.image.group_configs.get(name, {}), names))
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise InvalidRequest("a client metrics subscription needs a name")
            return _rows(body, describe_client_metrics(context.image.client_metrics_configs.get(name, {}), names))


def _rows(body: Any, entries: Sequence[ConfigEntry]) -> list[Body]:
    has_documentation = getattr(body, "include_documentation", False)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.is_sensitive,
            "config_type": entry.type_code,
            "documentation": entry.documentation if has_documentation else None,
            "synonyms": [
                {"name": synonym.name, "value": synonym.value, "source": synonym.source} for synonym in entry.synonyms
            ]
            if body.include_synonyms
            else [],
        }
        for entry in entries
    ]


async def handle_alter_configs(context: HandlerContext, request: Request) -> Body:
    """The old way: a resource's settings are those named, and no others."""
    validate_only: bool = request.body.validate_only

    async def alter(resource: Any) -> None:
        configs = {entry.name: entry.value for entry in resource.configs}
        await context.controller.replace_configs(
            _stored_resource(context, resource), configs, validate_only=validate_only
        )

    return await _alter_each(request, alter)


async def handle_incremental_alter_configs(context: HandlerContext, request: Request) -> Body:
    validate_only: bool = request.body.validate_only

    async def alter(resource: Any) -> None:
        changes = [ConfigChange(entry.name, _operation(entry), entry.value) for entry in resource.configs]
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            _require_own_id(context, resource.resource_name)
            set_logger_levels(changes, validate_only=validate_only)
            return
        await context.controller.alter_configs(
            _stored_resource(context, resource), changes, validate_only=validate_only
        )

    return await _alter_each(request, alter)


async def _alter_each(request: Request, alter: Callable[[Any], Awaitable[None]]) -> Body:
    resources = request.body.resources
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses: list[Body] = []
    for resource in resources:
        named: Body = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequest(f"{resource.resource_name!r} is named twice in one request")
            _check_entries(resource)
            await alter(resource)
            responses.append(named)
        except PenstockError as error:
            responses.append({**named, "error_code": error.code, "error_message": str(error)})
    return {"responses": responses}


def _check_entries(resource: Any) -> None:
    names = Counter(entry.name for entry in resource.configs)
    for entry in resource.configs:
        if names[entry.name] > 1:
            raise InvalidRequest(f"{entry.name} is named twice")
        if entry.value is None and getattr(entry, "config_operation", ConfigOp.SET) != ConfigOp.DELETE:
            raise InvalidRequest(f"{entry.name} is given without a value")


def _operation(entry: Any) -> ConfigOp:
    if entry.config_operation not in set(ConfigOp):
        raise InvalidRequest(f"{entry.config_operation} is no operation on a setting")
    return ConfigOp(entry.config_operation)


def _stored_resource(context: HandlerContext, resource: Any) -> ConfigResource:
    """The resource as the cluster's metadata names it."""
    kind, name = _resource_type(resource), resource.resource_name
    scope = _SCOPES.get(kind)
    if scope is None:
        raise InvalidRequest(f"settings of {kind.name} cannot be altered this way on this broker")
    return ConfigResource(scope, _broker_name(context, name) if scope is Scope.BROKER else name)


def _resource_type(resource: Any) -> ResourceType:
    if resource.resource_type not in set(ResourceType):
        raise InvalidRequest(f"there is no resource type {resource.resource_type}")
    return ResourceType(resource.resource_type)


def _broker_name(context: HandlerContext, name: str) -> str:
    if name != ALL_BROKERS:
        _require_own_id(context, name)
    return name


def _require_own_id(context: HandlerContext, name: str) -> None:
    # Each broker knows its own settings only; clients send the request to the broker it is about.
    if name != str(context.node.node_id):
        raise InvalidRequest(f"this is broker {context.node.node_id}, not {name!r}: ask that one")


def handle_list_config_resources(context: HandlerContext, request: Request) -> Body:
    """What has settings. Version 0 knows of client metrics only."""
    everything = set(ResourceType) if request.version else {ResourceType.CLIENT_METRICS}
    asked = set[int](getattr(request.body, "resource_types", ())) or everything
    if not asked <= set(ResourceType):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    image = context.image
    brokers = [str(node_id) for node_id in image.brokers]
    names: dict[ResourceType, Sequence[str]] = {
        ResourceType.TOPIC: list(image.topics),
        ResourceType.BROKER: brokers,
        ResourceType.BROKER_LOGGER: brokers,
        ResourceType.GROUP: list(image.group_configs),
        ResourceType.CLIENT_METRICS: list(image.client_metrics_configs),
    }
    return {
        "config_resources": [
            {"resource_name": name, "resource_type": kind}
            for kind in ResourceType
            if kind in asked
            for name in names[kind]
        ]
    }
