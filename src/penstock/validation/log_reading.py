"""The committed records of a topic's first partition, from this broker's own log or from the broker that leads it.

Called by schema_topic.py. Laws:
- Only what is committed is given, and nothing of a transaction that was aborted.
- A leader that does not know yet how far its log is committed is not believed to be at its end.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from penstock.disk import Disk
from penstock.errors import CorruptMessage, ErrorCode, OffsetNotAvailable, OffsetOutOfRange, PenstockError
from penstock.model import Offset
from penstock.records.batch import HEADER_BYTES, crc_is_right, read_header
from penstock.records.markers import ControlType, decode_marker
from penstock.records.record import decode_records
from penstock.replication.partition import Partition
from penstock.schemas.stored.records import Read, read_record
from penstock.wire.apis import ApiKey

READ_BYTES = 1 << 20
UNPACKED_BYTES_MAX = 64 << 20
FETCH_VERSION = 13  # topics by id: one that was made anew under its name is not taken for the old one
LIST_OFFSETS_VERSION = 7
LATEST = -1
READ_COMMITTED = 1

# To a broker: its id, the API, the version, the body; the reply as kio's dataclass. Raises PenstockError.
Requests = Callable[[int, ApiKey, int, Mapping[str, Any]], Awaitable[Any]]


class Chunk(NamedTuple):
    batches: memoryview
    aborted: Sequence[tuple[int, int]]
    """Producer and first offset of transactions that were aborted."""


class Leader(Protocol):
    @property
    def topic_id(self) -> UUID: ...

    async def end(self) -> int:
        """Where the committed part of the log ends now."""
        ...

    async def read(self, position: int) -> Chunk:
        """Raises OffsetOutOfRange, which says where the log begins."""
        ...


class LeaderHere:
    def __init__(self, topic_id: UUID, partition: Partition, disk: Disk) -> None:
        self.topic_id = topic_id
        self._partition = partition
        self._disk = disk

    async def end(self) -> int:
        partition = self._partition
        if not partition.is_leader:
            raise partition.not_leader()
        if not partition.is_settled:
            raise OffsetNotAvailable(f"{partition.at}: how far it is committed is not known yet")
        return partition.last_stable_offset

    async def read(self, position: int) -> Chunk:
        log, end = self._partition.log, self._partition.last_stable_offset
        log.settle()  # the thread reads what is in the files
        batches = await self._disk.run(self._read, position, end)
        aborted = log.aborted_transactions(Offset(position), end)
        return Chunk(batches, [(each.producer_id, each.first_offset) for each in aborted])

    def _read(self, position: int, end: Offset) -> memoryview:
        found = self._partition.log.read(Offset(position), READ_BYTES, end, cached_only=False)
        assert found is not None
        return found


class LeaderElsewhere:
    def __init__(self, topic_id: UUID, name: str, node_id: int, ask: Requests) -> None:
        self.topic_id = topic_id
        self._name = name
        self._node_id = node_id
        self._ask = ask

    async def end(self) -> int:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
        body = {
            "replica_id": -1,
            "isolation_level": READ_COMMITTED,
            "topics": [{"name": self._name, "partitions": [partition]}],
        }
        reply = await self._ask(self._node_id, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
        answer = reply.topics[0].partitions[0]
        self._check(answer.error_code)
        return answer.offset

    async def read(self, position: int) -> Chunk:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": position,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": READ_BYTES,
        }
        body = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": READ_BYTES,
            "isolation_level": READ_COMMITTED,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic_id": self.topic_id, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        reply = await self._ask(self._node_id, ApiKey.FETCH, FETCH_VERSION, body)
        self._check(reply.error_code)
        answer = reply.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(position, answer.log_start_offset, answer.high_watermark)
        self._check(answer.error_code)
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        return Chunk(memoryview(answer.records or b""), aborted)

    def _check(self, code: int) -> None:
        if code != ErrorCode.NONE:
            raise _Told(f"broker {self._node_id}, which leads it, answers {ErrorCode(code).name}")


class _Told(PenstockError):
    """What another broker said instead."""


def read_chunk(chunk: Chunk, position: int) -> tuple[list[Read], int]:
    """The records of the registry from `position` on, and where the next chunk begins. In a thread."""
    found: list[Read] = []
    aborted = sorted(chunk.aborted, key=lambda each: each[1])
    dead: set[int] = set()  # producers whose aborted transaction we are inside of
    at, batches = 0, chunk.batches
    while len(batches) - at >= HEADER_BYTES:
        header = read_header(batches, at)
        if header.size < HEADER_BYTES or at + header.size > len(batches):
            break
        if not crc_is_right(batches, header, at):
            raise CorruptMessage(f"the batch at offset {header.base_offset} is not what its CRC says")
        while aborted and aborted[0][1] <= header.last_offset:
            dead.add(aborted.pop(0)[0])
        is_dead = header.is_transactional and header.producer_id in dead
        if header.is_control:
            for record in decode_records(batches, header, UNPACKED_BYTES_MAX, at):
                if decode_marker(record).control_type is ControlType.ABORT:
                    dead.discard(header.producer_id)
        elif not is_dead and header.record_count:
            found += [
                read_record(record.key, record.value)
                for record in decode_records(batches, header, UNPACKED_BYTES_MAX, at)
                if record.offset >= position
            ]
        at += header.size
        position = max(position, header.next_offset)
    return found, position
