"""handlers.quotas: client quotas seen and set over the wire."""

import math
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.handlers.quotas import handle_alter_client_quotas, handle_describe_client_quotas
from penstock.wire.apis import ApiKey

DESCRIBE, ALTER = ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS
EXACT, DEFAULT, ANY = 0, 1, 2
RATE = "producer_byte_rate"

Entity = list[tuple[str, str | None]]


def entry(entity: Entity, **changes: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()],
    }


async def alter(node: Any, *entries: dict[str, Any], version: int | None = None, **more: Any) -> list[ErrorCode]:
    answer = await node.call(handle_alter_client_quotas, ALTER, version, entries=entries, **more)
    sent = [[(part["entity_type"], part["entity_name"]) for part in entry["entity"]] for entry in entries]
    assert [[(part.entity_type, part.entity_name) for part in each.entity] for each in answer.entries] == sent
    return [ErrorCode(each.error_code) for each in answer.entries]


async def describe(node: Any, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    return await node.call(handle_describe_client_quotas, DESCRIBE, components=rows, strict=strict)


async def found(node: Any, *components: tuple[str, int, str | None], strict: bool = False) -> list[str]:
    answer = await describe(node, *components, strict=strict)
    assert answer.error_code == 0
    return sorted(" ".join(f"{part.entity_type}={part.entity_name}" for part in each.entity) for each in answer.entries)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_quota_that_was_set_is_described_and_can_be_removed(node: Any, version: int) -> None:
    entity: Entity = [("user", "ann"), ("client-id", "app")]
    assert await alter(node, entry(entity, **{RATE: 1000.0, "request_percentage": 2.5}), version=version) == [0]
    answer = await node.call(handle_describe_client_quotas, DESCRIBE, version, components=[])
    (each,) = answer.entries
    assert [(part.entity_type, part.entity_name) for part in each.entity] == [("client-id", "app"), ("user", "ann")]
    assert [(value.key, value.value) for value in each.values] == [(RATE, 1000.0), ("request_percentage", 2.5)]
    assert await alter(node, entry(entity, **{RATE: None}), version=version) == [0]
    (each,) = (await describe(node)).entries
    assert [value.key for value in each.values] == ["request_percentage"]
    assert await alter(node, entry(entity, request_percentage=None)) == [0]
    assert await found(node) == []


async def test_a_quota_takes_effect(node: Any) -> None:
    await alter(node, entry([("client-id", None)], **{RATE: 1000.0}))
    assert node.context.quotas.produce is not None


async def test_filters_match_exactly_by_default_or_any(node: Any) -> None:
    entities: list[Entity] = [
        [("user", "ann")],
        [("user", None)],
        [("user", "ann"), ("client-id", "app")],
        [("user", "ann"), ("client-id", None)],
        [("client-id", "app")],
    ]
    assert await alter(node, *(entry(entity, **{RATE: 1.0}) for entity in entities)) == [0] * 5
    await alter(node, entry([("ip", "10.0.0.1")], connection_creation_rate=5.0))
    assert len(await found(node)) == 6
    assert await found(node, strict=True) == []
    assert await found(node, ("user", EXACT, "ann")) == [
        "client-id=None user=ann",
        "client-id=app user=ann",
        "user=ann",
    ]
    assert await found(node, ("user", EXACT, "ann"), strict=True) == ["user=ann"]
    assert await found(node, ("user", DEFAULT, None)) == ["user=None"]
    assert await found(node, ("user", ANY, None), strict=True) == ["user=None", "user=ann"]
    assert await found(node, ("user", ANY, None), ("client-id", EXACT, "app")) == ["client-id=app user=ann"]
    assert await found(node, ("ip", ANY, None)) == ["ip=10.0.0.1"]
    assert await found(node, ("user", EXACT, "bob")) == []


NONSENSE_FILTERS: list[tuple[list[tuple[str, int, str | None]], ErrorCode]] = [
    ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
    ([("user", EXACT, "x"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
    ([("group", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
    ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
    ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
    ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
    ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
    ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
]


async def test_a_filter_that_makes_no_sense_is_refused(node: Any) -> None:
    for components, code in NONSENSE_FILTERS:
        answer = await describe(node, *components)
        assert (answer.error_code, answer.entries) == (code, None), components
        assert answer.error_message


BAD_QUOTAS: list[tuple[Entity, dict[str, float | None]]] = [
    ([], {RATE: 1.0}),
    ([("group", "x")], {RATE: 1.0}),
    ([("user", "")], {RATE: 1.0}),
    ([("user", "")], {RATE: None}),
    ([("user", "ann"), ("user", "bob")], {RATE: 1.0}),
    ([("user", "ann"), ("user", "ann")], {RATE: 1.0}),
    ([("user", "ann"), ("ip", "10.0.0.1")], {RATE: 1.0}),
    ([("ip", "10.0.0.1")], {RATE: 1.0}),
    ([("ip", "example.test")], {"connection_creation_rate": 1.0}),
    ([("user", "ann")], {"connection_creation_rate": 1.0}),
    ([("user", "ann")], {"nonsense": 1.0}),
    ([("user", "ann")], {RATE: -1.0}),
    ([("user", "ann")], {RATE: 0.5}),
    ([("user", "ann")], {RATE: math.nan}),
    ([("user", "ann")], {RATE: math.inf}),
]


async def test_a_bad_quota_is_refused_and_the_good_one_beside_it_is_set(node: Any) -> None:
    for entity, changes in BAD_QUOTAS:
        codes = await alter(node, entry(entity, **changes), entry([("user", "good")], **{RATE: 1.0}))
        assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE], (entity, changes)
        assert await found(node) == ["user=good"]


async def test_an_entity_or_a_key_named_twice_changes_nothing(node: Any) -> None:
    twice = entry([("user", "ann")], **{RATE: 1.0})
    assert await alter(node, twice, twice) == [ErrorCode.INVALID_REQUEST] * 2
    both = {**twice, "ops": twice["ops"] * 2}
    assert await alter(node, both) == [ErrorCode.INVALID_REQUEST]
    assert await found(node) == []


async def test_validate_only_sets_nothing(node: Any) -> None:
    entries = entry([("user", "ann")], **{RATE: 1.0}), entry([("user", "bob")], **{RATE: -1.0})
    assert await alter(node, *entries, validate_only=True) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert await found(node) == []


async def test_an_address_is_one_however_it_is_spelt(node: Any) -> None:
    assert await alter(node, entry([("ip", "0:0:0:0:0:0:0:1")], connection_creation_rate=5.0)) == [0]
    assert await found(node, ("ip", EXACT, "::0001")) == ["ip=::1"]
