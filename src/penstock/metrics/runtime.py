"""What keeps the event loop from its work: turns that take long, and the garbage collector.

Made by broker when it has a page to show it on. A broker is one loop, so that whatever holds it up holds up everybody.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator

PROBE_S = 0.25


class LoopProbe:
    """Asks to be called at a moment, and sees how late that happens."""

    def __init__(self, observe_ms: Callable[[float], None]) -> None:
        self._observe_ms = observe_ms
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + PROBE_S

        def look() -> None:
            self._observe_ms(max(0.0, loop.time() - due) * 1000)
            self.start()

        self._timer = loop.call_later(PROBE_S, look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class GarbageProbe:
    """Times collections of the older generations; those of the youngest are too short and too many to be timed."""

    def __init__(self, observe_ms: Callable[[float], None]) -> None:
        self._observe_ms = observe_ms
        self._began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 0:
            return
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._observe_ms((time.perf_counter() - self._began) * 1000)


def collections() -> Iterator[tuple[tuple[str], float]]:
    """How often each generation was collected in this process."""
    for generation, stats in enumerate(gc.get_stats()):
        yield (str(generation),), stats["collections"]
