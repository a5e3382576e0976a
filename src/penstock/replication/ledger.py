"""A partition of an internal topic, as coordination wants it: append and wait, or read everything.

Called by coordination, through its Ledger protocol; made by broker for each internal partition this broker leads.
"""

import asyncio
from collections.abc import AsyncIterator

from penstock.clock import Clock
from penstock.disk import Disk
from penstock.errors import StorageFailed
from penstock.log.partition_log import Appended
from penstock.model import Offset, TopicPartition
from penstock.records.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.records.markers import Marker
from penstock.replication.partition import Partition

READ_BYTES = 1 << 20


class PartitionLedger:
    def __init__(self, partition: Partition, clock: Clock, disk: Disk) -> None:
        self._partition = partition
        self._clock = clock
        self._disk = disk
        # A ledger is that of one leadership: who holds an old one writes nothing in the name of a new one.
        self.leader_epoch = partition.leader_epoch

    @property
    def topic_partition(self) -> TopicPartition:
        return self._partition.at

    def append(self, batch: bytes | bytearray) -> asyncio.Future[int]:
        # Not held to max.message.bytes: how large a group may be is limited where its requests come in.
        view = memoryview(batch if isinstance(batch, bytearray) else bytearray(batch))
        self._check()
        return self._committed(self._partition.append(view, read_header(view), self._clock.now_ms()))

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, *, is_version_2: bool
    ) -> asyncio.Future[int]:
        now_ms = self._clock.now_ms()
        self._check()
        return self._committed(
            self._partition.append_marker(marker, producer_id, producer_epoch, now_ms, is_version_2=is_version_2)
        )

    async def read_all(self) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        """All that is there, once it is committed: what a new leader has more than others may not be yet (R10)."""
        log = self._partition.log
        offset, end = log.log_start, log.next_offset
        if (committed := self._partition.committed(end)) is not None:
            await asyncio.shield(committed)
        while offset < end:
            chunk = await self._disk.run(self._read, offset, end)
            if not chunk:
                # Its log has failed meanwhile. Half of what is there must not be taken for all of it.
                raise StorageFailed(f"{self._partition.at}: nothing can be read at {offset}, below the end {end}")
            at = 0
            while len(chunk) - at >= HEADER_BYTES:
                header = read_header(chunk, at)
                if at + header.size > len(chunk):
                    break
                yield header, chunk[at : at + header.size]
                at += header.size
                offset = Offset(header.next_offset)

    def _check(self) -> None:
        if self._partition.leader_epoch != self.leader_epoch:
            raise self._partition.not_leader()
        self._partition.check_in_sync()

    def _read(self, offset: Offset, end: Offset) -> memoryview | None:
        return self._partition.log.read(offset, READ_BYTES, end, cached_only=False)

    def _committed(self, appended: Appended) -> asyncio.Future[int]:
        committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        safe = self._partition.committed(appended.next_offset)

        def settle(done: asyncio.Future[None]) -> None:
            if committed.done():
                return
            error = StorageFailed(f"{self._partition.at} is closed") if done.cancelled() else done.exception()
            if error is None:
                committed.set_result(appended.base_offset)
            else:
                committed.set_exception(error)

        if safe is None:
            committed.set_result(appended.base_offset)
        else:
            safe.add_done_callback(settle)
        return committed
