"""Real sockets to a real broker, frame by frame, for the tests of the server."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.brief_work import BriefWork
from penstock.disk import RealFile
from penstock.records.record import Record, encode_batch
from penstock.server.connection import Connection
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import skip_tags

DEADLINE_S = 30.0


class Wire:
    """One connection, spoken byte by byte. Every read has a deadline, so that a silent broker is a failed test."""

    def __init__(self, broker: EmbeddedBroker, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = 0

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, api_key: ApiKey, version: int | None = None, /, **body: Any) -> Any:
        """The decoded answer to one request; the newest version if none is given."""
        version = BY_KEY[api_key].high if version is None else version
        self._next += 1
        self.send(frame(api_key, version, self._next, **body))
        correlation_id, answer = self.receive(api_key, version)
        assert correlation_id == self._next
        return answer

    def receive(self, api_key: ApiKey, version: int) -> tuple[int, Any]:
        return decode(api_key, version, self.receive_frame())

    def receive_frame(self) -> bytes:
        """The next frame without its length."""
        size = int.from_bytes(self._exactly(4), "big", signed=True)
        assert size >= 4
        return self._exactly(size)

    def has_bytes(self) -> bool:
        """Whether anything has come that was not read."""
        self.socket.setblocking(False)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        finally:
            self.socket.settimeout(DEADLINE_S)

    def is_hung_up_on(self) -> bool:
        """Whether the broker closes the connection without a further word; waits for either."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionResetError("hung up")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def frame(api_key: ApiKey, version: int, correlation_id: int, /, client_id: str = "test", **body: Any) -> bytes:
    return request_frame(api_key, version, correlation_id, client_id, encode_request(api_key, version, body))


def decode(api_key: ApiKey, version: int, raw: bytes) -> tuple[int, Any]:
    """Correlation id and body of a frame without its length."""
    offset = 4
    if BY_KEY[api_key].is_flexible(version) and api_key is not ApiKey.API_VERSIONS:
        offset = skip_tags(memoryview(raw), 4)
    return int.from_bytes(raw[:4], "big"), decode_response(api_key, version, raw[offset:])


def produce_frame(
    correlation_id: int, topic: str, value: bytes = b"value", *, acks: int = 1, partition: int = 0, **more: Any
) -> bytes:
    """A Produce request (version 9) with one record."""
    records = bytes(encode_batch([Record(0, 1_700_000_000_000, b"key", value)]))
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return frame(ApiKey.PRODUCE, 9, correlation_id, acks=acks, timeout=30_000, topic_data=data, **more)


def fetch_body(topic: str, size_max: int = 16 << 20, **more: Any) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size_max}
    topics = [{"topic": topic, "partitions": [partition]}]
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": size_max, "topics": topics, **more}


class Frames:
    """How frames are made and read, for tests that hold them in hand."""

    make = staticmethod(frame)
    decode = staticmethod(decode)
    produce = staticmethod(produce_frame)
    fetch_body = staticmethod(fetch_body)


@pytest.fixture
def frames() -> type[Frames]:
    return Frames


@pytest.fixture
def connect() -> Iterator[Callable[..., Wire]]:
    """Opens connections to a broker; all are closed when the test ends."""
    opened: list[Wire] = []

    def open_one(broker: EmbeddedBroker, receive_buffer_bytes: int | None = None) -> Wire:
        wire = Wire(broker, receive_buffer_bytes)
        opened.append(wire)
        return wire

    yield open_one
    for wire in opened:
        wire.close()


@pytest.fixture
def create(connect: Callable[..., Wire]) -> Callable[..., None]:
    """Makes a topic; settings are written with _ for the dot."""

    def create_topic(broker: EmbeddedBroker, name: str, partitions: int = 1, **configs: str) -> None:
        wish = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        answer = connect(broker).ask(ApiKey.CREATE_TOPICS, topics=[wish], timeout=30_000)
        assert [topic.error_code for topic in answer.topics] == [0]

    return create_topic


class Inside:
    """Looks into a running broker from the test's thread; each look is one turn of the broker's loop."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    def read(self, look: Callable[[], Any]) -> Any:
        async def turn() -> Any:
            return look()

        return self._broker.run(turn())

    def until(self, condition: Callable[[], bool]) -> None:
        """Return once it holds: the turns of the broker's loop are the waiting."""
        while not self.read(condition):
            pass

    def requests(self, api: str) -> int:
        """How many requests of this API were taken."""
        return self.read(lambda: int(self._broker.broker.metrics.requests.child(api).value))

    def closed(self, reason: str) -> int:
        return self.read(lambda: int(self._broker.broker.metrics.connections_closed.child(reason).value))

    def refused(self, reason: str) -> int:
        return self.read(lambda: int(self._broker.broker.metrics.connections_refused.child(reason).value))

    def held_bytes(self) -> int:
        return self.read(lambda: self._broker.broker.listener.held_bytes)

    def connections(self) -> list[Connection]:
        listener: Any = self._broker.broker.listener
        return self.read(lambda: list(listener._connections))

    def unsent_bytes(self) -> int:
        """Bytes of answers that clients have not taken yet."""

        def look() -> int:
            listener: Any = self._broker.broker.listener
            return sum(one._transport.get_write_buffer_size() for one in listener._connections if one._transport)

        return self.read(look)


@pytest.fixture
def inside() -> type[Inside]:
    return Inside


@pytest.fixture
def stalling_storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set: the disk answers. Clear it, and every fsync waits until it is set again, wherever it runs."""
    answers = threading.Event()
    answers.set()
    sync = RealFile.sync

    def sync_when_allowed(file: RealFile) -> None:
        assert answers.wait(DEADLINE_S)
        sync(file)

    monkeypatch.setattr(RealFile, "sync", sync_when_allowed)
    with contextlib.closing(_Opener(answers)):
        yield answers


@pytest.fixture
def stable_storage(stalling_storage: threading.Event, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The same of a disk that was found slow long before: its syncs are not for the loop."""
    monkeypatch.setattr(BriefWork, "may_run_here", lambda _: False)
    return stalling_storage


class _Opener:
    """Lets a broker stop though the test that closed its disk has failed."""

    def __init__(self, answers: threading.Event) -> None:
        self.close = answers.set
