"""What holds the event loop up is seen: a turn that takes long, and a collection of garbage."""

import asyncio
import gc
import time

import pytest

from penstock.metrics.runtime import GarbageProbe, LoopProbe, collections


async def test_a_turn_that_takes_long_is_seen_by_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.metrics.runtime.PROBE_S", 0.001)
    seen: list[float] = []
    looked = asyncio.Event()

    def observe(late_ms: float) -> None:
        seen.append(late_ms)
        looked.set()

    probe = LoopProbe(observe)
    probe.start()
    began = time.monotonic()
    while time.monotonic() - began < 0.05:
        pass  # the loop is held
    await looked.wait()
    assert seen[0] >= 40
    looked.clear()
    await looked.wait()  # it goes on looking
    probe.stop()


def test_collections_of_older_garbage_are_timed_until_told_to_stop() -> None:
    seen: list[float] = []
    probe = GarbageProbe(seen.append)
    probe.start()
    try:
        gc.collect(0)
        assert seen == []
        before = dict(collections())
        gc.collect(2)
        assert len(seen) == 1
        assert dict(collections())[("2",)] == before[("2",)] + 1
    finally:
        probe.stop()
    gc.collect(2)
    assert len(seen) == 1
    probe.stop()  # twice does no harm: a broker that failed to start is stopped too
