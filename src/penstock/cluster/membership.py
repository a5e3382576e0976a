"""This broker's place in the cluster: its registration, and whether it is the controller.

Built by broker: `join` before serving (with the feed running), `run` in its task group, `close` on a clean stop.
Controller takes its fence here.
Both keys hang on one lease, so a broker that dies is gone from the list and from the controllership at the same moment.
A node id found taken is judged by the data directory named in its registration. Ours: that was a former life of this
broker, because we hold the directory's lock (directory.py), and its lease is revoked on the spot, no waiting. Another:
a different broker with the same id, which is an error for the operator.
"""

import asyncio
import base64
import contextlib
import os
from dataclasses import dataclass
from uuid import UUID

from penstock.clock import Rng
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import NO_CONTROLLER
from penstock.cluster.layout import Layout, decode, encode
from penstock.cluster.store import (
    Ambiguous,
    Compare,
    Get,
    KeyValue,
    Lease,
    LeaseLost,
    MetadataStore,
    Put,
    Unavailable,
    created_at,
    keep_alive,
    modified_at,
)
from penstock.errors import NotController, PenstockError
from penstock.model import Endpoint, NodeId

LEASE_TTL_S = 9.0
REJOIN_S = 0.5
ROUNDS_MAX = 20


class NodeIdInUse(PenstockError):
    """Another live broker, on another data directory, is registered under this node id."""

    def __init__(self, node_id: int, endpoint: str, pid: int, ttl_s: float) -> None:
        super().__init__(
            f"node id {node_id} belongs to another broker at {endpoint} (pid {pid}, another data directory): give this "
            f"one its own id; if the other is gone for good, its claim ends {ttl_s:g} s after its last sign of life"
        )
        self.node_id, self.endpoint, self.pid = node_id, endpoint, pid


@dataclass(frozen=True, slots=True)
class Registration:
    node_id: NodeId
    endpoint: Endpoint
    rack: str | None
    directory_id: UUID


class Membership:
    def __init__(
        self, store: MetadataStore, feed: ImageFeed, registration: Registration, rng: Rng, *, ttl_s: float = LEASE_TTL_S
    ) -> None:
        self._store = store
        self._feed = feed
        self._layout = feed.image.layout
        self._registration = registration
        self._rng = rng
        self._ttl_s = ttl_s
        self._key = self._layout.broker(registration.node_id)
        self._lease: Lease | None = None
        self._controller_token = 0
        self._closed = False
        self.broker_epoch = 0

    async def join(self) -> None:
        """Register, and become the controller where there is none. Raises NodeIdInUse."""
        await ensure_cluster_id(self._store, self._layout, self._rng)
        lease = await self._store.lease(self._ttl_s)
        try:
            self.broker_epoch = await self._register(lease)
        except BaseException:
            with contextlib.suppress(PenstockError):
                await lease.revoke()
            raise
        self._lease = lease
        await self._feed.reached(self.broker_epoch)
        await self.elect()

    async def run(self) -> None:
        """Keep the registration until closed; one that lapsed (a suspended host, a store away) is made anew."""
        while True:
            assert self._lease is not None, "join comes first"
            async with asyncio.TaskGroup() as group:
                contending = group.create_task(self._contend(self._lease))
                await keep_alive(self._lease)
                contending.cancel()
            self._controller_token = 0
            if self._closed:
                return
            await self._rejoin()

    async def elect(self) -> bool:
        """Become the controller if nobody is; true if this broker is it now."""
        assert self._lease is not None
        controller, counter = self._layout.controller, self._layout.controller_epoch
        present = await self._store.get(counter)
        for _ in range(ROUNDS_MAX):
            epoch = decode(present.value)["epoch"] if present else 0
            mine = encode({"broker": self._registration.node_id})
            result = await self._store.txn(
                [
                    created_at(controller, 0),
                    modified_at(counter, present.mod_revision if present else 0),
                    # A broker that lost its registration must not come to power by a late message.
                    created_at(self._key, self.broker_epoch),
                ],
                [Put(controller, mine, self._lease.id), Put(counter, encode({"epoch": epoch + 1}))],
                [Get(controller), Get(counter), Get(self._key)],
            )
            if result.ok:
                self._controller_token = result.revision
                await self._feed.reached(result.revision)
                return True
            holder, present, own = result.reads
            if holder is not None or own is None or own.create_revision != self.broker_epoch:
                return self.is_controller
        return False

    @property
    def is_controller(self) -> bool:
        return self._controller_token != 0

    def fence(self) -> list[Compare]:
        """What a controller's transaction must compare: that this broker still is the one elected then."""
        if not self.is_controller:
            raise NotController(f"broker {self._registration.node_id} is not the controller")
        return [created_at(self._layout.controller, self._controller_token)]

    async def close(self) -> None:
        """Leave at once instead of when the lease runs out."""
        self._closed = True
        self._controller_token = 0
        if self._lease is not None:
            # A store that is away ends the lease by itself; it must not keep a broker from stopping.
            with contextlib.suppress(Unavailable, Ambiguous):
                await self._lease.revoke()

    async def _register(self, lease: Lease) -> int:
        node = self._registration
        value = encode(
            {
                "endpoint": [node.endpoint.host, node.endpoint.port],
                "rack": node.rack,
                "directory": str(node.directory_id),
                "pid": os.getpid(),
            }
        )
        for _ in range(ROUNDS_MAX):
            result = await self._store.txn(
                [created_at(self._key, 0)], [Put(self._key, value, lease.id)], [Get(self._key)]
            )
            if result.ok:
                return result.revision
            (present,) = result.reads
            if present is not None:
                await self._end_former_life(present)
        raise Ambiguous(f"{self._key} kept changing")

    async def _end_former_life(self, present: KeyValue) -> None:
        fields = decode(present.value)
        if fields["directory"] != str(self._registration.directory_id):
            endpoint = str(Endpoint(*fields["endpoint"]))
            raise NodeIdInUse(self._registration.node_id, endpoint, fields["pid"], self._ttl_s)
        # Takes its controllership with it, if it had that.
        await self._store.revoke(present.lease)

    async def _contend(self, lease: Lease) -> None:
        while True:
            await asyncio.sleep(lease.ttl_s / 3)
            if self._feed.image.controller_id == NO_CONTROLLER:
                try:
                    await self.elect()
                except (Unavailable, Ambiguous, LeaseLost):
                    continue

    async def _rejoin(self) -> None:
        while True:
            try:
                return await self.join()
            except (Unavailable, Ambiguous, LeaseLost):
                await asyncio.sleep(REJOIN_S)


async def ensure_cluster_id(store: MetadataStore, layout: Layout, rng: Rng) -> str:
    """The cluster's id, made by whichever broker comes first: 22 characters, as Kafka prints a UUID."""
    mine = base64.urlsafe_b64encode(rng.uuid().bytes).decode().rstrip("=")
    result = await store.txn(
        [created_at(layout.cluster_id, 0)],
        [Put(layout.cluster_id, encode({"id": mine}))],
        [Get(layout.cluster_id)],
    )
    if result.ok:
        return mine
    (present,) = result.reads
    assert present is not None
    return decode(present.value)["id"]
