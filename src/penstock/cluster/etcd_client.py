"""Calls to an etcd of several members: which one to ask, how often, and what to make of a failure.

Called by etcd_store and etcd_watch.
Invariants:
- A call that changes something and may not be repeated is sent once more only after a certain refusal.
- Nothing is sent on a connection that is not made yet, so a member that cannot be reached is a certain refusal.
- What is read is never older than what this client was told before.
"""

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum

import grpc

from penstock.cluster.etcd_endpoint import AUTHENTICATE, RANGE, STATUS, EtcdEndpoint, Method
from penstock.cluster.etcd_faults import RpcFailed, Verdict, judge, rejection
from penstock.cluster.etcd_messages import MESSAGES, Message
from penstock.cluster.etcd_version import WHY_UNSOUND, is_sound
from penstock.cluster.store import Ambiguous, StoreUnusable, Unavailable
from penstock.model import Endpoint

logger = logging.getLogger(__name__)

OPERATION_S = 10.0
# Three renewals fit into a session, and one stopped member may cost one of them.
ATTEMPT_S = 1.5
# etcd itself gives a proposal up after 5 s and two elections; giving up sooner would only make it uncertain sooner.
WRITE_S = 5.0
PAUSE_S = 0.1
TOKENS_MAX = 3


class Effect(Enum):
    """What a second delivery of the same call would do."""

    NONE = "it reads"
    REPEATABLE = "the same again"
    ONCE = "something else"


class _Retry(Exception):
    def __init__(self, why: str, may_have_been_taken: bool = False) -> None:
        super().__init__(why)
        self.why, self.may_have_been_taken = why, may_have_been_taken


