"""Fetch sessions against their model: what an incremental client puts together is what a full fetch would give."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.topic_plan import NewTopic
from penstock.handlers.context import ConnectionState, HandlerContext, RawRequest
from penstock.handlers.fetch import handle_fetch
from penstock.log.partition_log import PartitionLog
from penstock.model import ANONYMOUS
from penstock.records.batch import read_header
from penstock.records.record import Record, encode_batch
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import ApiKey
from penstock.wire.messages import decode_response, encode_request

FETCH, VERSION = ApiKey.FETCH, 11
TOPIC = "orders"
PARTITIONS = 4
ROUNDS_MAX = 12
NOW = 1_700_000_000_000


class Seen(NamedTuple):
    """What a client knows of a partition after a fetch."""

    error_code: int
    high_watermark: int
    log_start: int


class Append(NamedTuple):
    partition: int


class Cut(NamedTuple):
    """Everything up to the end is deleted."""

    partition: int


class Seek(NamedTuple):
    partition: int
    from_start: int


class SeekEnd(NamedTuple):
    partition: int


class Add(NamedTuple):
    partition: int


class Forget(NamedTuple):
    partition: int


INDEX = st.integers(0, PARTITIONS)  # one more than there are: it is unknown, and answered with an error
STEPS = st.lists(
    st.one_of(
        st.builds(Append, st.integers(0, PARTITIONS - 1)),
        st.builds(Cut, st.integers(0, PARTITIONS - 1)),
        st.builds(Seek, INDEX, st.integers(-1, 6)),
        st.builds(SeekEnd, st.integers(0, PARTITIONS - 1)),
        st.builds(Add, INDEX),
        st.builds(Forget, INDEX),
    ),
    max_size=6,
)


class Embedded:
    """A broker with one topic, whose partitions begin every example empty."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        listener: Any = broker.broker.listener
        self.context: HandlerContext = listener._dispatcher._context
        broker.run(self.context.controller.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]))

    def log(self, partition: int) -> PartitionLog:
        return self.context.replicas.find(TOPIC, partition).log

    def start(self, partition: int) -> int:
        return self.log(partition).log_start if partition < PARTITIONS else 0

    def append(self, partition: int) -> None:
        batch = memoryview(encode_batch([Record(0, NOW, b"key", b"value")]))
        self.context.replicas.find(TOPIC, partition).append(batch, read_header(batch), NOW)

    def cut(self, partition: int) -> None:
        log = self.log(partition)
        log.advance_start(log.next_offset)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield Embedded(broker)


class Client:
    """A consumer with a session: it names what changed since last time, and remembers what it was told."""

    def __init__(self, context: HandlerContext, max_bytes: int) -> None:
        self._context = context
        self._max_bytes = max_bytes
        self._session = (0, 0)
        self._changed: set[int] = set()
        self._named: set[int] = set()  # what the session knows of
        self.offsets: dict[int, int] = {}
        self.seen: dict[int, Seen] = {}
        self.records: dict[int, bytes] = {}

    def seek(self, partition: int, offset: int) -> None:
        self.offsets[partition] = offset
        self._changed.add(partition)

    def forget(self, partition: int) -> None:
        self.offsets.pop(partition, None)
        self._changed.discard(partition)

    async def fetch(self) -> None:
        session_id, epoch = self._session
        gone = self._named - self.offsets.keys()
        for partition in gone:
            self.seen.pop(partition, None)
        asked = self._changed if session_id else set(self.offsets)
        answer = await self._ask(session_id, epoch, asked, gone if session_id else set())
        assert answer.error_code == 0
        self._session = (answer.session_id, epoch + 1)
        self._named = set(self.offsets)
        self._changed.clear()
        self.records.clear()
        self._learn(answer)

    async def fetch_everything(self) -> tuple[dict[int, Seen], dict[int, bytes]]:
        """What a fetch without a session gives, to a client that never asked before."""
        full = Client(self._context, self._max_bytes)
        full._learn(await self._ask(0, -1, set(self.offsets), set()))
        return full.seen, full.records

    def _learn(self, answer: Any) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                index = partition.partition_index
                self.seen[index] = Seen(partition.error_code, partition.high_watermark, partition.log_start_offset)
                if partition.records:
                    self.records[index] = partition.records

    async def _ask(self, session_id: int, epoch: int, asked: set[int], gone: set[int]) -> Any:
        wanted = [
            {"partition": index, "fetch_offset": self.offsets[index], "partition_max_bytes": 1 << 20}
            for index in sorted(asked)
        ]
        body = {
            "max_bytes": self._max_bytes,
            "session_id": session_id,
            "session_epoch": epoch,
            "topics": [{"topic": TOPIC, "partitions": wanted}] if wanted else [],
            "forgotten_topics_data": [{"topic": TOPIC, "partitions": sorted(gone)}] if gone else [],
        }
        state = ConnectionState("127.0.0.1", ANONYMOUS)
        view = memoryview(bytearray(encode_request(FETCH, VERSION, body)))
        buffers: Any = handle_fetch(self._context, RawRequest(VERSION, 1, None, state, view, 0, 0.0))
        if isinstance(buffers, asyncio.Future):  # the system would not say what is cached
            buffers = await buffers
        return decode_response(FETCH, VERSION, b"".join(buffers)[8:])


def take(step: NamedTuple, embedded: Embedded, client: Client) -> None:
    match step:
        case Append(partition):
            embedded.append(partition)
        case Cut(partition):
            embedded.cut(partition)
        case Seek(partition, from_start) if partition in client.offsets:
            client.seek(partition, embedded.start(partition) + from_start)
        case SeekEnd(partition) if partition in client.offsets:
            client.seek(partition, embedded.log(partition).next_offset)
        case Add(partition) if partition not in client.offsets:
            client.seek(partition, embedded.start(partition))
        case Forget(partition):
            client.forget(partition)
        case _:
            pass  # about a partition the client has, or has not, already


@given(rounds=st.lists(STEPS, max_size=ROUNDS_MAX), has_room=st.booleans())
@settings(max_examples=150, deadline=None)
def test_an_incremental_client_knows_what_a_full_fetch_would_tell(
    embedded: Embedded, rounds: list[list[NamedTuple]], has_room: bool
) -> None:
    async def play() -> None:
        for partition in range(PARTITIONS):
            embedded.cut(partition)
        # Where an answer has room for one batch only, which one is a matter of turns; the rest is told all the same.
        client = Client(embedded.context, 1 << 20 if has_room else 1)
        for steps in rounds:
            for step in steps:
                take(step, embedded, client)
            await client.fetch()
            seen, records = await client.fetch_everything()
            assert client.seen == seen
            assert client.records == records or not has_room

    embedded.broker.run(play())
