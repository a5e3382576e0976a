"""What clients do to a simulated cluster while it is tormented: an idempotent producer, readers, commits, transactions.

Called by simulate. Each class is one client with a host of its own; `run` ends when `is_over` is set and what it has
begun is settled, or never, which the deadline of the seed then tells as lack of progress.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from tests.simulation.client import LOST, Client
from tests.simulation.model import Model

from penstock.errors import ErrorCode
from penstock.records.batch import HEADER_BYTES, crc_is_right, read_header
from penstock.records.record import Record, decode_records, encode_batch
from penstock.wire.apis import ApiKey

IN_FLIGHT_MAX = 5
FETCH_BYTES = 64 * 1024
UNPACKED_BYTES_MAX = 1 << 20
GROUP, TRANSACTION = 0, 1
REREAD_S = 3.0


@dataclass(slots=True)
class Batch:
    values: list[bytes]
    records: bytes


class Over:
    """Told once, when the load should end."""

    def __init__(self) -> None:
        self.is_set = False


class IdempotentProducer:
    """acks=all, one partition, up to five requests in flight, each repeated until it is settled."""

    def __init__(self, client: Client, model: Model, topic: str, partition: int, over: Over, pause_s: float) -> None:
        self._client = client
        self._model = model
        self._topic, self._partition = topic, partition
        self._over = over
        self._pause_s = pause_s
        self._window: deque[Batch] = deque()
        self._producer_id = -1
        self._sequence = 0
        self._count = 0
        self.retries = 0

    async def run(self) -> None:
        await self._get_producer_id()
        while not self._over.is_set or self._window:
            self._fill()
            if self._window and not await self._send_window():
                self.retries += 1
                await self._client.back_off()
            elif not self._over.is_set:
                await asyncio.sleep(self._pause_s * 2 * self._client.world.chance.random())

    async def _get_producer_id(self) -> None:
        body = {"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        while self._producer_id < 0:
            try:
                answer = await self._client.ask_any(ApiKey.INIT_PRODUCER_ID, 4, body)
                if answer.error_code == ErrorCode.NONE:
                    self._producer_id = answer.producer_id
                    return
            except LOST:
                pass
            await self._client.back_off()

    def _fill(self) -> None:
        chance = self._client.world.chance
        wanted = chance.choice((1, 3, IN_FLIGHT_MAX, IN_FLIGHT_MAX))
        while len(self._window) < wanted and not self._over.is_set:
            values = [
                f"{self._client.host.name}/{self._partition}/{self._count + number}".encode()
                for number in range(chance.randint(1, 3))
            ]
            self._count += len(values)
            records = encode_batch(
                [Record(number, 1_700_000_000_000, None, value) for number, value in enumerate(values)],
                producer_id=self._producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
            self._sequence += len(values)
            self._model.at(self._topic, self._partition).sent.update(dict.fromkeys(values))
            self._window.append(Batch(values, bytes(records)))

    async def _send_window(self) -> bool:
        """Send all that is open, in order and at once; True if all of it is settled."""
        try:
            leader = await self._client.leader(self._topic, self._partition)
            if leader is None:
                self._client.forget_leader(self._topic, self._partition)
                return False
            await self._client.connect(leader)
            answers = await asyncio.gather(
                *(self._client.ask(leader, ApiKey.PRODUCE, 9, self._body(batch)) for batch in self._window),
                return_exceptions=True,
            )
        except LOST:
            self._client.forget_leader(self._topic, self._partition)
            return False
        is_settled = True
        for answer in answers:
            if isinstance(answer, LOST):
                self._client.forget_leader(self._topic, self._partition)
                return False
            if isinstance(answer, BaseException):
                raise answer
            given = answer.responses[0].partition_responses[0]
            is_settled = is_settled and self._settle(given.error_code, given.base_offset)
        if not is_settled:
            self._client.forget_leader(self._topic, self._partition)
        return is_settled

    def _settle(self, code: int, base_offset: int) -> bool:
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # Five are never in flight without the leader knowing where the first of them is (TRAPS P1).
            self._client.world.problem(
                f"{self._topic}-{self._partition}: {self._window[0].values[0]!r} is known, but not where it is"
            )
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch = self._window.popleft()
            self._model.acknowledge(self._topic, self._partition, batch.values, base_offset)
            return True
        if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            # All before it was acknowledged, or we would not have come here: somebody has forgotten it.
            self._client.world.problem(
                f"{self._topic}-{self._partition}: {self._window[0].values[0]!r} refused with {ErrorCode(code).name}, "
                "though all before it was acknowledged"
            )
            self._window.clear()
            self._over.is_set = True
        return False

    def _body(self, batch: Batch) -> dict[str, Any]:
        part = {"index": self._partition, "records": batch.records}
        topics = [{"name": self._topic, "partition_data": [part]}]
        return {"transactional_id": None, "acks": -1, "timeout": 1_500, "topic_data": topics}


class Reader:
    """Reads one partition from the start, again and again where `is_repeating`; tells the model of all it sees."""

    def __init__(
        self,
        client: Client,
        model: Model,
        topic: str,
        partition: int,
        over: Over,
        *,
        is_repeating: bool = False,
        is_committed: bool = False,
    ) -> None:
        self._client = client
        self._model = model
        self._topic, self._partition = topic, partition
        self._over = over
        self._is_repeating = is_repeating
        self._is_committed = is_committed
        self.position = 0
        self.is_all_stable = False

    async def run(self) -> None:
        while not self._over.is_set:
            is_end = await self.read_some()
            if is_end is None:
                await self._client.back_off()
            elif is_end and self._is_repeating:
                self.position = 0
                await asyncio.sleep(REREAD_S)

    async def read_to_end(self) -> bool:
        """After the load: everything up to the end, once. False if there was no end within many tries."""
        for _ in range(2_000):
            is_end = await self.read_some()
            if is_end:
                return True
            if is_end is None:
                await self._client.back_off()
        return False

    async def read_some(self) -> bool | None:
        """One fetch: True if it ended at the high watermark, None if it failed."""
        try:
            leader = await self._client.leader(self._topic, self._partition)
            if leader is None:
                self._client.forget_leader(self._topic, self._partition)
                return None
            answer = await self._client.ask(leader, ApiKey.FETCH, 11, self._body())
        except LOST:
            self._client.forget_leader(self._topic, self._partition)
            return None
        if answer.error_code != ErrorCode.NONE:
            return None
        given = answer.responses[0].partitions[0]
        if given.error_code != ErrorCode.NONE:
            if given.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._client.world.problem(
                    f"{self._topic}-{self._partition}: a reader at {self.position} is told that this is out of range"
                )
                self.position = 0
            self._client.forget_leader(self._topic, self._partition)
            return None
        if not self._take(given):
            return None
        self.is_all_stable = given.last_stable_offset == given.high_watermark
        end = given.last_stable_offset if self._is_committed else given.high_watermark
        return self.position >= end

    def _take(self, given: Any) -> bool:
        """False if the broker gave something damaged, which a client asks for again."""
        records = memoryview(given.records or b"")
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in given.aborted_transactions or ()), reverse=True
        )
        dropping: set[int] = set()
        at = 0
        while len(records) - at >= HEADER_BYTES:
            header = read_header(records, at)
            if at + header.size > len(records):
                break
            if not crc_is_right(records, header, at):
                self._client.world.tell(
                    f"{self._topic}-{self._partition}: a reader was given a damaged batch at {header.base_offset}"
                )
                return False
            while aborted and aborted[-1][0] <= header.last_offset:
                dropping.add(aborted.pop()[1])
            if header.is_control:
                dropping.discard(header.producer_id)
            elif not (self._is_committed and header.is_transactional and header.producer_id in dropping):
                for record in decode_records(records, header, UNPACKED_BYTES_MAX, at):
                    if record.offset >= self.position:
                        self._see(record, header)
            self.position = max(self.position, header.next_offset)
            at += header.size
        known = self._model.at(self._topic, self._partition)
        known.read_upto = max(known.read_upto, self.position)
        return True

    def _see(self, record: Record, header: Any) -> None:
        assert record.value is not None
        self._model.note_read(self._topic, self._partition, record.offset, record.value)

    def _body(self) -> dict[str, Any]:
        part = {
            "partition": self._partition,
            "current_leader_epoch": -1,
            "fetch_offset": self.position,
            "log_start_offset": -1,
            "partition_max_bytes": FETCH_BYTES,
        }
        return {
            "replica_id": -1,
            "max_wait": 300,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "isolation_level": int(self._is_committed),
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self._topic, "partitions": [part]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }


class Committer:
    """Commits ever higher offsets of one partition as the only user of its group, and reads back what it committed."""

    def __init__(self, client: Client, model: Model, group: str, topic: str, over: Over) -> None:
        self._client = client
        self._model = model
        self._group, self._topic = group, topic
        self._over = over
        self._last = -1
        self._tried = -1
        # Commits without an answer. Nothing but their order tells them apart, so a late one may yet overwrite others.
        self._lost: set[int] = set()

    async def run(self) -> None:
        while not self._over.is_set:
            await self.step()
            await asyncio.sleep(0.2 * self._client.world.chance.random())

    async def step(self) -> bool:
        try:
            coordinator = await self._client.coordinator(self._group, GROUP)
            if coordinator is None:
                await self._client.back_off()
                return False
            if self._client.world.chance.random() < 0.5:
                return await self._commit(coordinator)
            return await self._fetch(coordinator)
        except LOST:
            self._client.forget_coordinator(self._group, GROUP)
            await self._client.back_off()
            return False

    async def _commit(self, coordinator: Any) -> bool:
        self._tried += 1
        part = {
            "partition_index": 0,
            "committed_offset": self._tried,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = {
            "group_id": self._group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self._topic, "partitions": [part]}],
        }
        self._lost.add(self._tried)
        answer = await self._client.ask(coordinator, ApiKey.OFFSET_COMMIT, 8, body)
        code = answer.topics[0].partitions[0].error_code
        if code != ErrorCode.NONE:
            return await self._refused(code)
        self._last = self._tried
        self._lost.discard(self._tried)
        return True

    async def _fetch(self, coordinator: Any) -> bool:
        topics = [{"name": self._topic, "partition_indexes": [0]}]
        body = {"group_id": self._group, "topics": topics, "require_stable": False}
        answer = await self._client.ask(coordinator, ApiKey.OFFSET_FETCH, 7, body)
        part = answer.topics[0].partitions[0] if answer.topics else None
        code = answer.error_code or (part.error_code if part is not None else ErrorCode.NONE)
        if code != ErrorCode.NONE:
            return await self._refused(code)
        found = part.committed_offset if part is not None else -1
        if found != self._last and found not in self._lost:
            self._client.world.problem(
                f"group {self._group}: {self._last} was committed, {self._tried} tried, {found} is what it has"
            )
        self._last = found
        return True

    async def _refused(self, code: int) -> bool:
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._client.forget_coordinator(self._group, GROUP)
        await self._client.back_off()
        return False
