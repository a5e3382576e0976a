"""The consumers that REST v2 keeps between requests: made, found, used by one request at a time, closed when idle.

Called by v2_consumers and v2_consumer_records.
Laws:
- At most `consumers_max` of them, each closed after `consumer_idle_s` without a request; then it is gone (40403).
- One request at a time uses an instance; a second one meanwhile is refused (409), so that records keep their order.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from penstock.clock import Clock, Rng
from penstock.gateway.kafka import AsyncConsumer, KafkaFailed
from penstock.gateway.rest.v2_media import ILLEGAL_STATE, instance_not_found, problem

log = logging.getLogger(__name__)

SWEEP_S = 1.0
ALREADY_EXISTS = 40902


@dataclass(slots=True)
class Instance:
    group: str
    name: str
    format: str
    consumer: AsyncConsumer
    is_auto_commit: bool
    request_timeout_s: float
    used_at: float
    # What it was told to read: names or patterns, or else partitions by hand.
    subscription: tuple[str, ...] = ()
    is_assigned: bool = False
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)


class Instances:
    def __init__(self, clock: Clock, idle_s: float) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._held: dict[tuple[str, str], Instance] = {}
        self._rng = Rng()
        self._sweeping: asyncio.Task[None] | None = None

    def new_name(self) -> str:
        return f"rest-consumer-{self._rng.uuid()}"

    def check_free(self, group: str, name: str) -> None:
        if (group, name) in self._held:
            raise problem(409, ALREADY_EXISTS, "The group has a consumer instance of this name already.")

    def add(self, instance: Instance) -> None:
        self._held[instance.group, instance.name] = instance
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    @contextlib.asynccontextmanager
    async def use(self, group: str, name: str) -> AsyncGenerator[Instance]:
        instance = self._held.get((group, name))
        if instance is None:
            raise instance_not_found()
        if instance.busy.locked():
            raise problem(
                409, ILLEGAL_STATE, "Another request is using this consumer instance: send one after another."
            )
        async with instance.busy:
            instance.used_at = self._clock.monotonic()
            try:
                yield instance
            finally:
                instance.used_at = self._clock.monotonic()

    async def remove(self, group: str, name: str) -> None:
        instance = self._held.pop((group, name), None)
        if instance is None:
            raise instance_not_found()
        await _close(instance)

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        gone, self._held = list(self._held.values()), {}
        await asyncio.gather(*(_close(instance) for instance in gone))

    async def expire(self) -> None:
        """Close whom nobody has used for too long."""
        now = self._clock.monotonic()
        for key, instance in list(self._held.items()):
            if now - instance.used_at >= self._idle_s and not instance.busy.locked():
                del self._held[key]
                log.info("consumer %s of group %s was idle for too long and is closed", instance.name, instance.group)
                await _close(instance)

    async def _sweep(self) -> None:
        while self._held:
            await asyncio.sleep(SWEEP_S)
            await self.expire()


async def _close(instance: Instance) -> None:
    try:
        if instance.is_auto_commit:
            await instance.consumer.commit()
    except KafkaFailed as failure:
        log.warning("consumer %s of group %s: offsets were not committed: %s", instance.name, instance.group, failure)
    await instance.consumer.close()
