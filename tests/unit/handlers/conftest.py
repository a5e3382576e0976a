"""A real broker for the tests of handlers: they are called as dispatch calls them, every message through the wire."""

import inspect
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock.broker
from penstock.broker import Broker
from penstock.config import BrokerConfig
from penstock.handlers.context import ConnectionState, HandlerContext, Request
from penstock.model import ANONYMOUS
from penstock.records.batch import read_header
from penstock.records.record import Record, encode_batch
from penstock.replication.partition import Partition
from penstock.server.dispatch import Dispatcher
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_request, decode_response, encode_request, encode_response

SETTINGS = {
    "listeners": "127.0.0.1:0",
    "penstock.http.listen": "",
    "log.segment.delete.delay.ms": "60000",
    # Fifty each, as a server has them, would be most of what a test that needs them takes.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


class Caller:
    """Calls handlers of one context; keeps the last connection's state to look at."""

    def __init__(self, broker: Broker, context: HandlerContext) -> None:
        self.broker = broker
        self.context = context
        self.connection = ConnectionState("127.0.0.1", ANONYMOUS)

    async def call(self, handler: Any, api_key: ApiKey, version: int | None = None, /, **body: Any) -> Any:
        """The decoded answer to a request with these fields; the newest version if none is given."""
        return await call_handler(handler, self.context, api_key, version, body, self.connection)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        """A topic, made through the controller; settings are written with _ for the dot."""
        from penstock.cluster.topic_plan import NewTopic

        given = {key.replace("_", "."): value for key, value in configs.items()}
        (made,) = await self.context.controller.create_topics([NewTopic(name, partitions, 1, given)])
        assert not isinstance(made, Exception), made

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.context.replicas.find(name, index)

    def append(self, name: str, *timestamps: int, index: int = 0, **options: Any) -> int:
        """One batch, a record for each timestamp; gives its first offset."""
        records = [Record(offset, timestamp, b"key", b"value") for offset, timestamp in enumerate(timestamps)]
        batch = memoryview(encode_batch(records, **options))
        return self.partition(name, index).append(batch, read_header(batch), self.context.clock.now_ms()).base_offset


async def call_handler(
    handler: Any,
    context: Any,
    api_key: ApiKey,
    version: int | None,
    body: dict[str, Any],
    connection: ConnectionState | None = None,
) -> Any:
    version = BY_KEY[api_key].high if version is None else version
    decoded = decode_request(api_key, version, encode_request(api_key, version, body))
    state = connection or ConnectionState("127.0.0.1", ANONYMOUS)
    answer = handler(context, Request(api_key, version, "a-client", state, decoded))
    if inspect.isawaitable(answer):
        answer = await answer
    return decode_response(api_key, version, encode_response(api_key, version, answer))


@pytest.fixture(name="call_handler")
def call_handler_fixture() -> Any:
    """For tests that need no broker."""
    return call_handler


@pytest.fixture
def settings() -> dict[str, str]:
    """Broker settings of a test; overridden by parametrizing or redefining."""
    return {}


@pytest.fixture
async def node(tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    kept = SimpleNamespace(context=None)

    def keep(context: HandlerContext) -> Dispatcher:
        kept.context = context
        return Dispatcher(context)

    monkeypatch.setattr(penstock.broker, "Dispatcher", keep)
    broker = Broker(BrokerConfig({**SETTINGS, "log.dirs": str(tmp_path / "data"), **settings}))
    await broker.start()
    try:
        yield Caller(broker, kept.context)
    finally:
        await broker.stop()
