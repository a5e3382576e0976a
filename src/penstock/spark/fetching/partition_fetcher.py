"""The raw batches of one partition, in order, fetched ahead by a thread of its own.

Called by the readers of the data source, one per task and partition.
Laws:
- Chunks come in order, without a gap or an overlap of whole batches, until `end` is reached; what lies between the last
  batch and `end` may have been compacted away: the next batch shows it, or at the log's end a long silence.
- At most CHUNKS_AHEAD chunks wait; a slow reader stops the fetching, not the other way round.
- A new topic of the same name is never read in the place of the old one, where the broker knows topics by id.
- The thread ends when the iterator does, however it does.
"""

import threading
from collections import deque
from collections.abc import Iterator
from uuid import UUID

from penstock.model import TopicPartition
from penstock.spark.fetching.chunk import FetchedChunk
from penstock.spark.fetching.cluster import Cluster
from penstock.spark.fetching.errors import FetchRefused
from penstock.spark.fetching.fetch_steps import FetchSteps

CHUNKS_AHEAD = 2
DEADLINE_S = 120.0
_JOIN_S = 10.0


class PartitionFetcher:
    def __init__(
        self,
        cluster: Cluster,
        at: TopicPartition,
        topic_id: UUID | None,
        start: int,
        end: int,
        isolation: str,
        *,
        max_bytes: int = 8 << 20,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """`deadline_s` is how long it may go without progress."""
        self._is_closed = threading.Event()
        self._steps = FetchSteps(
            cluster,
            at,
            topic_id,
            start,
            end,
            is_committed=isolation == "read_committed",
            max_bytes=max_bytes,
            deadline_s=deadline_s,
            is_closed=self._is_closed,
        )
        self._name = f"penstock-fetch-{at}"
        self._ahead: deque[FetchedChunk] = deque()
        self._changed = threading.Condition()
        self._is_done = False
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[FetchedChunk]:
        assert self._thread is None, "a fetcher is read once"
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread
        try:
            while (chunk := self._next()) is not None:
                yield chunk
        finally:
            self.close()

    def close(self) -> None:
        self._is_closed.set()
        with self._changed:
            self._changed.notify_all()
        self._steps.abort()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _next(self) -> FetchedChunk | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ahead or self._is_done or self._is_closed.is_set())
            if self._ahead and not self._is_closed.is_set():
                chunk = self._ahead.popleft()
                self._changed.notify_all()
                return chunk
            if self._failure is not None:
                raise self._failure
            if self._is_closed.is_set():
                # An end would be taken for the end of the range, and the rest be missing without a word.
                raise FetchRefused(f"{self._name} was closed while it was read")
            return None

    def _run(self) -> None:
        try:
            while not self._is_closed.is_set():
                with self._changed:
                    self._changed.wait_for(lambda: len(self._ahead) < CHUNKS_AHEAD or self._is_closed.is_set())
                chunk = self._steps.step()
                if chunk is None:
                    break
                with self._changed:
                    self._ahead.append(chunk)
                    self._changed.notify_all()
        except BaseException as failure:  # handed to the reader, whatever it is
            self._failure = failure
        finally:
            with self._changed:
                self._is_done = True
                self._changed.notify_all()
