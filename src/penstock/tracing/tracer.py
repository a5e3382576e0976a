"""Which requests are traced, and their spans: what the rest of the broker knows of tracing.

Made by broker where tracing is switched on. Called by handlers.produce before a request is appended, by handlers.fetch
and replication.fetcher when there is something to tell; all on the loop.
Laws:
- A producer's sampled context is honoured, HONOURED_PER_SECOND_MAX times a second; past that, chance decides as for
  anybody: a client that marks everything as sampled costs no more than that. One that is not sampled is honoured too:
  there is no span.
- Chance is in the trace id, as OpenTelemetry's own sampler has it, so that brokers agree about a trace.
- A fetch has no parent, since consumers send none: its span begins a trace and is linked to those of the records.
"""

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

from penstock.clock import Clock, Rng
from penstock.config import BrokerConfig
from penstock.metrics import BrokerMetrics
from penstock.model import TopicPartition
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, Buffer
from penstock.tracing.exporting import OtlpExporter
from penstock.tracing.looking import LOOKS_MAX, Budget, Contexts, Looker
from penstock.tracing.produce_trace import ProduceTrace
from penstock.tracing.sending import CLOSE_DEADLINE_S, Exporter, SpanSender
from penstock.tracing.span import (
    CLIENT_ID,
    DESTINATION,
    LEADER,
    MESSAGE_COUNT,
    OFFSET,
    OPERATION_TYPE,
    PARTITION,
    Attributes,
    Kind,
    Own,
    Span,
    attributes_of,
    shown_client,
    span_name,
)
from penstock.tracing.timeline import Timeline
from penstock.tracing.trace_context import TraceContext
from penstock.wire.fetch import FetchPartitionResult
from penstock.wire.produce import ProduceRequest

HONOURED_PER_SECOND_MAX = 200
BATCHES_COUNTED_MAX = 1_000  # of one answer; in a larger one the messages are not counted
_ID_LIMIT = 1 << 64
_LENGTH = Struct(">i")
_RECORD_COUNT = Struct(">i")
_LENGTH_AT, _RECORD_COUNT_AT = 8, 57

Given = Sequence[tuple[TopicPartition, FetchPartitionResult]]


def open_tracer(config: BrokerConfig, clock: Clock, rng: Rng, metrics: BrokerMetrics) -> "Tracer":
    """Raises InvalidConfig where OpenTelemetry's packages are missing."""
    endpoint = config.penstock_tracing_endpoint
    exporter = OtlpExporter(endpoint, config.penstock_tracing_service_name, str(config.node_id))
    # Ids are no secrets: they come from a seed, and so in a sixth of the time that the system's chance takes.
    tracer = Tracer(config, clock, Rng(rng.below(_ID_LIMIT)), exporter)
    metrics.trace_spans.read = lambda: tracer.sender.delivered
    metrics.trace_spans_dropped.read = lambda: tracer.sender.dropped
    return tracer


