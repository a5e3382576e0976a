"""The cluster as its metadata store tells it: who leads, who is in sync, who is there; now and all along.

Used by the faults, to choose their victims and to see whether they took effect, and by the run for the history of
leaders. It reads the store past all faults, on a thread and a loop of its own.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cluster_checkers import Leadership

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.layout import Layout, decode
from penstock.cluster.open_store import open_store
from penstock.cluster.store import Change, Compacted, MetadataStore, Unavailable

CALL_DEADLINE_S = 30.0
LOOK_AGAIN_S = 0.05


class Eyes:
    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._layout = Layout()
        self.image = ClusterImage(self._layout)
        self.history: list[Leadership] = []
        self._newest: dict[str, Leadership] = {}
        self._replicas: dict[str, list[int]] = {}
        self.changes: Counter[str] = Counter()  # what has changed so far, by kind
        self.is_gapless = True
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="eyes", daemon=True)
        self._watching: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(CALL_DEADLINE_S)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CALL_DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_DEADLINE_S)
        self._loop.close()

    # What is so now

    def partitions(self, topic: str) -> tuple[PartitionState, ...]:
        found = self.image.topics.get(topic)
        return found.partitions if found is not None else ()

    def leader(self, topic: str, index: int) -> int:
        return self.partitions(topic)[index].leader

    def led_by(self, node: int, topic: str) -> list[int]:
        return [index for index, state in enumerate(self.partitions(topic)) if state.leader == node]

    @property
    def controller(self) -> int:
        return self.image.controller_id

    @property
    def present(self) -> set[int]:
        return set(self.image.brokers)

    @property
    def is_whole(self) -> bool:
        """Every partition has a leader and every replica is in sync."""
        topics = list(self.image.topics.values())
        return all(
            state.leader >= 0 and set(state.isr) == set(state.replicas) for t in topics for state in t.partitions
        )

    def wait(self, condition: Callable[[], bool], deadline_s: float) -> bool:
        deadline = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_AGAIN_S)
        return True

    def wait_whole(self, deadline_s: float) -> bool:
        return self.wait(lambda: self.is_whole, deadline_s)

    # How it came to be so

    async def _open(self) -> None:
        self._store = await open_store(self._url, self._directory)
        snapshot = await self._store.range(self._layout.prefix)
        self.image.load(snapshot)
        for item in snapshot.items:
            self._note(Change(item.key, item))
        self._watching = self._loop.create_task(self._watch(self._store, snapshot.revision + 1))

    async def _watch(self, store: MetadataStore, revision: int) -> None:
        while True:
            try:
                async for step in store.watch(self._layout.prefix, revision):
                    for change in step.changes:
                        self._note(change)
                    self.image.apply(step)
                    revision = step.number + 1
            except Unavailable:
                await asyncio.sleep(LOOK_AGAIN_S)
            except Compacted:
                # A history with a hole proves nothing; the run says so.
                self.is_gapless = False
                snapshot = await store.range(self._layout.prefix)
                self.image.load(snapshot)
                revision = snapshot.revision + 1

    async def _close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await asyncio.gather(*[task for task in (self._watching,) if task is not None], return_exceptions=True)
        await self._store.close()

    def _note(self, change: Change) -> None:
        family, rest = self._layout.split(change.key)
        if family == "partitions" and change.item is not None:
            value = decode(change.item.value)
            state = Leadership(
                rest, value["leader"], value["leader_epoch"], value["partition_epoch"], tuple(value["isr"])
            )
            former = self._newest.get(rest)
            self._newest[rest] = state
            if former is not None and former.leader != state.leader:
                self.changes["leader"] += 1
            if former is not None and set(former.isr) != set(state.isr):
                self.changes["isr"] += 1
            if self._replicas.get(rest, value["replicas"]) != value["replicas"]:
                self.changes["replicas"] += 1
            self._replicas[rest] = value["replicas"]
            self.history.append(state)
        elif family in ("brokers", "controller", "topics", "configs"):
            self.changes[family] += 1
