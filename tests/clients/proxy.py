"""A proxy between client and broker that cuts connections where it hurts: around the frames of Produce.

Called by the tests of connection loss, through the fixture `proxy`. Every few Produce requests, by a seed, one meets a
fate: it never arrives, arrives in half, or arrives whole while its reply is lost, whole or in half. With it goes
whatever else was under way on that connection. It can also hold a producer in the middle of its work, and keep one
request of any kind back until long after its sender has given it up for lost.
"""

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Collection, Coroutine
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self

PRODUCE = 0
DEADLINE_S = 30.0
LENGTH = struct.Struct(">i")
REQUEST_START = struct.Struct(">hhi")  # api key, version, correlation id


class Fate(Enum):
    NEVER_SENT = auto()
    HALF_SENT = auto()
    REPLY_LOST = auto()
    REPLY_HALVED = auto()


class _Cut(Exception):
    """This connection ends here."""


@dataclass(slots=True)
class _Pair:
    """A client's connection and ours to the broker, and the replies on it that will not arrive."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    from_broker: asyncio.StreamReader
    doomed: dict[int, Fate] = field(default_factory=dict)  # by correlation id


class _Withheld(Exception):
    """For the client this connection ends here; the broker's end of it stays, for the frame that is late."""

    def __init__(self, frame: bytes, pair: _Pair) -> None:
        self.frame = frame
        self.pair = pair


class CuttingProxy:
    def __init__(self, seed: int = 7) -> None:
        self.fates: Counter[Fate] = Counter()
        self._random = random.Random(seed)
        self._fates: list[Fate] = []
        self._deck: list[Fate] = []  # dealt out before it is shuffled again, so that a few cuts are of every kind
        self._gap_max = 0  # 0: nothing is cut
        self._until_next = 0
        self._until_held = 0  # 0: nobody is held
        self._is_holding = threading.Event()
        self._withheld_key = -1
        self._withheld: _Withheld | None = None
        self._target = ("", 0)
        self._pairs: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server: asyncio.Server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    def forward_to(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))

    def cut_every(self, requests: int, fates: Collection[Fate] = tuple(Fate)) -> None:
        """From now on one Produce request out of 1 to `requests` meets a fate."""
        self._gap_max = requests
        self._fates = list(fates)
        self._until_next = self._random.randint(1, requests)

    def calm(self) -> None:
        self._gap_max = 0

    def hold_after(self, requests: int) -> None:
        """Let so many Produce requests pass, and no more until `release`."""
        self._until_held = requests + 1

    def wait_until_holding(self) -> None:
        assert self._is_holding.wait(DEADLINE_S), "nothing came that could be held"

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._released.set)

    def withhold(self, api_key: int) -> None:
        """Keep the next request of this kind: its sender finds the connection cut, and the broker hears nothing."""
        self._withheld_key = api_key

    def deliver(self) -> bytes:
        """Bring what was withheld to the broker after all, on its connection; the answer, which nobody waits for."""
        assert self._withheld is not None, "nothing was withheld"
        return self._run(_deliver(self._withheld))

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        to_broker: asyncio.StreamWriter | None = None
        pair: _Pair | None = None
        try:
            from_broker, to_broker = await asyncio.open_connection(*self._target)
            pair = _Pair(to_client, to_broker, from_broker)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_requests(from_client, pair))
                both.create_task(self._pass_replies(from_broker, pair))
        except* _Withheld as group:
            (withheld,) = group.exceptions
            assert isinstance(withheld, _Withheld)
            self._withheld, to_broker = withheld, None
        except* (_Cut, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # cut by us, ended by either side, or the proxy ends
        finally:
            self._pairs.discard(task)
            if pair is not None:
                self._deck += pair.doomed.values()  # cut before they came true: they are dealt again
            for writer in (to_client, to_broker):
                if writer is not None:
                    self._hang_up(writer)

    async def _pass_requests(self, source: asyncio.StreamReader, pair: _Pair) -> None:
        while True:
            frame = await _read_frame(source)
            api_key, _, correlation_id = REQUEST_START.unpack_from(frame, LENGTH.size)
            if api_key == self._withheld_key:
                self._withheld_key = -1
                raise _Withheld(frame, pair)
            fate = None
            if api_key == PRODUCE:
                await self._hold()
                fate = self._fate()
            if fate in (Fate.NEVER_SENT, Fate.HALF_SENT):
                self.fates[fate] += 1
                if fate is Fate.HALF_SENT:
                    await _send(pair.broker, frame[: len(frame) // 2])
                raise _Cut
            if fate is not None:
                pair.doomed[correlation_id] = fate
            await _send(pair.broker, frame)

    async def _pass_replies(self, source: asyncio.StreamReader, pair: _Pair) -> None:
        while True:
            frame = await _read_frame(source)
            (correlation_id,) = LENGTH.unpack_from(frame, LENGTH.size)
            fate = pair.doomed.pop(correlation_id, None)
            if fate is not None:
                self.fates[fate] += 1
                if fate is Fate.REPLY_HALVED:
                    await _send(pair.client, frame[: len(frame) // 2])
                raise _Cut
            await _send(pair.client, frame)

    async def _hold(self) -> None:
        if self._until_held == 0:
            return
        self._until_held = max(1, self._until_held - 1)
        if self._until_held == 1:
            self._is_holding.set()
            await self._released.wait()
            self._until_held = 0

    def _fate(self) -> Fate | None:
        if self._gap_max == 0:
            return None
        self._until_next -= 1
        if self._until_next > 0:
            return None
        self._until_next = self._random.randint(1, self._gap_max)
        if not self._deck:
            self._deck = list(self._fates)
            self._random.shuffle(self._deck)
        return self._deck.pop()

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        """With a farewell or with a reset: clients tell them apart."""
        if self._random.random() < 0.5:
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async def _end(self) -> None:
        self._server.close()
        if self._withheld is not None:
            self._withheld.pair.broker.close()
        for pair in list(self._pairs):
            pair.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)


async def _read_frame(source: asyncio.StreamReader) -> bytes:
    """A whole frame, its length in front."""
    head = await source.readexactly(LENGTH.size)
    return head + await source.readexactly(LENGTH.unpack(head)[0])


async def _deliver(withheld: _Withheld) -> bytes:
    """The answer to the frame; those to what was sent before it on the same connection come first."""
    (_, _, correlation_id) = REQUEST_START.unpack_from(withheld.frame, LENGTH.size)
    await _send(withheld.pair.broker, withheld.frame)
    while True:
        answer = await _read_frame(withheld.pair.from_broker)
        if LENGTH.unpack_from(answer, LENGTH.size) == (correlation_id,):
            return answer


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()