class Tracer:
    def __init__(self, config: BrokerConfig, clock: Clock, rng: Rng, exporter: Exporter) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._looker = Looker(clock)
        self._honoured = Budget(HONOURED_PER_SECOND_MAX, clock)
        self.sender = SpanSender(exporter, config.penstock_tracing_endpoint)

    def produce(self, client_id: str | None, started: float, produce: ProduceRequest) -> ProduceTrace | None:
        """What watches this request; None for one that is not traced."""
        chance = self._rng.below(_ID_LIMIT)
        is_picked = self._is_picked(chance)
        batches = (records for _, _, partitions in produce.topics for _, records in partitions if records is not None)
        contexts = self._looker.look(batches, is_picked=is_picked)
        parent = contexts.first
        if not self._is_traced(parent, is_picked=is_picked):
            return None
        return ProduceTrace(
            self._new_span(parent, chance),
            contexts,
            client_id,
            Timeline(self._clock, started),
            self._new_span_id,
            self.sender.put,
        )

    def fetched(self, client_id: str | None, started: float, given: Given) -> None:
        """A consumer is about to be given these records, all of them some."""
        traced = self._linked(given)
        if traced is not None:
            chance, contexts = traced
            timeline = Timeline(self._clock, started)
            more = {OPERATION_TYPE: "receive", CLIENT_ID: shown_client(client_id)}
            attributes = _given_attributes("fetch", given, more)
            times = (timeline.ns(timeline.started), timeline.ns(timeline.now()))
            name = span_name("fetch", {at.topic for at, _ in given})
            own = self._new_span(None, chance)
            self.sender.put(Span(name, Kind.SERVER, own, None, *times, attributes, links=contexts.all))

    def replicated(self, leader: int, sent: float, answered: float, given: Given) -> None:
        """A follower here asked its leader, was given these records and has written them."""
        traced = self._linked(given)
        if traced is None:
            return
        chance, contexts = traced
        timeline = Timeline(self._clock, sent)
        attributes = _given_attributes("replicate", given, {LEADER: leader})
        # With one producer's records the copy is a part of its trace; with several it can only be linked to them.
        is_one = contexts.first is not None and not contexts.others and contexts.first.is_sampled
        parent = contexts.first if is_one else None
        self.sender.put(
            Span(
                span_name("replicate", {at.topic for at, _ in given}),
                Kind.CLIENT,
                self._new_span(parent, chance),
                parent,
                timeline.ns(timeline.started),
                timeline.ns(timeline.now()),
                attributes,
                links=() if is_one else contexts.all,
                # Before it, the leader may just have had nothing to give.
                events=(("fetched", timeline.ns(answered)),),
            )
        )

    def close(self) -> None:
        """Send what is left; blocks, within a deadline."""
        self.sender.close(CLOSE_DEADLINE_S)

    def abandon(self) -> None:
        self.sender.abandon()

    def _linked(self, given: Given) -> tuple[int, Contexts] | None:
        """Chance and the contexts of the records, if giving them is traced."""
        if not given:
            return None
        chance = self._rng.below(_ID_LIMIT)
        is_picked = self._is_picked(chance)
        contexts = self._looker.look(_first_batches(given), is_picked=is_picked)
        is_sampled = contexts.first is not None and contexts.first.is_sampled
        if is_picked or (is_sampled and self._honoured.take()):
            return chance, contexts
        return None

    def _is_picked(self, chance: int) -> bool:
        return chance < self._config.penstock_tracing_sample_ratio * _ID_LIMIT

    def _is_traced(self, parent: TraceContext | None, *, is_picked: bool) -> bool:
        if parent is None:
            return is_picked
        if not parent.is_sampled:
            return False
        return self._honoured.take() or self._is_picked(parent.trace_id % _ID_LIMIT)

    def _new_span(self, parent: TraceContext | None, chance: int) -> Own:
        if parent is not None:
            return Own(parent.trace_id, self._new_span_id(), parent.state)
        # No id may be zero; that the lower half is chance itself is what the ratio decided by.
        return Own((self._rng.below(_ID_LIMIT - 1) + 1) * _ID_LIMIT + chance, self._new_span_id())

    def _new_span_id(self) -> int:
        return self._rng.below(_ID_LIMIT - 1) + 1


def _batches(records: Buffer | list[Buffer] | tuple[Buffer, ...]) -> Iterator[memoryview]:
    """The whole batches that lie here one behind the other."""
    assert isinstance(records, memoryview)  # what a log gives, and what a leader sent
    at, size = 0, len(records)
    while size - at >= HEADER_BYTES:
        end = at + _LENGTH.unpack_from(records, at + _LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
        if not at + HEADER_BYTES <= end <= size:
            return
        yield records[at:end]
        at = end


def _first_batches(given: Given) -> Iterator[memoryview]:
    """The first of every partition before the second of any: so many are looked into, and no more."""
    walks = [_batches(result.records) for _, result in given[:LOOKS_MAX]]
    while walks:
        for walk in tuple(walks):
            batch = next(walk, None)
            if batch is None:
                walks.remove(walk)
            else:
                yield batch


def _given_attributes(operation: str, given: Given, more: Mapping[str, str | int | None]) -> Attributes:
    topics = {at.topic for at, _ in given}
    is_one = len(given) == 1
    at, result = given[0]
    first = next(_batches(result.records), None)
    return attributes_of(
        operation,
        {
            DESTINATION: at.topic if len(topics) == 1 else None,
            PARTITION: str(at.partition) if is_one else None,
            OFFSET: int.from_bytes(first[:8], "big", signed=True) if is_one and first is not None else None,
            MESSAGE_COUNT: _message_count(given),
            **more,
        },
    )


def _message_count(given: Given) -> int | None:
    count = batches = 0
    for _, result in given:
        for batch in _batches(result.records):
            batches += 1
            if batches > BATCHES_COUNTED_MAX:
                return None
            count += _RECORD_COUNT.unpack_from(batch, _RECORD_COUNT_AT)[0]
    return count
