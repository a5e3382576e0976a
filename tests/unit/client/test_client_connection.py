"""The client connection against a real broker, and against servers that misbehave."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from penstock.client.connection import ClientConnection
from penstock.errors import ApiNotServed, ErrorCode, MalformedFrame
from penstock.model import Endpoint
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame, response_frame
from penstock.wire.messages import encode_response

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

API_VERSIONS = {"api_keys": [{"api_key": ApiKey.METADATA, "min_version": 0, "max_version": 13}]}


@asynccontextmanager
async def server(serve: Serve) -> AsyncGenerator[Endpoint]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with listening:
        yield Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1])


async def read_request(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    """API key, version and correlation id of the next request."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(size)
    return int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big"), int.from_bytes(frame[4:8], "big")


def api_versions_reply(version: int, correlation_id: int) -> bytes:
    body = encode_response(ApiKey.API_VERSIONS, version, API_VERSIONS)
    return response_frame(ApiKey.API_VERSIONS, version, correlation_id, body)


def broker_endpoint(broker: EmbeddedBroker) -> Endpoint:
    host, _, port = broker.bootstrap.rpartition(":")
    return Endpoint(host, int(port))


async def test_every_version_of_an_api_can_be_asked_for(penstock_broker: EmbeddedBroker) -> None:
    async with await ClientConnection.connect(broker_endpoint(penstock_broker)) as connection:
        for version in range(BY_KEY[ApiKey.METADATA].low, BY_KEY[ApiKey.METADATA].high + 1):
            reply = await connection.request(ApiKey.METADATA, version, {"topics": []})
            assert [broker.node_id for broker in reply.brokers] == [1]


async def test_without_a_version_the_highest_both_sides_know_is_used(penstock_broker: EmbeddedBroker) -> None:
    async with await ClientConnection.connect(broker_endpoint(penstock_broker)) as connection:
        reply = await connection.request(ApiKey.METADATA, None, {"topics": []})
        assert reply.__version__ == BY_KEY[ApiKey.METADATA].high


async def test_requests_in_flight_together_get_each_their_own_reply(penstock_broker: EmbeddedBroker) -> None:
    async with await ClientConnection.connect(broker_endpoint(penstock_broker)) as connection:
        replies = await asyncio.gather(
            connection.request(ApiKey.API_VERSIONS, 0, {}),
            connection.request(ApiKey.METADATA, 1, {"topics": []}),
            connection.request(ApiKey.METADATA, 9, {"topics": []}),
        )
    assert [type(reply).__name__ for reply in replies] == [
        "ApiVersionsResponse",
        "MetadataResponse",
        "MetadataResponse",
    ]
    assert [reply.__version__ for reply in replies] == [0, 1, 9]


async def test_a_broker_that_knows_only_the_oldest_handshake_is_asked_again_in_it() -> None:
    asked: list[int] = []

    async def old_broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, version, correlation_id = await read_request(reader)
            asked.append(version)
            if version:
                refusal = {"error_code": ErrorCode.UNSUPPORTED_VERSION}
                body = encode_response(ApiKey.API_VERSIONS, 0, refusal)
                writer.write(response_frame(ApiKey.API_VERSIONS, 0, correlation_id, body))
            else:
                writer.write(api_versions_reply(0, correlation_id))

    async with server(old_broker) as endpoint, await ClientConnection.connect(endpoint) as connection:
        assert connection.versions == {ApiKey.METADATA: (0, 13)}
    assert asked == [BY_KEY[ApiKey.API_VERSIONS].high, 0]


async def test_an_api_the_broker_does_not_name_is_not_asked_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, version, correlation_id = await read_request(reader)
        writer.write(api_versions_reply(version, correlation_id))
        await reader.read()

    async with server(serve) as endpoint, await ClientConnection.connect(endpoint) as connection:
        with pytest.raises(ApiNotServed, match="CreateTopics"):
            await connection.request(ApiKey.CREATE_TOPICS, None, {})


async def test_a_request_that_is_not_answered_ends_in_a_time_out_and_closes_the_connection() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(silent) as endpoint:
        connection = await ClientConnection.connect(endpoint, negotiate=False)
        with pytest.raises(TimeoutError, match="did not answer Metadata v1"):
            await connection.request(ApiKey.METADATA, 1, {"topics": []}, timeout_s=0.05)
        with pytest.raises(ConnectionError):
            await connection.request(ApiKey.METADATA, 1, {"topics": []})
        await connection.close()


async def test_whoever_waits_learns_that_the_broker_hung_up() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with server(rude) as endpoint:
        with pytest.raises(ConnectionResetError, match="hung up"):
            await ClientConnection.connect(endpoint)


@pytest.mark.parametrize("speech", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"\0\0\0\1"])
async def test_what_is_not_kafka_is_told_by_its_frame_length(speech: bytes) -> None:
    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(speech)
        await reader.read()

    async with server(other) as endpoint:
        with pytest.raises(MalformedFrame, match="not plain Kafka"):
            await ClientConnection.connect(endpoint)


async def test_a_frame_larger_than_allowed_is_not_read() -> None:
    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write((1001).to_bytes(4, "big"))
        await reader.read()

    async with server(large) as endpoint:
        connection = await ClientConnection.connect(endpoint, negotiate=False, response_bytes_max=1000)
        with pytest.raises(MalformedFrame, match="1001 bytes"):
            await connection.request(ApiKey.METADATA, 1, {"topics": []})
        await connection.close()


async def test_a_reply_to_another_request_is_not_taken_for_ours() -> None:
    async def confused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, version, correlation_id = await read_request(reader)
        writer.write(api_versions_reply(version, correlation_id + 1))
        await reader.read()

    async with server(confused) as endpoint:
        with pytest.raises(MalformedFrame, match="not the next one"):
            await ClientConnection.connect(endpoint)


async def test_a_produce_that_nobody_answers_leaves_the_connection_usable(penstock_broker: EmbeddedBroker) -> None:
    async with await ClientConnection.connect(broker_endpoint(penstock_broker)) as connection:
        await connection.send(ApiKey.PRODUCE, 9, {"acks": 0, "timeout": 1000, "topic_data": []})
        reply = await connection.request(ApiKey.METADATA, 1, {"topics": []})
        assert reply.controller_id == 1


async def test_closing_ends_what_is_under_way() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(silent) as endpoint:
        connection = await ClientConnection.connect(endpoint, negotiate=False)
        waiting = asyncio.ensure_future(connection.request(ApiKey.METADATA, 1, {"topics": []}))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(ConnectionAbortedError):
            await waiting


async def test_a_raw_exchange_numbers_the_frame_and_gives_the_reply_as_it_came() -> None:
    numbers: list[int] = []
    large = bytes(range(256)) * 4096

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, _, correlation_id = await read_request(reader)
            numbers.append(correlation_id)
            reply = correlation_id.to_bytes(4, "big") + large
            writer.write(len(reply).to_bytes(4, "big") + reply)

    frame = request_frame(ApiKey.FETCH, 17, 99, "follower", b"")
    async with (
        server(serve) as endpoint,
        await ClientConnection.connect(endpoint, negotiate=False) as connection,
    ):
        replies = await asyncio.gather(*(connection.exchange(frame) for _ in range(3)))
    assert numbers == [0, 1, 2]
    assert [int.from_bytes(reply[:4], "big") for reply in replies] == numbers
    assert all(reply[4:] == large for reply in replies)
