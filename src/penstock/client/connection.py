"""One connection to one broker: requests out, replies in, each with a deadline.

Called by client.peers, by cli for what librdkafka's admin client cannot ask, and by tests that speak every version of
every API. Plaintext only. Requests may be in flight together; a broker answers in the order asked, and that is checked.
Invariants:
- Every request ends in a reply, a TimeoutError, a ConnectionError or MalformedFrame; none waits for ever.
- After a time-out, a reply out of order or a frame that is too large, the connection is closed: its stream can't be
  trusted any more.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from struct import Struct
from typing import Any, Self

from penstock.client.framing import FrameProtocol
from penstock.errors import ApiNotServed, ErrorCode, MalformedFrame
from penstock.model import Endpoint
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import I32, MALFORMED, skip_tags

RESPONSE_BYTES_MAX = 100 * 1024 * 1024
TIMEOUT_S = 10.0

_REQUEST_START = Struct(">hh")  # API and version, behind the length
_CORRELATION_ID_AT = 8


class ClientConnection:
    """Made by `connect`; closed by `close` or by leaving `async with`."""

    def __init__(self, endpoint: Endpoint, client_id: str | None, timeout_s: float, response_bytes_max: int) -> None:
        self.endpoint = endpoint
        self.versions: dict[int, tuple[int, int]] = {}
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._next_correlation_id = 0
        self._awaited: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._failure: Exception | None = None
        self._protocol = FrameProtocol(response_bytes_max, self._received, self._lost)

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
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: connection._protocol, endpoint.host, endpoint.port)
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
        frame = request_frame(api_key, version, 0, self._client_id, encode_request(api_key, version, body))
        reply = await self.exchange(frame, timeout_s=timeout_s)
        return decode_response(api_key, version, bytes(reply[_body_offset(reply, api_key, version) :]))

    async def exchange(self, frame: bytes, *, timeout_s: float | None = None) -> memoryview:
        """Send a whole frame, whose correlation id is set here; the reply's frame, from its correlation id on."""
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._awaited.append((self._send(frame), reply))
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self._protocol.drain()
                return await reply
        except TimeoutError:
            self._fail(ConnectionAbortedError(f"{self.endpoint} left an earlier request unanswered"))
            api_key, version = _REQUEST_START.unpack_from(frame, 4)
            name = BY_KEY[api_key].name
            raise TimeoutError(f"{self.endpoint} did not answer {name} v{version} within {limit_s:g} s") from None

    async def send(self, api_key: int, version: int, body: Mapping[str, Any]) -> None:
        """Send what no broker answers: a Produce with acks=0."""
        self._send(request_frame(api_key, version, 0, self._client_id, encode_request(api_key, version, body)))
        await self._protocol.drain()

    @property
    def is_broken(self) -> bool:
        """Nothing more can be asked here."""
        return self._failure is not None

    async def close(self) -> None:
        # What was sent for nobody to answer still goes out.
        self._protocol.close()
        self._end(ConnectionAbortedError(f"the connection to {self.endpoint} was closed here"))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await asyncio.shield(self._protocol.closed)
        finally:
            self._protocol.abort()

    def abort(self, error: ConnectionError) -> None:
        """Close at once; whoever waits for a reply hears `error`."""
        self._fail(error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _send(self, frame: bytes) -> int:
        if self._failure is not None:
            raise self._failure
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        numbered = bytearray(frame)
        I32.pack_into(numbered, _CORRELATION_ID_AT, correlation_id)
        self._protocol.write(numbered)
        return correlation_id

    def _received(self, frame: memoryview) -> None:
        correlation_id = I32.unpack_from(frame)[0]
        if not self._awaited or self._awaited[0][0] != correlation_id:
            self._fail(MalformedFrame(f"{self.endpoint} answered request {correlation_id}, not the next one"))
            return
        _, reply = self._awaited.popleft()
        if not reply.done():
            reply.set_result(frame)

    def _lost(self, error: Exception | None) -> None:
        if error is None:
            self._fail(ConnectionResetError(f"{self.endpoint} hung up"))
        elif isinstance(error, MalformedFrame):
            self._fail(MalformedFrame(f"{self.endpoint}: {error}"))
        else:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._end(error)
        self._protocol.abort()

    def _end(self, error: Exception) -> None:
        """Nothing more comes or goes; whoever waits learns why."""
        if self._failure is None:
            self._failure = error
        while self._awaited:
            _, reply = self._awaited.popleft()
            if not reply.done():
                reply.set_exception(self._failure)
                reply.exception()  # seen: a caller that has given up leaves nobody to read it

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


def _body_offset(frame: memoryview, api_key: int, version: int) -> int:
    # The answer to ApiVersions never has tagged fields in its header: see wire.frame.
    if api_key == ApiKey.API_VERSIONS or not BY_KEY[api_key].is_flexible(version):
        return 4
    try:
        return skip_tags(frame, 4)
    except MALFORMED as failure:
        raise MalformedFrame("response header") from failure
