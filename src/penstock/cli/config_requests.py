"""Settings that librdkafka has no words for: of all brokers at once, of client metrics, and the list of what has any.

Called by cli.configs. These go over a connection of our own, so over plaintext only.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failures import CommandFailed
from penstock.admin.offsets import error_name
from penstock.wire.apis import ApiKey

CLIENT_METRICS = "client-metrics"
# As the protocol numbers them.
TYPES = {"topic": 2, "broker": 4, CLIENT_METRICS: 16, "group": 32}
_SET, _DELETE = 0, 1
# Of the protocol, and not among librdkafka's.
_CLIENT_METRICS_CONFIG = 7
# Before that version only client metrics could be listed.
_LISTS_ALL_FROM = 1


class Resource(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name or 'default'}"

    @property
    def is_unknown_to_librdkafka(self) -> bool:
        return self == ALL_BROKERS or self.kind == CLIENT_METRICS


# Kafka's empty broker name stands for all brokers; nobody can see an empty argument, so here it is `default`.
ALL_BROKERS = Resource("broker", "")


class Entry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool


def describe_over_own(cluster: Cluster, resource: Resource) -> list[Entry]:
    cluster.require_plaintext(_spelled(resource))
    asked = {"resource_type": TYPES[resource.kind], "resource_name": resource.name, "configuration_keys": None}
    reply = cluster.request(ApiKey.DESCRIBE_CONFIGS, {"resources": [asked]})
    (result,) = reply.results
    _require_done(result, f"describing {resource}")
    return [
        Entry(entry.name, entry.value, source_name(entry.config_source), entry.read_only, entry.is_sensitive)
        for entry in result.configs
    ]


def change_over_own(cluster: Cluster, resource: Resource, pairs: Mapping[str, str], unset: Iterable[str]) -> None:
    cluster.require_plaintext(_spelled(resource))
    changes = [{"name": key, "config_operation": _SET, "value": value} for key, value in pairs.items()]
    changes += [{"name": key, "config_operation": _DELETE, "value": None} for key in unset]
    asked = {"resource_type": TYPES[resource.kind], "resource_name": resource.name, "configs": changes}
    reply = cluster.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [asked], "validate_only": False})
    (result,) = reply.responses
    _require_done(result, f"changing {resource}")


def list_resources(cluster: Cluster, kinds: Iterable[str]) -> list[Resource]:
    """What has settings: every topic and broker, and the groups and client metrics that somebody gave some."""
    cluster.require_plaintext("configs list")
    numbers = {TYPES[kind]: kind for kind in kinds}
    is_old_enough = numbers.keys() == {TYPES[CLIENT_METRICS]}
    body: dict[str, Any] = {"resource_types": list(numbers)}
    reply = cluster.request(ApiKey.LIST_CONFIG_RESOURCES, body, version_min=0 if is_old_enough else _LISTS_ALL_FROM)
    _require_done(reply, "listing what has settings")
    return sorted(
        Resource(numbers[int(one.resource_type)], one.resource_name)
        for one in reply.config_resources
        if int(getattr(one, "resource_type", TYPES[CLIENT_METRICS])) in numbers
    )


def source_name(source: Any) -> str:
    """Where a value comes from; it is a number in some of librdkafka's answers and in ours, an enum in others."""
    if not isinstance(source, int):
        return source.name
    return "CLIENT_METRICS_CONFIG" if source == _CLIENT_METRICS_CONFIG else admin_types().ConfigSource(source).name


def _spelled(resource: Resource) -> str:
    return f"{resource.kind}:{resource.name or 'default'}"


def _require_done(result: Any, doing: str) -> None:
    if int(result.error_code):
        told = getattr(result, "error_message", None) or error_name(int(result.error_code))
        raise CommandFailed(f"{doing}: {told}")