class EtcdClient:
    def __init__(
        self,
        addresses: Sequence[Endpoint],
        credentials: grpc.ChannelCredentials | None,
        user: str = "",
        password: str = "",
    ) -> None:
        self._endpoints = [EtcdEndpoint(address, credentials) for address in addresses]
        self._current = self._served_by = self._endpoints[0]
        self.operation_s = OPERATION_S
        self._user, self._password = user, password
        self._token = ""
        self._authenticating: asyncio.Task[None] | None = None
        self._cluster_id: int | None = None
        self._revision = 0
        self._has_warned = False
        self._is_closed = False

    async def connect(self, timeout_s: float) -> None:
        """Return when one member serves us. Raises StoreUnusable where none does, naming what each said."""
        said: dict[str, str] = {}
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + timeout_s
        while True:
            for endpoint in self._endpoints:
                try:
                    await self._prepare(endpoint, ATTEMPT_S)
                    # Any key will do: this shows whether a majority answers and whether we need a password.
                    await endpoint.call(RANGE, MESSAGES["RangeRequest"](key=b"/penstock/"), self._token, ATTEMPT_S)
                    self._current = self._served_by = endpoint
                    return
                except RpcFailed as fault:
                    if fault.status == "PERMISSION_DENIED":
                        # It knows us. Which keys we may use shows when they are used.
                        self._current = self._served_by = endpoint
                        return
                    verdict = judge(fault)
                    if verdict is Verdict.REJECTED or (verdict is Verdict.TOKEN_EXPIRED and not self._user):
                        raise StoreUnusable(f"etcd does not let this broker in: {fault}") from None
                    self.forget_token(self._token)
                    said[endpoint.name] = fault.details or fault.status
            if loop.time() >= ends_at:
                raise StoreUnusable(
                    f"no etcd endpoint could be used within {timeout_s:g} s: "
                    + "; ".join(f"{name}: {words}" for name, words in said.items())
                )
            await asyncio.sleep(PAUSE_S)

    async def call(self, method: Method, request: Message, effect: Effect, deadline_s: float | None = None) -> Message:
        """The answer. Raises RpcFailed where a lease is gone or history compacted, else Unavailable or Ambiguous."""
        loop = asyncio.get_running_loop()
        deadline_s = self.operation_s if deadline_s is None else deadline_s
        ends_at = loop.time() + deadline_s
        said: dict[str, str] = {}
        is_unknown = False
        tries = 0
        while (left_s := ends_at - loop.time()) > 0:
            self.check_open()
            endpoint = self._current
            try:
                response = await self._attempt(endpoint, method, request, effect, left_s)
                self._note_served(endpoint, said)
                return response
            except _Retry as retry:
                said[endpoint.name] = retry.why
                is_unknown |= retry.may_have_been_taken
            self.leave(endpoint)
            if is_unknown and effect is Effect.ONCE:
                raise Ambiguous(f"etcd may or may not have taken a change: {endpoint.name}: {said[endpoint.name]}")
            tries += 1
            if tries % len(self._endpoints) == 0:
                await asyncio.sleep(PAUSE_S)
        words = "; ".join(f"{name}: {text}" for name, text in said.items())
        raise (Ambiguous if is_unknown else Unavailable)(f"etcd did not serve within {deadline_s:g} s: {words}")

    async def _attempt(
        self, endpoint: EtcdEndpoint, method: Method, request: Message, effect: Effect, left_s: float
    ) -> Message:
        """One endpoint's answer. Raises _Retry where another may do better, else as `call` does."""
        for _ in range(TOKENS_MAX):
            token, is_sent = self._token, False
            try:
                await self._prepare(endpoint, min(left_s, ATTEMPT_S))
                token, known_revision = self._token, self._revision
                is_sent = True
                timeout_s = min(left_s, WRITE_S if effect is Effect.ONCE else ATTEMPT_S)
                response = await endpoint.call(method, request, token, timeout_s)
            except RpcFailed as fault:
                verdict = judge(fault)
                if verdict is Verdict.TOKEN_EXPIRED and self._user:
                    self.forget_token(token)
                    continue
                if verdict in (Verdict.REJECTED, Verdict.TOKEN_EXPIRED):
                    raise rejection(fault) from None
                may_have_been_taken = is_sent and verdict is Verdict.UNKNOWN and effect is not Effect.NONE
                raise _Retry(fault.details or fault.status, may_have_been_taken) from None
            if effect is Effect.NONE and response.header.revision < known_revision:
                raise _Retry(f"it answered with revision {response.header.revision}, older than {known_revision}")
            self._revision = max(self._revision, response.header.revision)
            return response
        raise _Retry(f"it accepted none of {TOKENS_MAX} tokens")

    async def stream_place(self) -> tuple[EtcdEndpoint, str]:
        """The endpoint and the token to open a stream with now; waits for one as long as it takes."""
        while True:
            self.check_open()
            endpoint = self._current
            try:
                await self._prepare(endpoint, ATTEMPT_S)
                return endpoint, self._token
            except RpcFailed as fault:
                if judge(fault) is Verdict.REJECTED:
                    raise rejection(fault) from None
                self.leave(endpoint)
            await asyncio.sleep(PAUSE_S)

    def leave(self, endpoint: EtcdEndpoint) -> None:
        """Ask the next one from now on, if it is still this one that is asked."""
        if endpoint is self._current:
            place = self._endpoints.index(endpoint)
            self._current = self._endpoints[(place + 1) % len(self._endpoints)]
            endpoint.suspect()

    def forget_token(self, token: str) -> None:
        """Get a new one before the next call: this one was not accepted."""
        if token == self._token:
            self._token = ""

    def check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the metadata store is closed")

    async def close(self) -> None:
        self._is_closed = True
        for endpoint in self._endpoints:
            await endpoint.close()

    async def _prepare(self, endpoint: EtcdEndpoint, timeout_s: float) -> None:
        """Connected, known to belong to our cluster, and with a token if there is a password. Raises RpcFailed."""
        if endpoint.cluster_id is None or not endpoint.is_connected:
            await self._meet(endpoint, timeout_s)
        if endpoint.cluster_id != self._cluster_id and endpoint.cluster_id and self._cluster_id:
            raise RpcFailed(
                endpoint.name, "UNAVAILABLE", "it belongs to another etcd cluster than the endpoints before"
            )
        self._cluster_id = self._cluster_id or endpoint.cluster_id
        if self._user and not self._token:
            if self._authenticating is None:
                self._authenticating = asyncio.create_task(self._authenticate(endpoint, timeout_s))
            # Shared: a password is slow to check by design, and many calls may find the token gone at once.
            await asyncio.shield(self._authenticating)

    async def _meet(self, endpoint: EtcdEndpoint, timeout_s: float) -> None:
        try:
            status = await endpoint.call(STATUS, MESSAGES["StatusRequest"](), self._token, timeout_s)
        except RpcFailed as fault:
            if judge(fault) not in (Verdict.TOKEN_EXPIRED, Verdict.REJECTED):
                raise
            # It answers, though not this question to us: some versions want a token for it.
            endpoint.cluster_id = 0
            return
        endpoint.cluster_id = status.header.cluster_id
        self._warn_of_version(endpoint, status.version)

    async def _authenticate(self, endpoint: EtcdEndpoint, timeout_s: float) -> None:
        try:
            request = MESSAGES["AuthenticateRequest"](name=self._user, password=self._password)
            self._token = (await endpoint.call(AUTHENTICATE, request, "", timeout_s)).token
        except RpcFailed as fault:
            if judge(fault) is Verdict.REJECTED:
                raise RpcFailed(fault.endpoint, "UNAUTHENTICATED", f"{fault.details} (user {self._user!r})") from None
            raise
        finally:
            self._authenticating = None

    def _note_served(self, endpoint: EtcdEndpoint, said: dict[str, str]) -> None:
        if endpoint is not self._served_by:
            why = said.get(self._served_by.name, "a call there failed")
            logger.warning("etcd is asked at %s instead of %s: %s", endpoint.name, self._served_by.name, why)
            self._served_by = endpoint

    def _warn_of_version(self, endpoint: EtcdEndpoint, version: str) -> None:
        if not self._has_warned and not is_sound(version):
            self._has_warned = True
            logger.warning("etcd at %s is version %s: %s", endpoint.name, version, WHY_UNSOUND)
