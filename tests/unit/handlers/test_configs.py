"""handlers.configs: settings seen and changed over the wire."""

from typing import Any

import pytest

from penstock.config import Setting
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.setting import Kind
from penstock.errors import ErrorCode
from penstock.handlers.configs import (
    handle_alter_configs,
    handle_describe_configs,
    handle_incremental_alter_configs,
    handle_list_config_resources,
)
from penstock.wire.apis import ApiKey

DESCRIBE, ALTER = ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS
INCREMENTAL, LIST = ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, REMOVE, APPEND, SUBTRACT = 0, 1, 2, 3


async def describe(
    node: Any, kind: int, name: str, keys: list[str] | None = None, version: int | None = None, **more: Any
) -> Any:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
    return (await node.call(handle_describe_configs, DESCRIBE, version, resources=resources, **more)).results[0]


async def value(node: Any, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """A setting's value and where it comes from."""
    (config,) = (await describe(node, kind, name, [key])).configs
    return config.value, config.config_source


async def alter(
    node: Any, kind: int, name: str, *changes: tuple[str, int, str | None], version: int | None = None, **more: Any
) -> Any:
    configs = [{"name": key, "config_operation": op, "value": given} for key, op, given in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    answer = await node.call(handle_incremental_alter_configs, INCREMENTAL, version, resources=resources, **more)
    return answer.responses[0]


async def replace(node: Any, kind: int, name: str, version: int | None = None, **configs: str | None) -> Any:
    rows = [{"name": key.replace("_", "."), "value": given} for key, given in configs.items()]
    resources = [{"resource_type": kind, "resource_name": name, "configs": rows}]
    return (await node.call(handle_alter_configs, ALTER, version, resources=resources)).responses[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_shows_a_topics_settings_and_their_source(node: Any, version: int) -> None:
    await node.create("orders", retention_ms="1000")
    result = await describe(node, TOPIC, "orders", version=version)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "orders")
    shown = {config.name: (config.value, config.config_source, config.read_only) for config in result.configs}
    assert shown["retention.ms"] == ("1000", 1, False)
    assert shown["cleanup.policy"] == ("delete", 5, False)
    assert len(shown) > 30


async def test_topics_of_one_request_are_not_taken_for_one_another_and_each_is_described_once(node: Any) -> None:
    await node.create("short", retention_ms="1000")
    await node.create("long", retention_ms="2000")
    await node.create("plain")
    names = ["short", "plain", "long", "plain"]
    resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in names]
    answer = await node.call(handle_describe_configs, DESCRIBE, resources=resources)
    shown = [next(each.value for each in result.configs if each.name == "retention.ms") for result in answer.results]
    assert shown == ["1000", "604800000", "2000"]


async def test_synonyms_and_documentation_come_when_asked_for(node: Any) -> None:
    await node.create("orders", retention_ms="1000")
    (bare,) = (await describe(node, TOPIC, "orders", ["retention.ms"])).configs
    assert (bare.synonyms, bare.documentation) == ((), None)
    more = {"include_synonyms": True, "include_documentation": True}
    (full,) = (await describe(node, TOPIC, "orders", ["retention.ms"], **more)).configs
    assert [(synonym.name, synonym.value, synonym.source) for synonym in full.synonyms] == [
        ("retention.ms", "1000", 1),
        ("log.retention.hours", "168", 5),
    ]
    assert "dropped" in full.documentation
    assert full.config_type == Kind.LONG


@pytest.mark.parametrize("keys", [None, []])
async def test_no_keys_mean_all_keys(node: Any, keys: list[str] | None) -> None:
    await node.create("orders")
    assert len((await describe(node, TOPIC, "orders", keys)).configs) > 30


async def test_keys_that_do_not_exist_are_left_out(node: Any) -> None:
    await node.create("orders")
    result = await describe(node, TOPIC, "orders", ["retention.ms", "nonsense"])
    assert [config.name for config in result.configs] == ["retention.ms"]


@pytest.mark.parametrize("settings", [{"log.retention.ms": "5000"}])
async def test_a_broker_shows_what_is_read_only_and_what_it_was_started_with(node: Any) -> None:
    shown = {config.name: config for config in (await describe(node, BROKER, "1")).configs}
    assert (shown["log.retention.ms"].value, shown["log.retention.ms"].config_source) == ("5000", 4)
    assert shown["node.id"].read_only
    assert not shown["log.retention.ms"].read_only


async def test_no_name_stands_for_what_all_brokers_share(node: Any) -> None:
    assert (await describe(node, BROKER, "")).configs == ()
    assert (await alter(node, BROKER, "", ("log.retention.ms", SET, "7000"))).error_code == 0
    assert await value(node, BROKER, "", "log.retention.ms") == ("7000", 3)
    assert await value(node, BROKER, "1", "log.retention.ms") == ("7000", 3)
    await node.create("orders")
    assert await value(node, TOPIC, "orders", "retention.ms") == ("7000", 3)
    assert (await alter(node, BROKER, "1", ("log.retention.ms", SET, "8000"))).error_code == 0
    assert await value(node, BROKER, "1", "log.retention.ms") == ("8000", 2)


async def test_a_secret_is_never_shown(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = Setting(name="a.secret", kind=Kind.PASSWORD, default="hunter2", doc="", sensitive=True, attribute="x")
    monkeypatch.setitem(BROKER_SETTINGS, "a.secret", secret)
    (shown,) = (await describe(node, BROKER, "1", ["a.secret"], include_synonyms=True)).configs
    assert shown.is_sensitive
    assert shown.value is None
    assert [synonym.value for synonym in shown.synonyms] == [None]


async def test_a_group_has_settings_of_its_own(node: Any) -> None:
    key = "consumer.session.timeout.ms"
    assert await value(node, GROUP, "readers", key) == ("45000", 5)
    assert (await alter(node, GROUP, "readers", (key, SET, "50000"))).error_code == 0
    assert await value(node, GROUP, "readers", key) == ("50000", 8)
    refused = await alter(node, GROUP, "readers", (key, SET, "1000"))
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert "group.consumer.min.session.timeout.ms" in refused.error_message
    assert await value(node, GROUP, "readers", key) == ("50000", 8)


async def test_resources_that_are_not_there_are_refused_one_by_one(node: Any) -> None:
    asked = [(TOPIC, "nowhere"), (TOPIC, "a b"), (BROKER, "2"), (BROKER, "x"), (LOGGER, ""), (GROUP, ""), (METRICS, "")]
    asked += [(99, "x"), (METRICS, "some"), (BROKER, "1")]
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in asked]
    results = (await node.call(handle_describe_configs, DESCRIBE, resources=resources)).results
    assert [ErrorCode(result.error_code) for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *[ErrorCode.INVALID_REQUEST] * 6,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert "broker 1" in results[2].error_message
    assert [(result.resource_type, result.resource_name) for result in results] == asked


@pytest.mark.parametrize("version", [0, 1])
async def test_settings_are_set_deleted_appended_to_and_subtracted_from(node: Any, version: int) -> None:
    await node.create("orders", retention_ms="1000")
    for change, key, seen in [
        (("cleanup.policy", APPEND, "compact"), "cleanup.policy", ("delete,compact", 1)),
        (("cleanup.policy", SUBTRACT, "delete"), "cleanup.policy", ("compact", 1)),
        (("cleanup.policy", SET, "delete"), "cleanup.policy", ("delete", 1)),
        (("retention.ms", REMOVE, None), "retention.ms", ("604800000", 5)),
    ]:
        assert (await alter(node, TOPIC, "orders", change, version=version)).error_code == 0
        assert await value(node, TOPIC, "orders", key) == seen
    assert node.partition("orders").log.config.retention_ms == 604_800_000


async def test_bad_changes_are_refused_and_nothing_of_them_is_kept(node: Any) -> None:
    await node.create("orders")
    good = ("retention.ms", SET, "1000")
    for changes, code in [
        ([good, ("retention.mss", SET, "1")], ErrorCode.INVALID_CONFIG),
        ([good, ("segment.bytes", SET, "soon")], ErrorCode.INVALID_CONFIG),
        ([good, ("retention.bytes", APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([good, ("segment.bytes", SET, None)], ErrorCode.INVALID_REQUEST),
        ([good, ("segment.bytes", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([good, good], ErrorCode.INVALID_REQUEST),
    ]:
        answer = await alter(node, TOPIC, "orders", *changes)
        assert ErrorCode(answer.error_code) == code, changes
        assert answer.error_message
    assert await value(node, TOPIC, "orders", "retention.ms") == ("604800000", 5)


async def test_what_cannot_be_changed_while_running_is_refused_with_its_name(node: Any) -> None:
    answer = await alter(node, BROKER, "1", ("log.dirs", SET, "/etc"))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "log.dirs is read-only" in answer.error_message


async def test_resources_that_are_not_there_cannot_be_altered(node: Any) -> None:
    for kind, name, code in [
        (TOPIC, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "01", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "some", ErrorCode.INVALID_CONFIG),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ]:
        assert (await alter(node, kind, name, ("retention.ms", SET, "1"))).error_code == code, (kind, name)
        assert (await replace(node, kind, name, retention_ms="1")).error_code == code, (kind, name)


async def test_validate_only_changes_nothing(node: Any) -> None:
    await node.create("orders")
    assert (await alter(node, TOPIC, "orders", ("retention.ms", SET, "1"), validate_only=True)).error_code == 0
    resources = [
        {"resource_type": TOPIC, "resource_name": "orders", "configs": [{"name": "retention.ms", "value": "1"}]}
    ]
    await node.call(handle_alter_configs, ALTER, resources=resources, validate_only=True)
    assert await value(node, TOPIC, "orders", "retention.ms") == ("604800000", 5)


async def test_a_resource_named_twice_is_refused_both_times_and_the_others_are_altered(node: Any) -> None:
    for name in ("twice", "once"):
        await node.create(name)
    rows = [{"name": "retention.ms", "config_operation": SET, "value": "1000"}]
    resources = [
        {"resource_type": TOPIC, "resource_name": name, "configs": rows} for name in ("twice", "once", "twice")
    ]
    answer = await node.call(handle_incremental_alter_configs, INCREMENTAL, resources=resources)
    refused = ErrorCode.INVALID_REQUEST
    assert [int(response.error_code) for response in answer.responses] == [refused, 0, refused]
    assert await value(node, TOPIC, "twice", "retention.ms") == ("604800000", 5)
    assert await value(node, TOPIC, "once", "retention.ms") == ("1000", 1)


@pytest.mark.parametrize("version", range(3))
async def test_the_old_way_replaces_all_settings(node: Any, version: int) -> None:
    await node.create("orders", retention_ms="1000")
    assert (await replace(node, TOPIC, "orders", version, segment_bytes="2048")).error_code == 0
    assert node.context.image.topics["orders"].configs == {"segment.bytes": "2048"}
    assert (await replace(node, TOPIC, "orders", version, segment_bytes=None)).error_code == ErrorCode.INVALID_REQUEST
    assert (await replace(node, LOGGER, "1", version, root="INFO")).error_code == ErrorCode.INVALID_REQUEST
    twice = [{"name": "segment.bytes", "value": value} for value in ("2048", "4096")]
    resources = [{"resource_type": TOPIC, "resource_name": "orders", "configs": twice}]
    answer = await node.call(handle_alter_configs, ALTER, version, resources=resources)
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert node.context.image.topics["orders"].configs == {"segment.bytes": "2048"}


async def test_the_brokers_loggers_are_shown_and_set(node: Any) -> None:
    name = "penstock.handlers.offsets"
    assert (await alter(node, LOGGER, "1", (name, SET, "DEBUG"))).error_code == 0
    try:
        assert await value(node, LOGGER, "1", name) == ("DEBUG", 6)
    finally:
        assert (await alter(node, LOGGER, "1", (name, REMOVE, None))).error_code == 0
    assert (await value(node, LOGGER, "1", name))[0] != "DEBUG"
    assert (await alter(node, LOGGER, "2", (name, SET, "DEBUG"))).error_code == ErrorCode.INVALID_REQUEST


async def test_client_metrics_subscriptions_are_kept_shown_and_taken_away(node: Any) -> None:
    wish = (("metrics", SET, "*"), ("interval.ms", SET, "1000"), ("match", SET, "client_id=a=b.*"))
    assert (await alter(node, METRICS, "billing", *wish)).error_code == 0
    assert await value(node, METRICS, "billing", "interval.ms") == ("1000", 7)
    assert await value(node, METRICS, "nobody", "interval.ms") == ("300000", 5)
    assert (await alter(node, METRICS, "billing", ("match", APPEND, "client_source_port=9.*"))).error_code == 0
    assert (await value(node, METRICS, "billing", "match"))[0] == "client_id=a=b.*,client_source_port=9.*"
    assert await list_resources(node, 0) == await list_resources(node, 1, resource_types=[METRICS])
    assert await list_resources(node, 0) == [(METRICS, "billing")]
    for wrong in [
        ("interval.ms", "99"),
        ("match", "client_id"),
        ("match", "color=red"),
        ("match", "client_id=("),
        ("match", "client_id=a,client_id=b"),
        ("match", "client_id=(a{900}){900}"),
        ("metric", "*"),
    ]:
        assert (await alter(node, METRICS, "billing", (wrong[0], SET, wrong[1]))).error_code == 40, wrong
    assert (await replace(node, METRICS, "billing")).error_code == 0
    assert await list_resources(node, 0) == []


async def list_resources(node: Any, version: int, **more: Any) -> list[tuple[int, str]]:
    answer = await node.call(handle_list_config_resources, LIST, version, **more)
    assert answer.error_code == 0
    return [(getattr(each, "resource_type", METRICS), each.resource_name) for each in answer.config_resources]


async def test_everything_with_settings_is_listed(node: Any) -> None:
    await node.create("orders")
    await alter(node, GROUP, "readers", ("share.auto.offset.reset", SET, "earliest"))
    everything = [(TOPIC, "orders"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "readers")]
    assert await list_resources(node, 1) == everything
    assert await list_resources(node, 1, resource_types=[TOPIC, GROUP]) == [everything[0], everything[3]]
    assert await list_resources(node, 1, resource_types=[METRICS]) == []
    assert await list_resources(node, 0) == []
    answer = await node.call(handle_list_config_resources, LIST, resource_types=[TOPIC, 3])
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())
