"""One traced produce request: a span for the whole, one for each partition's append, one for what its answer waits for.

Made by tracing.tracer for a request that is traced, used by handlers.produce around its own steps.
Laws:
- It watches and never changes: what is appended, waited for, raised and answered is the same without it.
- The append's span ends when the batch is written. What comes after has a span of its own where somebody waits for it,
  which is acks=all: `replicate` until all in sync have it, or `sync` in a partition of one replica until the disk has
  it.
"""

import asyncio
from collections.abc import Callable
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from penstock.errors import ErrorCode, PenstockError
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.replication.replicas import HostedTopic
from penstock.tracing.looking import Contexts
from penstock.tracing.span import (
    CLIENT_ID,
    DESTINATION,
    ERROR_TYPE,
    MESSAGE_COUNT,
    OFFSET,
    OPERATION_TYPE,
    PARTITION,
    Kind,
    Own,
    Span,
    attributes_of,
    shown_client,
    span_name,
)
from penstock.tracing.timeline import Timeline
from penstock.wire.produce import ProducePartitionResult

Wait = asyncio.Future[None]
Appended = tuple[ProducePartitionResult, Wait | None]
C = TypeVar("C")
P = ParamSpec("P")
Append = Callable[Concatenate[C, HostedTopic | PenstockError, int, memoryview | None, P], Appended]


class _Written(NamedTuple):
    base_offset: int
    message_count: int


class ProduceTrace:
    def __init__(
        self,
        own: Own,
        contexts: Contexts,
        client_id: str | None,
        timeline: Timeline,
        new_id: Callable[[], int],
        put: Callable[[Span], None],
    ) -> None:
        self._own = own
        self._contexts = contexts
        self._client_id = client_id
        self._timeline = timeline
        self._new_id = new_id
        self._put = put
        self._topics: set[str] = set()
        self._partitions: list[tuple[int, int]] = []  # index and base offset of each that was written
        self._message_count = 0
        self._waits = 0
        self._error: str | None = None

    def around(self, append: Append[C, P]) -> Append[C, P]:
        """The same function, watched."""

        def traced(
            context: C,
            topic: HostedTopic | PenstockError,
            index: int,
            records: memoryview | None,
            *rest: P.args,
            **named: P.kwargs,
        ) -> Appended:
            began = self._timeline.now()
            try:
                appended = append(context, topic, index, records, *rest, **named)
            except PenstockError as error:
                self._refused(topic, index, began, error)
                raise
            assert not isinstance(topic, PenstockError)
            self._appended(topic, index, records, began, appended)
            return appended

        return traced

    def answered(self) -> None:
        """The request's span ends with its answer; here, it did not have to wait for one."""
        self._end(is_late=False)

    def answered_later(self, _: object = None) -> None:
        # The waits that brought the answer have callbacks of ours behind them, of this turn of the loop.
        asyncio.get_running_loop().call_soon(lambda: self._end(is_late=self._waits > 0))

    def _appended(
        self, topic: HostedTopic, index: int, records: memoryview | None, began: float, appended: Appended
    ) -> None:
        result, wait = appended
        ended = self._timeline.now()
        # Counted only now: before, nobody had checked what the batch says of itself.
        count = read_header(records).record_count if records is not None and len(records) >= HEADER_BYTES else 0
        self._topics.add(topic.name)
        self._partitions.append((index, result.base_offset))
        self._message_count += count
        written = _Written(result.base_offset, count)
        self._child("append", topic.name, index, (began, ended), written)
        if wait is None:
            return
        self._waits += 1
        operation = "sync" if topic.partitions[index].is_sole else "replicate"

        def waited(done: Wait) -> None:
            self._waits -= 1
            failure = None if done.cancelled() else done.exception()
            error = failure.code.name if isinstance(failure, PenstockError) else None
            self._error = self._error or error
            self._child(operation, topic.name, index, (ended, self._timeline.now()), written, error)

        wait.add_done_callback(waited)

    def _refused(self, topic: HostedTopic | PenstockError, index: int, began: float, error: PenstockError) -> None:
        code = ErrorCode(error.code).name
        self._error = self._error or code
        # The name of a topic that is not here is whatever the client made up.
        if not isinstance(topic, PenstockError):
            self._topics.add(topic.name)
            self._child("append", topic.name, index, (began, self._timeline.now()), None, code)

    def _child(
        self,
        operation: str,
        topic: str,
        index: int,
        times: tuple[float, float],
        written: _Written | None,
        error: str | None = None,
    ) -> None:
        own = Own(self._own.trace_id, self._new_id(), self._own.state)
        attributes = attributes_of(
            operation,
            {
                DESTINATION: topic,
                PARTITION: str(index),
                OFFSET: None if written is None else written.base_offset,
                MESSAGE_COUNT: None if written is None else written.message_count,
                ERROR_TYPE: error,
            },
        )
        start_ns, end_ns = self._timeline.ns(times[0]), self._timeline.ns(times[1])
        name = span_name(operation, {topic})
        self._put(Span(name, Kind.INTERNAL, own, self._own, start_ns, end_ns, attributes, error=error))

    def _end(self, *, is_late: bool) -> None:
        """`is_late`: answered before all that it waited for was done."""
        if is_late:
            self._error = self._error or ErrorCode.REQUEST_TIMED_OUT.name
        (index, offset) = self._partitions[0] if len(self._partitions) == 1 else (None, None)
        attributes = attributes_of(
            "produce",
            {
                OPERATION_TYPE: "send",
                CLIENT_ID: shown_client(self._client_id),
                DESTINATION: next(iter(self._topics)) if len(self._topics) == 1 else None,
                PARTITION: None if index is None else str(index),
                OFFSET: offset,
                MESSAGE_COUNT: self._message_count or None,
                ERROR_TYPE: self._error,
            },
        )
        timeline, contexts = self._timeline, self._contexts
        self._put(
            Span(
                span_name("produce", self._topics),
                Kind.SERVER,
                self._own,
                contexts.first,
                timeline.ns(timeline.started),
                timeline.ns(timeline.now()),
                attributes,
                links=contexts.others,
                error=self._error,
            )
        )
