"""One look at the cluster every few seconds, while somebody looks at the console: what lists and charts are made of.

Called by gateway.console, which starts and stops it; the API reads `snapshot()`, `groups()` and `history`.
Laws:
- However many pages are open, the cluster is asked once; when nobody has looked for IDLE_S, it is not asked at all.
- A look that takes long is repeated less often: at most one part in LOAD_SHARE of the time is spent on looking.
- Rates come from brokers' own counters where their addresses are given, else from the growth of offsets; never from
  nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.admin.cluster import Cluster
from penstock.clock import Clock
from penstock.gateway.console import scraping
from penstock.gateway.console import snapshot as gathering
from penstock.gateway.console.history import CLUSTER, History, Key
from penstock.gateway.console.snapshot import GroupRow, Snapshot
from penstock.gateway.errors import KafkaFailed
from penstock.gateway.kafka import Kafka
from penstock.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

SAMPLE_S = 5.0
LOAD_SHARE = 20
IDLE_S = 15 * 60.0
VIEW_FRESH_S = 15.0
STARTS_FRESH_S = 60.0
SIZES_FRESH_S = 30.0
GROUPS_PER_LOOK = 200
# A rate over less is mostly noise; looks that follow a change come as close as that.
RATE_S_MIN = 1.0


class Watcher:
    def __init__(self, kafka: Kafka, clock: Clock, metrics: tuple[str, ...] = ()) -> None:
        self._kafka = kafka
        self._clock = clock
        self.metrics = metrics
        self.history = History()
        self.brokers: dict[str, dict[str, float]] = {}
        self.failure: str | None = None
        self._snapshot: Snapshot | None = None
        self._groups: dict[str, GroupRow] = {}
        self._reading: scraping.Reading | None = None
        self._committed_at: dict[str, float] = {}
        # When, and what a group had committed then: its progress is taken from there.
        self._progress: dict[str, tuple[float, gathering.Offsets]] = {}
        self._asked_at: dict[str, float] = {}
        # When, and the ends of then: rates are taken from there.
        self._measured: tuple[float, gathering.Offsets] | None = None
        self._looked_at = float("-inf")
        self._awake = asyncio.Event()
        self._sampled = asyncio.Event()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_metrics(self) -> bool:
        return bool(self.metrics)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def look(self) -> None:
        """Somebody looks: go on watching."""
        self._looked_at = self._clock.monotonic()
        self._awake.set()

    async def snapshot(self) -> Snapshot:
        """What is known, at most seconds old. Raises KafkaFailed while nothing is known and nobody answers."""
        self.look()
        if self._snapshot is None:
            async with self._lock:
                # All who waited for the first look share it.
                if self._snapshot is None:
                    await self._gather()
        assert self._snapshot is not None
        return self._snapshot

    async def groups(self) -> dict[str, GroupRow]:
        await self.snapshot()
        return self._groups

    async def refresh(self) -> None:
        """Ask for everything now: something was changed, or nothing is known yet. Raises KafkaFailed."""
        async with self._lock:
            self._asked_at.clear()
            await self._gather()

    async def next_sample(self) -> None:
        """Returns when the history has a new moment."""
        await self._sampled.wait()

    # Inside

    async def _run(self) -> None:
        while True:
            if self._clock.monotonic() - self._looked_at > IDLE_S:
                self._awake.clear()
                # Rates across a pause would be an average of hours.
                self._reading, self._measured = None, None
                await self._awake.wait()
            began = self._clock.monotonic()
            try:
                async with self._lock:
                    await self._gather()
                self.failure = None
            except KafkaFailed as failure:
                self.failure = failure.message
                self._asked_at.clear()
            except Exception:
                # Nobody else would notice: without this the charts would stand still for good.
                log.exception("looking at the cluster failed")
                self.failure = "the gateway could not make sense of what the cluster said; its log has more"
            took = self._clock.monotonic() - began
            self._tell()
            await asyncio.sleep(max(SAMPLE_S - took, took * LOAD_SHARE, 0.1))

    async def _gather(self) -> None:
        known = self._snapshot
        view = known.view if known else None
        if view is None or self._is_due("view", VIEW_FRESH_S):
            view = await self._ask(gathering.gather_view)
        partitions = list(view.partitions)
        starts: gathering.Offsets = known.starts if known else {}
        if self._is_due("starts", STARTS_FRESH_S):
            starts = await self._ask(lambda cluster: gathering.gather_offsets(cluster, partitions, is_start=True))
        log_dirs = known.log_dirs if known else ()
        sizes: gathering.Offsets = known.sizes if known else {}
        if self._is_due("sizes", SIZES_FRESH_S):
            log_dirs = await self._ask(gathering.gather_log_dirs)
            sizes = gathering.largest_sizes(log_dirs)
        ends = await self._ask(lambda cluster: gathering.gather_offsets(cluster, partitions, is_start=False))
        now = self._clock.monotonic()
        topics = await asyncio.to_thread(gathering.build_topics, view, starts, ends, log_dirs)
        self._snapshot = Snapshot(view, topics, starts, ends, log_dirs, sizes)
        values = self._measure_groups(await self._gather_groups(), starts, ends, now)
        await self._measure(values, ends, now)

    async def _measure(self, values: dict[Key, float | None], ends: gathering.Offsets, now: float) -> None:
        """A new moment of the history, if the last one is old enough."""
        before, self._measured = self._measured, (now, ends)
        if before is None:
            await self._read_metrics(0.0)
            return
        elapsed_s = now - before[0]
        if elapsed_s < RATE_S_MIN:
            self._measured = before
            return
        grown = await asyncio.to_thread(gathering.growth, before[1], ends)
        for topic, count in grown.items():
            values[("topic", topic, "messages_in")] = count / elapsed_s
        values[(CLUSTER, "", "messages_in")] = sum(grown.values()) / elapsed_s
        values |= await self._read_metrics(elapsed_s)
        self._forget_gone({at.topic for at in ends})
        self.history.append(self._clock.now_ms(), values)

    async def _gather_groups(self) -> dict[str, dict[TopicPartition, int]]:
        """The list of groups, and what those that were not asked for longest have committed."""
        rows = {row.name: row for row in await self._ask(gathering.gather_groups)}
        for name, row in rows.items():
            before = self._groups.get(name)
            if before is not None:
                row.committed, row.lag, row.progress, row.topics = (
                    before.committed, before.lag, before.progress, before.topics,
                )  # fmt: skip
        self._groups = rows
        for gone in self._committed_at.keys() - rows.keys():
            self._committed_at.pop(gone)
            self._progress.pop(gone, None)
        turn = sorted(rows, key=lambda name: self._committed_at.get(name, 0.0))[:GROUPS_PER_LOOK]
        return await self._ask(lambda cluster: gathering.gather_committed(cluster, turn))

    def _measure_groups(
        self,
        committed: dict[str, dict[TopicPartition, int]],
        starts: gathering.Offsets,
        ends: gathering.Offsets,
        now: float,
    ) -> dict[Key, float | None]:
        for name, offsets in committed.items():
            row = self._groups[name]
            since, earlier = self._progress.setdefault(name, (now, offsets))
            if now - since >= RATE_S_MIN:
                # A reset goes back; that is no progress, and nothing to chart.
                gone = sum(offset - earlier.get(at, offset) for at, offset in offsets.items())
                row.progress = max(0.0, gone / (now - since))
                self._progress[name] = (now, offsets)
            self._committed_at[name] = now
            row.committed = offsets
            row.topics = tuple(sorted({at.topic for at in offsets}))
        values: dict[Key, float | None] = {}
        for name, row in self._groups.items():
            row.lag = None if row.committed is None else gathering.sum_lag(row.committed, starts, ends)
            values[("group", name, "lag")] = row.lag
            values[("group", name, "progress")] = row.progress
        values[(CLUSTER, "", "lag")] = float(sum(row.lag or 0 for row in self._groups.values()))
        values[(CLUSTER, "", "messages_out")] = sum(row.progress or 0.0 for row in self._groups.values())
        return values

    async def _read_metrics(self, elapsed_s: float) -> dict[Key, float | None]:
        if not self.metrics:
            return {}
        before, after = self._reading, await asyncio.to_thread(scraping.scrape, self.metrics)
        self._reading, self.brokers = after, after.brokers
        if before is None or not after.brokers:
            return {}
        values: dict[Key, float | None] = {}
        for (topic, kind), rate in scraping.rates(before, after, elapsed_s).items():
            values[("topic", topic, kind) if topic else (CLUSTER, "", kind)] = rate
        for share, name in ((0.5, "produce_p50"), (0.99, "produce_p99")):
            values[(CLUSTER, "", name)] = scraping.quantile(before.latency, after.latency, share)
        return values

    def _forget_gone(self, topics: Iterable[str]) -> None:
        there = {"topic": set(topics), "group": set(self._groups)}
        self.history.drop(key for key in self.history.known() if key[0] in there and key[1] not in there[key[0]])

    def _is_due(self, what: str, fresh_s: float) -> bool:
        now = self._clock.monotonic()
        if now - self._asked_at.get(what, float("-inf")) < fresh_s:
            return False
        self._asked_at[what] = now
        return True

    def _tell(self) -> None:
        self._sampled.set()
        self._sampled = asyncio.Event()

    async def _ask(self, call: Callable[[Cluster], T]) -> T:
        return await self._kafka.ask(call)
