"""One member of etcd as we reach it: a gRPC channel, its calls and streams, and when to leave it.

Called by etcd_client, which chooses among endpoints, and by etcd_watch for its stream.
A call ends with its answer or with RpcFailed, within its time. A stream ends too once any call found the endpoint
wanting: a stopped process keeps its connections open and says nothing on them.
"""

import asyncio
import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import grpc
import grpc.aio

from penstock.cluster.etcd_faults import RpcFailed
from penstock.cluster.etcd_messages import MESSAGES, Message
from penstock.model import Endpoint

# etcd closes connections that are pinged more often than every 5 s (--grpc-keepalive-min-time).
KEEPALIVE_MS = 5_500
PING_TIMEOUT_MS = 2_000
RECONNECT_FIRST_MS = 100
RECONNECT_MS_MAX = 2_000

_OPTIONS = [
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", PING_TIMEOUT_MS),
    # This one, not the time-out above, is what ends a connection to a stopped process.
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_FIRST_MS),
    # Also how long one attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    # A write may be repeated only by someone who knows that it was not taken.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # Two stores in one process must not share a connection, or one would see the other's trouble.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


@dataclass(frozen=True, slots=True)
class Method:
    path: str
    request: str
    response: str
    is_stream: bool = False


RANGE = Method("/etcdserverpb.KV/Range", "RangeRequest", "RangeResponse")
TXN = Method("/etcdserverpb.KV/Txn", "TxnRequest", "TxnResponse")
COMPACT = Method("/etcdserverpb.KV/Compact", "CompactRequest", "CompactResponse")
WATCH = Method("/etcdserverpb.Watch/Watch", "WatchRequest", "WatchResponse", is_stream=True)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", "LeaseGrantRequest", "LeaseGrantResponse")
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", "LeaseRevokeRequest", "LeaseRevokeResponse")
LEASE_KEEP_ALIVE = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", "LeaseKeepAliveRequest", "LeaseKeepAliveResponse", is_stream=True
)
AUTHENTICATE = Method("/etcdserverpb.Auth/Authenticate", "AuthenticateRequest", "AuthenticateResponse")
STATUS = Method("/etcdserverpb.Maintenance/Status", "StatusRequest", "StatusResponse")


class EtcdEndpoint:
    def __init__(self, address: Endpoint, credentials: grpc.ChannelCredentials | None) -> None:
        self.name = str(address)
        # What the member said of itself; None until it was asked.
        self.cluster_id: int | None = None
        self._streams: set[EtcdStream] = set()
        self._methods: dict[str, Any] = {}
        if credentials is None:
            self._channel: Any = grpc.aio.insecure_channel(_target(address), _OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(_target(address), credentials, _OPTIONS)

    @property
    def is_connected(self) -> bool:
        return self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def call(self, method: Method, request: Message, token: str, timeout_s: float) -> Message:
        """Raises RpcFailed."""
        if method.is_stream:
            return await self._exchange(method, request, token, timeout_s)
        call = self._prepared(method)(request, metadata=_metadata(token), timeout=timeout_s)
        with _faults(self.name):
            return await call

    def stream(self, method: Method, token: str, timeout_s: float | None = None) -> "EtcdStream":
        call = self._prepared(method)(metadata=_metadata(token), timeout=timeout_s)
        stream = EtcdStream(self, call, MESSAGES[method.response])
        self._streams.add(stream)
        return stream

    def suspect(self) -> None:
        """A call failed here in a way others may, too: streams end and are opened elsewhere, which loses nothing."""
        for stream in list(self._streams):
            stream.close()

    async def close(self) -> None:
        self.suspect()
        await self._channel.close()

    async def _exchange(self, method: Method, request: Message, token: str, timeout_s: float) -> Message:
        """One message there and one back, where etcd offers a call only as a stream."""
        stream = self.stream(method, token, timeout_s)
        try:
            await stream.write(request)
            return await stream.read()
        finally:
            stream.close()

    def _prepared(self, method: Method) -> Any:
        if method.path not in self._methods:
            make = self._channel.stream_stream if method.is_stream else self._channel.unary_unary
            self._methods[method.path] = make(
                method.path,
                request_serializer=MESSAGES[method.request].SerializeToString,
                response_deserializer=MESSAGES[method.response].FromString,
            )
        return self._methods[method.path]

    def forget(self, stream: "EtcdStream") -> None:
        self._streams.discard(stream)


class EtcdStream:
    """Made by EtcdEndpoint.stream; its owner closes it."""

    def __init__(self, endpoint: EtcdEndpoint, call: Any, response: type) -> None:
        self.endpoint_name = endpoint.name
        self._endpoint = endpoint
        self._call = call
        self._response = response

    async def write(self, request: Message) -> None:
        with _faults(self.endpoint_name):
            await self._call.write(request)

    async def read(self) -> Message:
        """The next message. Raises RpcFailed, also at the stream's end: none of those we open ends by itself."""
        with _faults(self.endpoint_name):
            message = await self._call.read()
        if not isinstance(message, self._response):
            raise RpcFailed(self.endpoint_name, "UNAVAILABLE", "the stream ended")
        return message

    def close(self) -> None:
        self._endpoint.forget(self)
        self._call.cancel()


@contextlib.contextmanager
def _faults(endpoint: str) -> Generator[None]:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise RpcFailed(endpoint, error.code().name, error.details() or "") from None
    except asyncio.CancelledError:
        # gRPC speaks of a call we gave up as if the task had been cancelled; asyncio knows which of the two it is.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RpcFailed(endpoint, "CANCELLED", "the call was given up") from None
    except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
        # A call that ended, or a channel that was closed, between two steps of ours.
        raise RpcFailed(endpoint, "CANCELLED", str(error)) from None


def _metadata(token: str) -> tuple[tuple[str, str], ...]:
    # A member cut off from the majority would keep a watch open and silent; with this it ends the call.
    leader = ("hasleader", "true")
    return (leader, ("token", token)) if token else (leader,)


def _target(address: Endpoint) -> str:
    try:
        return f"ipv{ip_address(address.host).version}:{address}"
    except ValueError:
        return f"dns:///{address}"
