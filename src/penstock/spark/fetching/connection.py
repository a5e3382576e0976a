"""One blocking connection to one broker: TLS and SASL where they are wanted, then one request at a time.

Called by fetching.pool, which sees to it that one thread at a time uses it; `abort` alone may come from another one.
Laws:
- Every request ends in a reply, in an OSError (ConnectionError, TimeoutError: another try may help) or in a
  SparkFailure (it will not). After any of them but a reply, the connection is broken and says so.
- A reply lies in a buffer of its own, received where it stays, and no larger than REPLY_BYTES_MAX.
"""

import contextlib
import socket
import ssl
import time
from struct import Struct
from typing import Self

from penstock.model import Endpoint
from penstock.spark.fetching.errors import NotAdmitted, NotServed
from penstock.spark.fetching.settings import ConnectionSettings
from penstock.spark.fetching.tls import check_refusal, wrap
from penstock.wire.apis import ApiKey
from penstock.wire.primitives import MALFORMED, skip_tags

# Below what the first bytes of a TLS alert or of HTTP say when they are read as a length.
REPLY_BYTES_MAX = 320 * 1024 * 1024
_REPLY_BYTES_MIN = 4  # a correlation id

_HEADER = Struct(">ihhih")  # length, API, version, correlation id, bytes of the client id
_HEADER_SIZE = _HEADER.size - 4  # which the length counts
_REPLY = Struct(">i")
_VERSIONS = Struct(">hi")  # error, count
_VERSION = Struct(">hhh")
_TLS_ALERT = b"\x15\x03"
_RECEIVE_BUFFER_BYTES = 1024 * 1024


class BrokerConnection:
    """Made by `connect`; the broker's versions are known from then on, and it knows who we are."""

    def __init__(self, endpoint: Endpoint, settings: ConnectionSettings, connected: socket.socket) -> None:
        self.endpoint = endpoint
        self.is_broken = False
        self.expires_at = float("inf")  # when the broker wants to see the password again
        self._settings = settings
        self._socket = connected
        self._client_id = settings.client_id.encode()
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    def connect(cls, endpoint: Endpoint, settings: ConnectionSettings) -> Self:
        connected = socket.create_connection((endpoint.host, endpoint.port), settings.connect_timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            if settings.uses_tls:
                # From here on the socket below is the wrapper's: closing the old object would close nothing.
                connected = wrap(connected, endpoint, settings)
            connection = cls(endpoint, settings, connected)
            connection._negotiate()
            if settings.uses_sasl:
                # Imported here: it needs this class for its types.
                from penstock.spark.fetching.sasl import authenticate

                authenticate(connection, settings)
        except BaseException:
            connected.close()
            raise
        return connection

    def version(self, api_key: int, low: int, high: int) -> int:
        """The highest version from `low` to `high` that the broker speaks."""
        theirs_low, theirs_high = self._versions.get(api_key, (0, -1))
        version = min(high, theirs_high)
        if version < max(low, theirs_low):
            raise NotServed(
                f"{self.endpoint} serves API {api_key} in versions {theirs_low} to {theirs_high}, and {low} to {high} "
                f"are known here: it must be Kafka 0.11 or later, or something as new"
            )
        return version

    def call(
        self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False, timeout_s: float | None = None
    ) -> memoryview:
        """The reply, behind its header."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        head = bytearray(
            _HEADER.pack(
                _HEADER_SIZE + len(self._client_id) + is_flexible + len(body),
                api_key,
                version,
                self._correlation_id,
                len(self._client_id),
            )
        )
        head += self._client_id
        if is_flexible:
            head.append(0)
        self.is_broken = True  # until the reply is whole
        limit_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        try:
            self._socket.settimeout(limit_s)
            self._socket.sendall(head + body)
            reply = self._receive(time.monotonic() + limit_s)
        except TimeoutError:
            raise TimeoutError(f"{self.endpoint} did not answer within {limit_s:g} s") from None
        except (ConnectionError, ssl.SSLError) as failure:
            check_refusal(self.endpoint, failure)
            raise ConnectionResetError(f"{self.endpoint} hung up{self._why_hung_up()}") from failure
        if _REPLY.unpack_from(reply)[0] != self._correlation_id:
            raise ConnectionError(f"{self.endpoint} answered another request than the one asked")
        try:
            start = skip_tags(reply, 4) if is_flexible else 4
        except MALFORMED as failure:
            raise ConnectionError(f"{self.endpoint} sent a reply with a broken header") from failure
        self.is_broken = False
        return reply[start:]

    def abort(self) -> None:
        """From any thread: whoever waits for a reply gets an error now."""
        self.is_broken = True
        with contextlib.suppress(OSError):
            # The plain one, under TLS too: that of an SSLSocket takes away what another thread is reading from.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.is_broken = True
        self._socket.close()

    def _negotiate(self) -> None:
        # Version 0 is understood by every broker, says all that is needed, and has nothing to fall back from.
        reply = self.call(ApiKey.API_VERSIONS, 0, b"", timeout_s=self._settings.connect_timeout_s)
        try:
            error, count = _VERSIONS.unpack_from(reply)
            rows = _VERSION.iter_unpack(reply[_VERSIONS.size : _VERSIONS.size + count * _VERSION.size])
            self._versions = {api_key: (low, high) for api_key, low, high in rows}
        except MALFORMED as failure:
            raise NotServed(f"{self.endpoint} did not answer as a Kafka broker does") from failure
        if error:
            raise NotServed(f"{self.endpoint} would not say which versions it speaks: error {error}")

    def _receive(self, deadline: float) -> memoryview:
        head = bytearray(4)
        self._receive_into(memoryview(head), deadline)
        if head.startswith(_TLS_ALERT) and not self._settings.uses_tls:
            raise NotAdmitted(
                f"{self.endpoint} speaks TLS, but kafka.security.protocol is {self._settings.security_protocol}: "
                f"set it to {'SASL_SSL' if self._settings.uses_sasl else 'SSL'}"
            )
        size = _REPLY.unpack(head)[0]
        if not _REPLY_BYTES_MIN <= size <= REPLY_BYTES_MAX:
            raise NotServed(f"{self.endpoint} sent a frame of {size} bytes: that is no Kafka broker")
        reply = memoryview(bytearray(size))
        self._receive_into(reply, deadline)
        return reply

    def _receive_into(self, target: memoryview, deadline: float) -> None:
        filled = 0
        while filled < len(target):
            received = self._socket.recv_into(target[filled:])
            if not received:
                raise ConnectionResetError
            filled += received
            if time.monotonic() > deadline and filled < len(target):
                raise TimeoutError

    def _why_hung_up(self) -> str:
        if self._correlation_id == 1:
            wanted = "a client certificate" if self._settings.uses_tls else "TLS (kafka.security.protocol)"
            return f" at the first request: does it want {wanted}?"
        if self._correlation_id == 2 and not self._settings.uses_sasl:
            return " at the second request: does it want a user name and password (SASL)?"
        return ""
