"""The other brokers, each reached over one connection that is kept and made anew when it breaks.

Called by handlers.marker_sending, handlers.inquiries and validation. Each has Peers of its own: a broker answers a
connection in order, so a marker whose log is slow to commit would keep a question to a coordinator waiting.
Invariants:
- At most one connection per node, to the endpoint the node has now; a node that moved is not asked at its old place.
- Whatever keeps a request from its reply is a PeerUnreachable; whether the peer has acted on it is then unknown.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from penstock.client.connection import ClientConnection
from penstock.errors import MalformedFrame, PeerUnreachable
from penstock.model import Endpoint

CONNECT_TIMEOUT_S = 10.0


class Peers:
    def __init__(self, find: Callable[[int], Endpoint | None], client_id: str) -> None:
        """`find` gives where a node can be reached at this moment, None for one that is not there."""
        self._find = find
        self._client_id = client_id
        self._made: dict[int, tuple[Endpoint, asyncio.Task[ClientConnection]]] = {}
        self._is_closed = False

    async def connection(self, node_id: int) -> ClientConnection:
        """Connected when this returns; who asks meanwhile waits for the same attempt. Raises PeerUnreachable."""
        endpoint = self._find(node_id)
        if endpoint is None or self._is_closed:
            self._let_go(node_id)
            raise PeerUnreachable(node_id, endpoint, "closed here" if self._is_closed else "not registered")
        made = self._made.get(node_id)
        if made is None or made[0] != endpoint or _is_over(made[1]):
            self._let_go(node_id)
            made = self._made[node_id] = endpoint, asyncio.ensure_future(self._connect(endpoint))
        try:
            # Shared: that one of those who wait gives up must not end it for the others.
            return await asyncio.shield(made[1])
        except asyncio.CancelledError:
            if not made[1].cancelled():
                raise
            raise PeerUnreachable(node_id, endpoint, "given up while connecting") from None
        except (OSError, MalformedFrame) as error:
            raise PeerUnreachable(node_id, endpoint, _why(error)) from error

    async def request(
        self, node_id: int, api_key: int, version: int, body: Mapping[str, Any], *, timeout_s: float
    ) -> Any:
        """The reply, as kio's dataclass, within `timeout_s` of now. Raises PeerUnreachable."""
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self.connection(node_id)
                # Its own limit lies behind ours, which covers the connecting too.
                return await connection.request(api_key, version, body, timeout_s=timeout_s)
        except (OSError, MalformedFrame) as error:
            if isinstance(error, TimeoutError):
                # What it answers later is nobody's any more; a connection that hangs is not worth keeping.
                self._let_go(node_id)
            raise PeerUnreachable(node_id, self._find(node_id), _why(error)) from error

    async def close(self) -> None:
        self._is_closed = True
        connecting = [task for _, task in self._made.values()]
        for node_id in list(self._made):
            self._let_go(node_id)
        await asyncio.gather(*connecting, return_exceptions=True)

    async def _connect(self, endpoint: Endpoint) -> ClientConnection:
        return await ClientConnection.connect(
            endpoint, client_id=self._client_id, timeout_s=CONNECT_TIMEOUT_S, negotiate=False
        )

    def _let_go(self, node_id: int) -> None:
        made = self._made.pop(node_id, None)
        if made is None:
            return
        connecting = made[1]
        if not connecting.done():
            connecting.cancel()
        elif not _is_over(connecting):
            connecting.result().abort(ConnectionAbortedError(f"the connection to {made[0]} is not used any more"))


def _is_over(connecting: asyncio.Task[ClientConnection]) -> bool:
    if not connecting.done():
        return False
    return connecting.cancelled() or connecting.exception() is not None or connecting.result().is_broken


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
