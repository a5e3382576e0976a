"""Keeps the cluster image in step with the metadata store.

Built by broker, which runs `run` in its task group; controller and membership wait on `reached`, so that whoever made a
change sees it in the image before the reply goes out.
"""

import asyncio
import contextlib
from collections.abc import Callable

from penstock.cluster.image import ClusterImage, ImageChanges
from penstock.cluster.store import Ambiguous, Compacted, MetadataStore, Unavailable

REACHED_DEADLINE_S = 30.0
RETRY_S = 0.5


class ImageFeed:
    """`on_changes` is called after each revision, in the same turn of the loop, before anybody waiting for it wakes.

    So are those who `subscribe`, after it.
    """

    def __init__(self, store: MetadataStore, image: ClusterImage, on_changes: Callable[[ImageChanges], None]) -> None:
        self.image = image
        self._store = store
        self._listeners = [on_changes]
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def subscribe(self, listener: Callable[[ImageChanges], None]) -> None:
        self._listeners.append(listener)

    async def load(self) -> ImageChanges:
        """Read everything at once; the caller gets the changes, those who listen do not."""
        changes = self.image.load(await self._store.range(self.image.layout.prefix))
        self._wake()
        return changes

    async def run(self) -> None:
        """Follow the store until cancelled."""
        while True:
            try:
                revisions = self._store.watch(self.image.layout.prefix, self.image.revision + 1)
                async for revision in revisions:
                    self._tell(self.image.apply(revision))
                    self._wake()
                    # Revisions come in hundreds after a large change; between two of them others get their turn.
                    await asyncio.sleep(0)
            except Compacted:
                with contextlib.suppress(Unavailable, Ambiguous):
                    self._tell(await self.load())
            except (Unavailable, Ambiguous):
                # What is known stays in use: a store that is away stops changes, not produce and fetch.
                await asyncio.sleep(RETRY_S)

    async def reached(self, revision: int, deadline_s: float = REACHED_DEADLINE_S) -> None:
        """Return once the image holds `revision`."""
        if self.image.revision >= revision:
            return
        waiter = (revision, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(deadline_s):
                await waiter[1]
        except TimeoutError:
            raise Ambiguous(
                f"revision {revision} is written, but this broker is only at {self.image.revision}"
            ) from None
        finally:
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    def _tell(self, changes: ImageChanges) -> None:
        for listener in self._listeners:
            listener(changes)

    def _wake(self) -> None:
        if not self._waiters:
            return
        here = self.image.revision
        ready = [future for revision, future in self._waiters if revision <= here]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > here]
        for future in ready:
            if not future.done():
                future.set_result(None)
