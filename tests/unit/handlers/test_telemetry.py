"""GetTelemetrySubscriptions and PushTelemetry as they come over the wire, with every refusal KIP-714 knows."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
from penstock.config import Scope
from penstock.errors import ErrorCode
from penstock.handlers.metadata import handle_api_versions
from penstock.handlers.telemetry import handle_get_telemetry_subscriptions, handle_push_telemetry
from penstock.records.compression import Codec, compress
from penstock.telemetry import reception
from penstock.wire.apis import ApiKey

# One gauge, org.apache.kafka.x = 2.5, byte by byte as protobuf has it.
POINT = b"\x21\x00\x00\x00\x00\x00\x00\x04\x40"
NAME = b"org.apache.kafka.x"


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


METRICS = field(1, field(2, field(2, field(1, NAME) + field(5, field(1, POINT)))))


async def subscribe(node: Any, **settings: str) -> None:
    changes = [ConfigChange(name.replace("_", "."), ConfigOp.SET, value) for name, value in settings.items()]
    await node.context.controller.alter_configs(ConfigResource(Scope.CLIENT_METRICS, "s"), changes)


async def ask(node: Any, instance_id: UUID | None = None) -> Any:
    return await node.call(
        handle_get_telemetry_subscriptions, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, client_instance_id=instance_id
    )


async def push(node: Any, told: Any, metrics: bytes = METRICS, codec: int = 0, **more: Any) -> ErrorCode:
    body = {
        "client_instance_id": told.client_instance_id,
        "subscription_id": told.subscription_id,
        "terminating": False,
        "compression_type": codec,
        "metrics": metrics,
        **more,
    }
    return ErrorCode((await node.call(handle_push_telemetry, ApiKey.PUSH_TELEMETRY, **body)).error_code)


def shown(node: Any) -> list[str]:
    page = node.context.metrics.render().splitlines()
    return [line.rpartition(" ")[2] for line in page if line.startswith("mq_client_x{")]


async def test_it_is_offered_only_where_somebody_subscribed_and_answered_always(node: Any) -> None:
    async def offered() -> set[int]:
        body = {"client_software_name": "x", "client_software_version": "1"}
        keys = {one.api_key for one in (await node.call(handle_api_versions, ApiKey.API_VERSIONS, 4, **body)).api_keys}
        assert len(keys) > 40
        return keys & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}

    assert await offered() == set()
    assert (await ask(node)).error_code == 0
    await subscribe(node, metrics="*")
    assert await offered() == {71, 72}
    gone = [ConfigChange("metrics", ConfigOp.DELETE, None)]
    await node.context.controller.alter_configs(ConfigResource(Scope.CLIENT_METRICS, "s"), gone)
    assert await offered() == set()


async def test_without_a_subscription_nothing_is_asked_for(node: Any) -> None:
    told = await ask(node)
    assert (told.error_code, told.requested_metrics, told.client_instance_id is not None) == (0, (), True)
    assert (told.push_interval.total_seconds(), told.telemetry_max_bytes, told.delta_temporality) == (
        300,
        1 << 20,
        False,
    )
    assert list(told.accepted_compression_types) == [4, 3, 1, 2]
    again = await ask(node, told.client_instance_id)
    assert again.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_is_pushed_is_shown_however_it_is_compressed(node: Any, codec: Codec) -> None:
    await subscribe(node, metrics="*")
    told = await ask(node)
    assert told.requested_metrics == ("*",)
    assert await push(node, told, compress(codec, METRICS), codec) is ErrorCode.NONE
    assert shown(node) == ["2.5"]
    assert await push(node, told) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(node, told, b"", terminating=True) is ErrorCode.NONE
    assert await push(node, told) is ErrorCode.INVALID_REQUEST


async def test_a_changed_subscription_sends_a_client_back_to_ask(node: Any) -> None:
    await subscribe(node, metrics="a.")
    told = await ask(node)
    await subscribe(node, metrics="b.")
    assert await push(node, told) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = await ask(node, told.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (0, ("b.",))
    assert again.client_instance_id == told.client_instance_id
    assert await push(node, again) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"client_instance_id": None}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": UUID(int=1)}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": UUID(int=99)}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"subscription_id": 5}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes((1 << 20) + 1)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\x0a"}, ErrorCode.INVALID_RECORD),
        ({"metrics": METRICS, "compression_type": Codec.GZIP}, ErrorCode.INVALID_RECORD),
        ({"metrics": METRICS, "compression_type": Codec.SNAPPY}, ErrorCode.INVALID_RECORD),
    ],
)
async def test_what_is_wrong_with_a_push_has_its_own_code(node: Any, wrong: dict[str, Any], code: ErrorCode) -> None:
    await subscribe(node, metrics="*")
    told = await ask(node)
    assert await push(node, told, **wrong) is code
    assert shown(node) == []
    counted = node.context.metrics.client_pushes.child(code.name).value
    assert counted == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_bomb_is_too_large_and_costs_no_more_than_the_limit(node: Any, codec: Codec) -> None:
    await subscribe(node, metrics="*")
    bomb = compress(codec, bytes(reception.UNFOLDED_FACTOR_MAX * (1 << 20) + 1))
    assert len(bomb) < 1 << 20
    assert await push(node, await ask(node), bomb, codec) is ErrorCode.TELEMETRY_TOO_LARGE


async def test_pushes_are_unpacked_one_at_a_time_and_only_so_many_wait(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "PUSHES_WAITING_MAX", 2)
    await subscribe(node, metrics="*")
    clients = [await ask(node) for _ in range(4)]
    codes = await asyncio.gather(*(push(node, told) for told in clients))
    assert sorted(codes) == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert shown(node) == ["2.5", "2.5"]
