"""What REST asks of a cluster's settings, and what it changes of them: blocking, answered as plain values.

Called through Kafka.ask, in its threads; a refusal is librdkafka's KafkaException, or our own KafkaFailed.
Law: librdkafka refuses the empty name that stands for all brokers, so theirs go over a connection of our own.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.admin.cluster import Cluster, admin_types
from penstock.errors import ErrorCode
from penstock.gateway.errors import KafkaFailed
from penstock.gateway.rest.asking import answer, ask
from penstock.wire.apis import ApiKey

TOPIC, BROKER = "TOPIC", "BROKER"
EVERY_BROKER = ""
_BROKER_TYPE, _SET, _DELETE, _DEFAULT = 4, 0, 1, 5
_SOURCES = {
    0: "UNKNOWN", 1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG", 6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG",
}  # fmt: skip


class Config(NamedTuple):
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str
    synonyms: tuple[tuple[str, str | None, str], ...]


def describe_configs(cluster: Cluster, kind: str, name: str) -> list[Config]:
    if kind == BROKER and name == EVERY_BROKER:
        return _describe_every_broker(cluster)
    types = admin_types()
    resource = types.ConfigResource(types.ResourceType[kind], name)
    found: Any = answer(cluster, ask(cluster, cluster.admin.describe_configs, [resource])[resource])
    return [_config(one) for _, one in sorted(found.items())]


def alter_configs(
    cluster: Cluster, kind: str, name: str, changes: Mapping[str, str | None], validate_only: bool = False
) -> None:
    """Only what is named changes; None goes back to the default."""
    if kind == BROKER and name == EVERY_BROKER:
        _alter_every_broker(cluster, changes, validate_only)
        return
    types = admin_types()
    put, remove = types.AlterConfigOpType.SET, types.AlterConfigOpType.DELETE
    entries = [
        # librdkafka insists on a value where it sends none.
        types.ConfigEntry(setting, value or "", incremental_operation=remove if value is None else put)
        for setting, value in changes.items()
    ]
    resource = types.ConfigResource(types.ResourceType[kind], name, incremental_configs=entries)
    asked = ask(cluster, cluster.admin.incremental_alter_configs, [resource], validate_only=validate_only)
    answer(cluster, asked[resource])


def _describe_every_broker(cluster: Cluster) -> list[Config]:
    asked = {"resource_type": _BROKER_TYPE, "resource_name": EVERY_BROKER, "configuration_keys": None}
    body = {"resources": [asked], "include_synonyms": True}
    (result,) = _request(cluster, ApiKey.DESCRIBE_CONFIGS, body).results
    _require_done(result)
    return [
        Config(
            one.name,
            None if one.is_sensitive else one.value,
            int(one.config_source) == _DEFAULT,
            bool(one.read_only),
            bool(one.is_sensitive),
            _SOURCES.get(int(one.config_source), "UNKNOWN"),
            tuple((each.name, each.value, _SOURCES.get(int(each.source), "UNKNOWN")) for each in one.synonyms),
        )
        for one in sorted(result.configs, key=lambda one: one.name)
    ]


def _alter_every_broker(cluster: Cluster, changes: Mapping[str, str | None], validate_only: bool) -> None:
    configs = [
        {"name": name, "config_operation": _DELETE if value is None else _SET, "value": value}
        for name, value in changes.items()
    ]
    asked = {"resource_type": _BROKER_TYPE, "resource_name": EVERY_BROKER, "configs": configs}
    body = {"resources": [asked], "validate_only": validate_only}
    (result,) = _request(cluster, ApiKey.INCREMENTAL_ALTER_CONFIGS, body).responses
    _require_done(result)


def _request(cluster: Cluster, api_key: ApiKey, body: Mapping[str, Any]) -> Any:
    if not cluster.is_plaintext:
        raise KafkaFailed(-165, "_UNSUPPORTED_FEATURE", "This is served for clusters with plaintext listeners only.")
    return cluster.request(api_key, body)


def _require_done(result: Any) -> None:
    code = int(result.error_code)
    if code:
        name = ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"
        raise KafkaFailed(code, name, result.error_message or name)


def _config(entry: Any) -> Config:
    source = _SOURCES.get(int(entry.source), "UNKNOWN")
    value = None if entry.value is None or entry.is_sensitive else str(entry.value)
    synonyms = tuple(
        (str(one.name), None if one.value is None else str(one.value), _SOURCES.get(int(one.source), "UNKNOWN"))
        for one in entry.synonyms.values()
    )
    return Config(
        entry.name, value, bool(entry.is_default), bool(entry.is_read_only), bool(entry.is_sensitive), source, synonyms
    )
