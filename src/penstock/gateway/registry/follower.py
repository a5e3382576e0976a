"""The state that follows the schemas topic: read from its beginning, whole once, then kept up with every record.

Owned by registry.py, on the event loop; the reading is done by a Reader's thread. Laws:
- `state` is never half of the topic: a new reader fills a new state, which takes the other's place when it is whole.
- While the cluster is away the state stays as it is, and `trouble` says why nothing can be changed.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from penstock.gateway.registry.deciding import Written
from penstock.gateway.registry.reader import Batch, Reader, ReaderEnded, fingerprint_of
from penstock.gateway.registry.refusals import timed_out
from penstock.gateway.registry.topic import MESSAGE_BYTES_MAX, TopicNotReady, TopicUnfit, ensure_topic
from penstock.schemas.stored.state import State

log = logging.getLogger(__name__)

RETRY_S = 1.0
LOOK_S = 10.0
READ_BACK_S = 10.0
CLOSE_S = 10.0
RECENT_RECORDS = 1000


class Follower:
    def __init__(self, bootstrap: str, properties: Mapping[str, str], topic: str) -> None:
        self.topic = topic
        self.state = State()
        self.is_loaded = False
        self.trouble: str | None = "the schemas topic has not been read yet"
        self.is_unfit = False
        """Whether somebody has to do something about the topic before anything can go on."""
        self._bootstrap = bootstrap
        self._properties = dict(properties)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="registry-ask")
        self._reader: Reader | None = None
        self._reading: threading.Thread | None = None
        self._following: asyncio.Task[None] | None = None
        self._loading: State | None = None
        self._position = 0
        self.record_bytes_max = MESSAGE_BYTES_MAX
        self._recent: deque[tuple[int, int]] = deque(maxlen=RECENT_RECORDS)
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def start(self) -> None:
        """Returns at once; `is_loaded` and `trouble` tell how far it is."""
        self._following = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._reading is not None:
            # Its last batch, if it has one, is still taken by the loop.
            await asyncio.get_running_loop().run_in_executor(self._threads, self._reading.join, CLOSE_S)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def position(self) -> int:
        return self._position

    @property
    def is_current(self) -> bool:
        """Whether the topic is being followed, so that something may be decided."""
        return self.is_loaded and self._reader is not None and self._loading is None

    async def catch_up(self) -> None:
        """Everything that was committed before this call is in the state after it. Raises ReaderEnded."""
        reader = self._reader
        if reader is None or not self.is_current:
            raise ReaderEnded(self.trouble or "the schemas topic is not being read")
        end = await asyncio.get_running_loop().run_in_executor(self._threads, reader.look)
        await self.reached(end)

    async def reached(self, position: int) -> None:
        await self._until(lambda: self._position >= position)

    async def read_back(self, record: Written, since: int) -> None:
        """Until a record that was written at or after a position is in the state."""
        await self._until(lambda: self.has_read(record, since))

    def has_read(self, record: Written, since: int) -> bool:
        """Of the last RECENT_RECORDS. One that another gateway wrote with the very same bytes is as good."""
        fingerprint = fingerprint_of(record.key, record.value)
        return any(one == fingerprint and offset >= since for offset, one in self._recent)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        if is_so():
            return
        waiter = (is_so, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(READ_BACK_S):
                await waiter[1]
        except TimeoutError:
            raise timed_out("Reading the schemas topic") from None
        finally:
            self._waiters.remove(waiter)

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self.is_unfit = False
                self.record_bytes_max = await loop.run_in_executor(
                    self._threads, ensure_topic, self._bootstrap, self._properties, self.topic
                )
                await self._read(loop)
            except (TopicUnfit, TopicNotReady, ReaderEnded) as failure:
                if str(failure) != self.trouble:
                    log.warning("%s", failure)
                self.trouble = str(failure)
                self.is_unfit = isinstance(failure, TopicUnfit)
            except Exception:
                # A record we cannot make sense of must not end the reading for good: it is told, and tried again.
                log.exception("reading the schemas topic failed")
                self.trouble = "reading the schemas topic failed; the gateway's log says why"
            await asyncio.sleep(RETRY_S)

    async def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        ended: asyncio.Future[None] = loop.create_future()

        def take(batch: Batch) -> None:
            taken: Future[None] = Future()
            loop.call_soon_threadsafe(self._take, reader, batch, taken)
            taken.result()

        def run() -> None:
            failure: BaseException | None = None
            try:
                reader.run()
            except BaseException as error:
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(_end, ended, failure)

        self._reader = reader = Reader(self._bootstrap, self._properties, self.topic, take)
        self._loading = State()
        self._recent.clear()
        self._reading = threading.Thread(target=run, name="registry-read", daemon=True)
        self._reading.start()
        try:
            while not await self._is_ended(ended):
                # What is wrong with the topic ends the reader; that the cluster is away does not.
                with contextlib.suppress(ReaderEnded):
                    await loop.run_in_executor(self._threads, reader.look)
        finally:
            self._reader = self._loading = None
            reader.stop()

    async def _is_ended(self, ended: "asyncio.Future[None]") -> bool:
        done, _ = await asyncio.wait([ended], timeout=LOOK_S)
        for one in done:
            one.result()
        return bool(done)

    def _take(self, reader: Reader, batch: Batch, taken: "Future[None]") -> None:
        try:
            if self._reader is reader:
                self._apply(reader, batch)
        except BaseException as error:
            taken.set_exception(error)
        else:
            taken.set_result(None)

    def _apply(self, reader: Reader, batch: Batch) -> None:
        loading = self._loading
        state = self.state if loading is None else loading
        for one in batch.found:
            state.apply(one.read)
            self._recent.append((one.offset, one.fingerprint))
        if loading is not None:
            if batch.position < reader.load_until:
                return
            # Answers made from the state before must not pass for answers of this one.
            loading.epoch += self.state.epoch
            self.state, self._loading = loading, None
            self.is_loaded, self.trouble = True, None
            log.info("the registry knows %d versions of %d subjects", state.versions_held, len(state.subjects))
        self._position = batch.position
        for is_so, waiter in self._waiters:
            if not waiter.done() and is_so():
                waiter.set_result(None)


def _end(ended: "asyncio.Future[None]", failure: BaseException | None) -> None:
    if ended.done():
        return
    if failure is not None:
        ended.set_exception(failure)
    else:
        ended.set_result(None)
