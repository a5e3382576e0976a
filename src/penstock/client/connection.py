"""One connection to one broker: requests out, replies in, each with a deadline.

Called by cli, for what librdkafka's admin client cannot ask, and by tests that speak every version of every API.
Plaintext only. Requests may be in flight together; a broker answers in the order asked, and that is checked.
Invariants:
- Every request ends in a reply, a TimeoutError, a ConnectionError or MalformedFrame; none waits for ever.
- After a time-out, a reply out of order or a frame that is too large, the connection is closed: its stream can't be
  trusted any more.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from penstock.errors import ApiNotServed, ErrorCode, MalformedFrame
from penstock.model import Endpoint
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import MALFORMED, skip_tags

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
TIMEOUT_S = 10.0


class ClientConnection:
    """Made by `connect`; closed by `close` or by leaving `async with`."""

    def __init__(self, endpoint: Endpoint, client_id: str | None, timeout_s: float, response_bytes_max: int) -> None:
        self.endpoint = endpoint
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._response_bytes_max = response_bytes_max
        self._next_correlation_id = 0
        self._awaited: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._failure: Exception | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._receiving: asyncio.Task[None]

    @classmethod
    async def connect(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str | None = "penstock",
        timeout_s: float = TIMEOUT_S,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        negotiate: bool = True,
    ) -> Self:
        """Connect and, unless told not to, learn which versions the broker speaks."""
        connection = cls(endpoint, client_id, timeout_s, response_bytes_max)
        async with asyncio.timeout(timeout_s):
            connection._reader, connection._writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        connection._receiving = asyncio.get_running_loop().create_task(connection._receive())
        try:
            if negotiate:
                await connection._negotiate()
        except BaseException:
            await connection.close()
            raise
        return connection

    async def request(
        self, api_key: int, version: int | None, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Any:
        """The reply, as kio's dataclass. Version None: the highest both sides speak, or ApiNotServed."""
        if version is None:
            version = self._highest(api_key)
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._awaited.append((self._send(api_key, version, encode_request(api_key, version, body)), reply))
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._writer.drain()
                frame = await reply
        except TimeoutError:
            self._fail(ConnectionAbortedError(f"{self.endpoint} left an earlier request unanswered"))
            name = BY_KEY[api_key].name
            raise TimeoutError(f"{self.endpoint} did not answer {name} v{version} within {limit_s:g} s") from None
        return decode_response(api_key, version, frame[_body_offset(frame, api_key, version) :])

    async def send(self, api_key: int, version: int, body: Mapping[str, Any]) -> None:
        """Send what no broker answers: a Produce with acks=0."""
        self._send(api_key, version, encode_request(api_key, version, body))
        await self._writer.drain()

    async def close(self) -> None:
        self._receiving.cancel()
        self._fail(ConnectionAbortedError(f"the connection to {self.endpoint} was closed here"))
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._receiving
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _send(self, api_key: int, version: int, body: bytes) -> int:
        if self._failure is not None:
            raise self._failure
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        self._writer.write(request_frame(api_key, version, correlation_id, self._client_id, body))
        return correlation_id

    async def _receive(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                # The first bytes of a TLS alert or of "HTTP" are, read as a length, far beyond any limit.
                if not 4 <= size <= self._response_bytes_max:
                    raise MalformedFrame(f"{self.endpoint} sent a frame of {size} bytes: it does not speak plain Kafka")
                frame = await self._reader.readexactly(size)
                correlation_id = int.from_bytes(frame[:4], "big")
                if not self._awaited or self._awaited[0][0] != correlation_id:
                    raise MalformedFrame(f"{self.endpoint} answered request {correlation_id}, not the next one")
                _, reply = self._awaited.popleft()
                if not reply.done():
                    reply.set_result(frame)
        except asyncio.IncompleteReadError:
            self._fail(ConnectionResetError(f"{self.endpoint} hung up"))
        except (OSError, MalformedFrame) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Nothing more comes or goes; whoever waits learns why."""
        if self._failure is None:
            self._failure = error
        while self._awaited:
            _, reply = self._awaited.popleft()
            if not reply.done():
                reply.set_exception(self._failure)
                reply.exception()  # seen: a caller that has given up leaves nobody to read it
        self._writer.close()

    async def _negotiate(self) -> None:
        body = {"client_software_name": "penstock", "client_software_version": "1"}
        try:
            reply = await self.request(ApiKey.API_VERSIONS, BY_KEY[ApiKey.API_VERSIONS].high, body)
        except MalformedFrame:
            # A broker older than that answers in version 0, whatever was asked (KIP-511).
            reply = await self.request(ApiKey.API_VERSIONS, 0, {})
        if reply.error_code != ErrorCode.NONE:
            reply = await self.request(ApiKey.API_VERSIONS, 0, {})
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}

    def _highest(self, api_key: int) -> int:
        low, high = self.versions.get(api_key, (0, -1))
        version = min(high, BY_KEY[api_key].high)
        if version < max(low, BY_KEY[api_key].low):
            raise ApiNotServed(f"{self.endpoint} does not serve {BY_KEY[api_key].name} in a version known here")
        return version


def _body_offset(frame: bytes, api_key: int, version: int) -> int:
    # The answer to ApiVersions never has tagged fields in its header: see wire.frame.
    if api_key == ApiKey.API_VERSIONS or not BY_KEY[api_key].is_flexible(version):
        return 4
    try:
        return skip_tags(memoryview(frame), 4)
    except MALFORMED as failure:
        raise MalformedFrame("response header") from failure
