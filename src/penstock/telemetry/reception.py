"""Takes in what clients measure of themselves: answers their questions, judges and unpacks pushes, keeps the values.

Called by handlers.telemetry; broker makes one and gives its values to /metrics.
Laws:
- Nothing that was pushed is unpacked on the event loop, nor more than one push at a time: a push that unfolds to
  megabytes costs one I/O thread for a moment, and leaves the others to the logs.
- A push unfolds to UNFOLDED_FACTOR_MAX times telemetry.max.bytes at most.
"""

import asyncio
import logging
from collections.abc import Iterator
from uuid import UUID

from penstock.clock import Clock, Rng
from penstock.config.broker_settings import BrokerSettings
from penstock.disk import Disk
from penstock.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    InvalidRequest,
    MessageTooLarge,
    PenstockError,
    ThrottlingQuotaExceeded,
    UnsupportedCompressionType,
)
from penstock.metrics import BrokerMetrics
from penstock.metrics.registry import FreeFamily
from penstock.records.compression import Codec, decompress
from penstock.telemetry.instances import Client, Instance, Instances, TelemetryTooLarge
from penstock.telemetry.otlp import Push, read_push
from penstock.telemetry.subscriptions import Source, Subscriptions
from penstock.telemetry.values import ClientValues

logger = logging.getLogger(__name__)

UNFOLDED_FACTOR_MAX = 8
PUSHES_WAITING_MAX = 32
SWEEP_S = 10.0
# Kafka's reserved ids: all zero and all zero but the last bit.
RESERVED_IDS = frozenset({UUID(int=0), UUID(int=1)})
# Best first; clients take the first they can.
ACCEPTED_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


class Reception:
    def __init__(
        self,
        source: Source,
        config: BrokerSettings,
        clock: Clock,
        rng: Rng,
        disk: Disk,
        metrics: BrokerMetrics,
    ) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._disk = disk
        self._pushes = metrics.client_pushes
        self.values = ClientValues(metrics.client_points_left_out)
        self._subscriptions = Subscriptions(source)
        self.instances = Instances(self._subscriptions, self.values.forget)
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._sweep_at = 0.0
        metrics.client_instances.read = lambda: len(self.instances)
        metrics.client_series.read = lambda: len(self.values)
        metrics.registry.free_families = self._families

    @property
    def is_offered(self) -> bool:
        """Whether clients are told of it: only where somebody wants to know anything of them.

        Kafka hides both APIs while no plugin takes the metrics, and answers them all the same. Here something always
        takes them, so that the subscription is what an operator switches on. Every librdkafka client that is told of
        them says so in a line of its log. Who connected before the first subscription hears of it with its next
        connection.
        """
        return not self._subscriptions.is_empty

    @property
    def bytes_max(self) -> int:
        return self._config.telemetry_max_bytes

    def ask(self, instance_id: UUID | None, client: Client) -> Instance:
        """What a client is to push; one that has no id yet is given one. Raises ThrottlingQuotaExceeded."""
        now = self._clock.monotonic()
        self._sweep(now)
        if instance_id is None or instance_id in RESERVED_IDS:
            instance_id = self._rng.uuid()
        instance = self.instances.heard(instance_id, client, now)
        instance.ask(now)
        return instance

    async def push(
        self, instance_id: UUID | None, client: Client, subscription_id: int, codec: int, data: bytes, *, is_last: bool
    ) -> None:
        """Raises what is wrong with the push, in the words of KIP-714's error codes."""
        try:
            await self._push(instance_id, client, subscription_id, codec, data, is_last=is_last)
        except PenstockError as error:
            self._pushes.child(error.code.name).value += 1
            raise
        self._pushes.child(ErrorCode.NONE.name).value += 1

    async def _push(
        self, instance_id: UUID | None, client: Client, subscription_id: int, codec: int, data: bytes, *, is_last: bool
    ) -> None:
        if instance_id is None or instance_id in RESERVED_IDS:
            raise InvalidRequest("a push of metrics without a client instance id; ask for the subscriptions first")
        now = self._clock.monotonic()
        self._sweep(now)
        instance = self.instances.heard(instance_id, client, now)
        try:
            instance.push(subscription_id, now, is_last=is_last)
            if codec not in set(Codec):
                raise UnsupportedCompressionType(f"compression {codec} is none of Kafka's")
            if len(data) > self.bytes_max:
                raise TelemetryTooLarge(f"{len(data)} bytes of metrics; telemetry.max.bytes is {self.bytes_max}")
            push = await self._unpack(codec, data) if data else None
        except PenstockError as error:
            instance.last_error = error.code
            raise
        instance.last_error = ErrorCode.NONE
        # It may have been forgotten while it was unpacked: what nobody would take away again is not kept.
        if push is not None and self.instances.has(instance):
            self.values.take(instance.id, instance.client.client_id, push)

    async def _unpack(self, codec: int, data: bytes) -> Push:
        if self._waiting >= PUSHES_WAITING_MAX:
            raise ThrottlingQuotaExceeded(f"{PUSHES_WAITING_MAX} pushes of metrics wait already")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._disk.run(_unpack, codec, data, UNFOLDED_FACTOR_MAX * self.bytes_max)
        finally:
            self._waiting -= 1

    def _sweep(self, now: float) -> None:
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_S
            self.instances.forget_silent(now)

    def _families(self) -> Iterator[FreeFamily]:
        self._sweep(self._clock.monotonic())
        return self.values.families()


def _unpack(codec: int, data: bytes, size_max: int) -> Push:
    try:
        return read_push(memoryview(decompress(codec, data, size_max)))
    except MessageTooLarge as error:
        raise TelemetryTooLarge(f"the metrics unfold to more than {size_max} bytes") from error
    except CorruptMessage as error:
        raise InvalidRecord(f"the metrics cannot be decompressed: {error}") from error
