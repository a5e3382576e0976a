"""Hostile frames sent, and those beside them who must not notice: an honest client, and many who only hold on.

Used by test_hostile_frames.
"""

import asyncio
import contextlib
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from time import time
from typing import Any

from hostile_frames import Hostile, framed

from penstock.client.connection import ClientConnection
from penstock.errors import ErrorCode
from penstock.model import Endpoint
from penstock.records.batch import read_header
from penstock.records.record import Record, decode_records, encode_batch
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response
from penstock.wire.primitives import skip_tags

LANES = 16
ANSWER_S = 2.0  # who has no answer by then waits for data or members, and is left

SENTINEL_ID = 0x7E57
SENTINEL = request_frame(ApiKey.API_VERSIONS, 0, SENTINEL_ID, "sentinel", b"")


class Outcomes:
    """What became of the frames, and what should not have."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def blame(self, hostile: Hostile, why: str) -> None:
        self.wrong.append(f"{hostile.what}: {why}: {hostile.data.hex()}")


class Lane:
    """One connection after another, each used until the broker has had enough of it."""

    def __init__(self, endpoint: Endpoint, outcomes: Outcomes, answer_s: float) -> None:
        self._endpoint = endpoint
        self._answer_s = answer_s
        self._outcomes = outcomes
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, hostile: Hostile) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._endpoint.host, self._endpoint.port)
        outcome = "closed"
        try:
            async with asyncio.timeout(self._answer_s):
                outcome = await self._exchange(hostile, *self._streams)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except TimeoutError:
            outcome = "waiting"
        self._outcomes.counts[outcome] += 1
        if outcome in ("closed", "waiting"):
            self.close()

    async def _exchange(self, hostile: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        writer.write(hostile.data + SENTINEL if hostile.is_whole else hostile.data)
        if not hostile.is_whole:
            writer.write_eof()
        outcome = "unanswered"
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size)
            if int.from_bytes(answer[:4], "big") == SENTINEL_ID:
                return outcome
            outcome = "answered"
            if hostile.key is not None:
                self._check(hostile, hostile.key, answer)

    def _check(self, hostile: Hostile, key: ApiKey, answer: bytes) -> None:
        try:
            is_flexible = BY_KEY[key].is_flexible(hostile.version) and key is not ApiKey.API_VERSIONS
            offset = skip_tags(memoryview(answer), 4) if is_flexible else 4
            decoded = decode_response(key, hostile.version, answer[offset:])
        except Exception as error:
            self._outcomes.blame(hostile, f"an answer that cannot be read ({error!r})")
            return
        if ErrorCode.UNKNOWN_SERVER_ERROR in error_codes(decoded):
            self._outcomes.blame(hostile, "UNKNOWN_SERVER_ERROR")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def error_codes(message: Any) -> Iterator[int]:
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        if name == "error_code":
            yield int(value)
        for inner in value if isinstance(value, tuple) else (value,):
            yield from error_codes(inner)


async def send_all(
    endpoint: Endpoint, frames: Iterator[Hostile], lanes: int = LANES, answer_s: float = ANSWER_S
) -> Outcomes:
    outcomes = Outcomes()

    async def play() -> None:
        lane = Lane(endpoint, outcomes, answer_s)
        for hostile in frames:  # all lanes draw from the same source
            await lane.send(hostile)
        lane.close()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(lanes):
            tasks.create_task(play())
    return outcomes


# Who must not notice


class HonestClient:
    """Writes numbers and reads them back, all the while."""

    def __init__(self, endpoint: Endpoint, topic: str) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._is_wanted = True
        self.rounds = 0

    async def run(self) -> None:
        async with await ClientConnection.connect(self._endpoint, client_id="honest", timeout_s=60) as connection:
            while self._is_wanted:
                await self._round(connection)

    async def _round(self, connection: ClientConnection) -> None:
        number = self.rounds
        # Of now: what is a week old would be gone with the next round of retention.
        records = bytes(encode_batch([Record(0, int(time() * 1000), b"key", str(number).encode())]))
        data = [{"name": self._topic, "partition_data": [{"index": 0, "records": records}]}]
        produced = await connection.request(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 30_000, "topic_data": data})
        result = produced.responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (0, number)
        partition = {"partition": 0, "fetch_offset": number, "partition_max_bytes": 1 << 20}
        body = {"min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        topics = [{"topic": self._topic, "partitions": [partition]}]
        fetched = await connection.request(ApiKey.FETCH, 11, {**body, "topics": topics})
        result = fetched.responses[0].partitions[0]
        assert (result.error_code, result.high_watermark) == (0, number + 1)
        batch = result.records
        (record,) = decode_records(batch, read_header(batch), 1 << 20)
        assert (record.offset, record.value) == (number, str(number).encode())
        self.rounds += 1

    def stop(self) -> None:
        self._is_wanted = False


@contextlib.asynccontextmanager
async def half_open_connections(endpoint: Endpoint, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections in the middle of a frame that never ends."""
    starts = (
        b"\x00",
        b"\x00\x00\x00",
        framed(b"", 1 << 20),
        framed(b"\x00\x00\x00\x09", 90 << 20),
        framed(b"\x00\x01\x00\x0b\x00\x00\x00\x01\x00\x04test", 1 << 20),
        framed(b"\x00\x12\x00\x03\x00\x00\x00\x01", 200_000) + bytes(1000),
    )
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    for number in range(count):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(starts[number % len(starts)])
        streams.append((reader, writer))
    try:
        yield [reader for reader, _ in streams]
    finally:
        for _, writer in streams:
            writer.close()


def allow_many_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


async def create_topics(endpoint: Endpoint, **topics: dict[str, str]) -> None:
    wishes = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "configs": [{"name": setting, "value": value} for setting, value in configs.items()],
        }
        for name, configs in topics.items()
    ]
    async with await ClientConnection.connect(endpoint) as connection:
        answer = await connection.request(ApiKey.CREATE_TOPICS, 7, {"topics": wishes, "timeout": 30_000})
        assert [topic.error_code for topic in answer.topics] == [0] * len(topics)
