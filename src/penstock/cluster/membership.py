"""This broker's place in the cluster: its registration, and whether it is the controller.

Built by broker: `end_former_life`, then (with the feed running) `join` before serving, `run` in its task group,
`announce_stopping` and `close` on a clean stop. Everybody who writes metadata takes the fence here.
Both keys hang on one lease, so a broker that dies is gone from the list and from the controllership at the same moment.
The broker epoch is the revision that last wrote the registration: one life of this broker, in the sense that what it
had caught up with holds for that life only (KIP-903).
A node id found taken is judged by the data directory named in its registration. Ours: that was a former life of this
broker, because we hold the directory's lock (directory.py), and its lease is revoked on the spot, no waiting. Another:
a former life on a disk since replaced, whose lease runs out by itself, or else a different broker with the same id,
which is an error for the operator.
Who lapsed and finds that another directory was this node meanwhile does not join again: in whatever in-sync set the
node is now, it is there by what the other one had.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from penstock.clock import Rng
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import NO_CONTROLLER, ImageChanges
from penstock.cluster.layout import decode, encode
from penstock.cluster.registration import NodeIdInUse, NodeIdTaken, Registration, ensure_cluster_id
from penstock.cluster.store import (
    Ambiguous,
    Compare,
    Get,
    KeyValue,
    Lease,
    LeaseLost,
    MetadataStore,
    Operation,
    Put,
    Unavailable,
    created_at,
    keep_alive,
    modified_at,
)
from penstock.errors import NotController, PenstockError, RegistrationLost
from penstock.model import Endpoint

logger = logging.getLogger(__name__)

REJOIN_S = 0.5
PERSIST_S = 30.0
# How often a key held by another is looked at while its lease runs out.
LOOK_S = 0.1
ROUNDS_MAX = 20


class Membership:
    def __init__(
        self, store: MetadataStore, feed: ImageFeed, registration: Registration, rng: Rng, *, ttl_s: float
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
        self._is_closed = False
        self._is_stopping = False
        # The revision that said whose id this is, when this broker looked whether it is its own.
        self._storage_revision = 0
        self._looked = asyncio.Event()
        self.node_id = registration.node_id
        self.broker_epoch = 0
        # Another directory than the one this broker was last seen with: what its logs held is not there any more.
        self.is_new_disk = False
        # The same directory, put back as it was in an earlier life: it may lack what it had since.
        self.is_older_disk = False
        self.former_life = ""
        # Told once this broker is the controller, after the image may have shown it already.
        self.on_elected: Callable[[], None] = _nothing
        feed.subscribe(self._image_changed)

    # A life: ended, begun, kept, over

    async def end_former_life(self) -> None:
        """Make sure that nobody is registered under this node id any more. Raises NodeIdInUse.

        Between this and `join` the broker may say what its disk lost, and nobody takes it for the one it was.
        """
        await self._wait_for_claim_to_end()
        storage = await self._store.get(self._layout.storage(self.node_id))
        self._storage_revision = storage.mod_revision if storage is not None else 0
        if storage is not None:
            fields = decode(storage.value)
            self.is_new_disk = fields["directory"] != self._registration.directory
            self.is_older_disk = not self.is_new_disk and not self._is_own(storage)
            self.former_life = fields.get("life", "")

    async def _wait_for_claim_to_end(self) -> None:
        loop = asyncio.get_running_loop()
        # One that lives renews its lease three times as often; one that is dead is gone by then.
        ends_at = loop.time() + self._ttl_s + 2 * LOOK_S
        is_told = False
        while (present := await self._store.get(self._key)) is not None:
            fields = decode(present.value)
            if fields["directory"] == self._registration.directory:
                # Takes its controllership with it, if it had that.
                await self._store.revoke(present.lease)
                continue
            if loop.time() >= ends_at:
                raise NodeIdInUse(self.node_id, fields, self._ttl_s)
            if not is_told:
                other = Endpoint(*fields["endpoint"])
                logger.warning("node id %d is registered at %s: waiting for its claim to end", self.node_id, other)
                is_told = True
            await asyncio.sleep(LOOK_S)

    async def join(self) -> None:
        """Register, and become the controller where there is none.

        Raises NodeIdInUse, NodeIdTaken, or what the store said last.
        """
        await persist(self._join_once)

    async def _join_once(self) -> None:
        await ensure_cluster_id(self._store, self._layout, self._rng)
        # Before the lease is taken, which would run out while we wait for another's to do so.
        await self._wait_for_claim_to_end()
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
        """Keep the registration until closed; one that lapsed (a suspended host, a store away) is made anew.

        Raises NodeIdInUse or NodeIdTaken: then this broker must not go on.
        """
        while True:
            assert self._lease is not None, "join comes first"
            async with asyncio.TaskGroup() as group:
                contending = group.create_task(self._contend(self._lease))
                await keep_alive(self._lease)
                contending.cancel()
            self._controller_token = 0
            if self._is_closed:
                return
            logger.warning("broker %d was taken for gone, or could not show that it lives: joining anew", self.node_id)
            await self._rejoin()

    async def renew_epoch(self) -> None:
        """Begin a new life without leaving: whoever counts this broker in sync does so for the old one only."""
        await self._rewrite_registration()

    async def announce_stopping(self) -> None:
        """From now on nobody makes this broker a leader or takes it into an ISR."""
        self._is_stopping = True
        await self._rewrite_registration()

    async def close(self) -> None:
        """Leave at once instead of when the lease runs out."""
        self._is_closed = True
        self._controller_token = 0
        if self._lease is not None:
            # A store that is away ends the lease by itself; it must not keep a broker from stopping.
            with contextlib.suppress(Unavailable, Ambiguous):
                await self._lease.revoke()

    # The two fences

    @property
    def is_registered(self) -> bool:
        return self._lease is not None and not self._lease.lost.is_set()

    @property
    def lease_id(self) -> int:
        """For keys that should go when this broker does."""
        if self._lease is None or self._lease.lost.is_set():
            raise RegistrationLost(f"broker {self.node_id} is not registered")
        return self._lease.id

    def registration_fence(self) -> list[Compare]:
        """What every write on a client's behalf compares: that the cluster still counts this broker among its own."""
        assert self.lease_id
        return [modified_at(self._key, self.broker_epoch)]

    @property
    def is_controller(self) -> bool:
        return self._controller_token != 0

    @property
    def controller_token(self) -> int:
        """The election that made this broker the controller; 0 while it is not."""
        return self._controller_token

    def controller_fence(self) -> list[Compare]:
        """What a controller's transaction must compare: that this broker still is the one elected then."""
        if not self.is_controller:
            raise NotController(f"broker {self.node_id} is not the controller")
        return [created_at(self._layout.controller, self._controller_token)]

    async def elect(self) -> bool:
        """Become the controller if nobody is; true if this broker is it now."""
        assert self._lease is not None
        controller, counter = self._layout.controller, self._layout.controller_epoch
        present = await self._store.get(counter)
        for _ in range(ROUNDS_MAX):
            epoch = decode(present.value)["epoch"] if present else 0
            mine = encode({"broker": self.node_id})
            result = await self._store.txn(
                [
                    created_at(controller, 0),
                    modified_at(counter, present.mod_revision if present else 0),
                    # A broker that lost its registration must not come to power by a late message.
                    modified_at(self._key, self.broker_epoch),
                ],
                [Put(controller, mine, self._lease.id), Put(counter, encode({"epoch": epoch + 1}))],
                [Get(controller), Get(counter), Get(self._key)],
            )
            if result.ok:
                await self._feed.reached(result.revision)
                self._take_office(result.revision)
                return True
            holder, present, own = result.reads
            if holder is not None:
                # An election whose outcome was unknown may have been ours.
                if holder.lease == self._lease.id and not self.is_controller:
                    self._take_office(holder.create_revision)
                return self.is_controller
            if own is None or own.mod_revision != self.broker_epoch:
                return False
        return False

    # Inside

    async def _register(self, lease: Lease) -> int:
        storage = self._layout.storage(self.node_id)
        puts: list[Operation] = [Put(self._key, self._registration.value(is_stopping=self._is_stopping), lease.id)]
        remembered = await self._store.get(storage)
        revision = remembered.mod_revision if remembered is not None else 0
        if not self._is_own(remembered) and revision != self._storage_revision:
            raise NodeIdTaken(self.node_id)
        if remembered is None or decode(remembered.value) != self._registration.storage:
            puts.append(Put(storage, encode(self._registration.storage)))
        result = await self._store.txn(
            [created_at(self._key, 0), modified_at(storage, revision)], puts, [Get(self._key)]
        )
        if result.ok:
            return result.revision
        (present,) = result.reads
        if present is None:
            raise Ambiguous(f"somebody joined as broker {self.node_id} and left in the same moment")
        fields = decode(present.value)
        if fields["directory"] == self._registration.directory:
            raise Ambiguous(f"broker {self.node_id} was registered by an attempt of unknown outcome")
        raise NodeIdInUse(self.node_id, fields, self._ttl_s)

    def _is_own(self, storage: KeyValue | None) -> bool:
        """Whether the node's last life was one of this disk's; a node nobody has been yet is anybody's."""
        if storage is None:
            return True
        own, fields = self._registration, decode(storage.value)
        lives = {"", own.life, *own.former_lives}
        return fields["directory"] == own.directory and fields.get("life", "") in lives

    async def _rewrite_registration(self) -> None:
        put = Put(self._key, self._registration.value(is_stopping=self._is_stopping), self.lease_id)
        try:
            result = await self._store.txn(self.registration_fence(), [put])
        except Ambiguous:
            await self._take_epoch()
            raise
        if not result.ok:
            raise RegistrationLost(f"broker {self.node_id} was registered anew, or is not any more")
        self.broker_epoch = result.revision
        await self._feed.reached(result.revision)

    async def _take_epoch(self) -> None:
        """Our key is written by us alone: whatever revision it has under our lease is our epoch."""
        present = await self._store.get(self._key)
        if self._lease is not None and present is not None and present.lease == self._lease.id:
            self.broker_epoch = present.mod_revision

    def _take_office(self, token: int) -> None:
        self._controller_token = token
        self.on_elected()

    def _image_changed(self, changes: ImageChanges) -> None:
        if changes.controller_changed or changes.brokers_changed:
            self._looked.set()

    async def _contend(self, lease: Lease) -> None:
        """Stand for election as soon as the office is empty. The slow look is for what an unknown outcome left."""
        image = self._feed.image
        while True:
            try:
                own = image.brokers.get(self.node_id)
                if own is not None and own.epoch != self.broker_epoch:
                    await self._take_epoch()
                is_unclear = image.controller_id == self.node_id and not self.is_controller
                if (image.controller_id == NO_CONTROLLER or is_unclear) and not self._is_stopping:
                    await self.elect()
                wait_s = lease.ttl_s / 3
            except (Unavailable, Ambiguous, LeaseLost):
                wait_s = min(REJOIN_S, lease.ttl_s / 3)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._looked.wait()
            self._looked.clear()

    async def _rejoin(self) -> None:
        while True:
            try:
                return await self.join()
            except (Unavailable, Ambiguous, LeaseLost) as error:
                logger.warning("broker %d could not join: %s", self.node_id, error)


async def persist(attempt: Callable[[], Awaitable[None]]) -> None:
    """Try something that may be tried again, until the store has had time enough to come back from a hiccup."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + PERSIST_S
    while True:
        try:
            return await attempt()
        except (Unavailable, Ambiguous, LeaseLost):
            if loop.time() >= ends_at:
                raise
        await asyncio.sleep(REJOIN_S)


def _nothing() -> None:
    pass
