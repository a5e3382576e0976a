"""Which requests are traced, and what their spans say."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.clock import Rng
from penstock.config import BrokerConfig
from penstock.errors import InvalidRecord, NotEnoughReplicasAfterAppend, PenstockError
from penstock.model import TopicPartition
from penstock.records.record import Record, encode_batch
from penstock.tracing.span import Kind, Own, Span
from penstock.tracing.trace_context import TraceContext
from penstock.tracing.tracer import BATCHES_COUNTED_MAX, HONOURED_PER_SECOND_MAX, Tracer
from penstock.wire.fetch import FetchPartitionResult
from penstock.wire.produce import ProducePartitionResult, ProduceRequest

START_MS = 1_700_000_000_000
TRACE = 0xABCDEF << 64 | 0xFFFF_FFFF_FFFF_FFFF  # chance alone would never pick it


class Clock:
    """Moved by hand; both times together."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def now_ms(self) -> int:
        return START_MS + int((self.at - 100) * 1000)


class Chance(Rng):
    def __init__(self) -> None:
        super().__init__(seed=1)
        self.next: list[int] = []

    def below(self, limit: int) -> int:
        return self.next.pop(0) if self.next else super().below(limit)


class Nowhere:
    """The edge: spans are read off the queue, nothing is sent."""

    def export(self, spans: Sequence[Span]) -> bool:
        raise AssertionError("not in these tests")

    def close(self) -> None: ...


class Desk:
    """A tracer whose spans lie open."""

    def __init__(self, ratio: float) -> None:
        self.clock, self.chance = Clock(), Chance()
        self.config = BrokerConfig({"penstock.tracing.sample.ratio": str(ratio)})
        self.tracer = Tracer(self.config, self.clock, self.chance, Nowhere())
        self.spans: list[Span] = []
        self.tracer.sender.put = self.spans.append

    def traces(self, *batches: memoryview) -> bool:
        return self.tracer.produce("c", self.clock.at, request_of(*batches)) is not None

    def span(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found


@pytest.fixture
def desk() -> Iterator[Callable[[float], Desk]]:
    made: list[Desk] = []

    def make(ratio: float) -> Desk:
        made.append(Desk(ratio))
        return made[-1]

    yield make
    for each in made:
        each.tracer.abandon()


def batch_of(span: int | None = None, *, sampled: bool = True, count: int = 1, offset: int = 0) -> memoryview:
    parent = b"00-%032x-%016x-%02x" % (TRACE, span or 0, sampled)
    headers = () if span is None else (("traceparent", parent), ("tracestate", b"a=1"))
    records = [Record(offset + number, 0, None, b"secret", headers if not number else ()) for number in range(count)]
    return memoryview(encode_batch(records))


def request_of(*batches: memoryview | None) -> ProduceRequest:
    return ProduceRequest(None, -1, 1000, [("t", None, list(enumerate(batches)))])


def topic(name: str = "t", *, is_sole: bool = False) -> Any:
    return SimpleNamespace(name=name, partitions={index: SimpleNamespace(is_sole=is_sole) for index in range(3)})


def given(*records: memoryview, topic: str = "t") -> list[tuple[TopicPartition, FetchPartitionResult]]:
    return [
        (TopicPartition(topic, index), FetchPartitionResult(index, 0, 9, records=each))
        for index, each in enumerate(records)
    ]


def test_chance_picks_by_the_trace_id_and_the_ratio_may_change_while_it_runs(desk: Callable[[float], Desk]) -> None:
    at = desk(0.25)
    for chance, is_traced in ((0, True), ((1 << 62) - 1, True), (1 << 62, False), ((1 << 64) - 1, False)):
        at.chance.next = [chance]
        assert at.traces(batch_of()) is is_traced, chance
    at.config.change_dynamic({"penstock.tracing.sample.ratio": "1"}, {})
    at.chance.next = [(1 << 64) - 1]
    assert at.traces(batch_of())
    at.config.change_dynamic({"penstock.tracing.sample.ratio": "0"}, {})
    at.chance.next = [0]
    assert not at.traces(batch_of())


def test_the_producers_decision_is_honoured_up_to_a_limit_a_second(desk: Callable[[float], Desk]) -> None:
    at = desk(0.5)
    assert not any(at.traces(batch_of(5, sampled=False)) for _ in range(50)), "who does not sample is not sampled"
    sampled = [batch_of(5)]
    assert [at.traces(*sampled) for _ in range(HONOURED_PER_SECOND_MAX + 1)] == [True] * HONOURED_PER_SECOND_MAX + [
        False
    ]
    at.clock.at += 1
    assert at.traces(*sampled)


def test_a_produce_request_has_a_span_and_each_partition_its_own(desk: Callable[[float], Desk]) -> None:
    at = desk(0)
    batches = [batch_of(5, count=3), batch_of(6), None]
    produce = request_of(*batches)
    trace = at.tracer.produce("c" * 500, 99.5, produce)
    assert trace is not None
    loop = asyncio.new_event_loop()
    waits: list[asyncio.Future[None] | None] = [loop.create_future(), None]

    def append(context: None, topic: Any, index: int, records: Any, produce: Any, now_ms: int) -> Any:
        at.clock.at += 1
        if records is None:
            raise InvalidRecord("without records")
        return ProducePartitionResult(index, 0, 40 + index), waits[index]

    around = trace.around(append)
    for index, records in enumerate(batches[:2]):
        assert around(None, topic(), index, records, produce, 0)[1] is waits[index], "what is waited for stays the same"
    with pytest.raises(InvalidRecord):
        around(None, topic(), 2, None, produce, 0)
    answer: asyncio.Future[bytes] = loop.create_future()
    answer.add_done_callback(trace.answered_later)
    assert [span.name for span in at.spans] == ["append t"] * 3
    at.clock.at += 10
    assert waits[0] is not None
    waits[0].set_result(None)
    answer.set_result(b"")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()

    root, replicate = at.span("produce t"), at.span("replicate t")
    assert (root.kind, root.own.trace_id, root.own.state) == (Kind.SERVER, TRACE, "a=1")
    assert root.parent == TraceContext(TRACE, 5, is_sampled=True, state="a=1")
    assert root.links == (TraceContext(TRACE, 6, is_sampled=True, state="a=1"),)
    assert root.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "produce",
        "messaging.operation.type": "send",
        "messaging.client.id": "c" * 100,
        "messaging.destination.name": "t",
        "messaging.batch.message_count": 4,
        "error.type": "INVALID_RECORD",
    }
    assert root.start_ns == (START_MS - 500) * 1_000_000
    assert root.end_ns - root.start_ns == 13_500_000_000
    first, second, refused = (span for span in at.spans if span.name == "append t")
    assert {span.parent for span in (first, second, refused, replicate)} == {root.own}
    assert len({span.own for span in at.spans}) == len(at.spans)
    assert first.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "append",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 40,
        "messaging.batch.message_count": 3,
    }
    assert (refused.error, refused.attributes["error.type"]) == ("INVALID_RECORD", "INVALID_RECORD")
    assert (first.end_ns, replicate.start_ns) == (first.start_ns + 1_000_000_000, first.end_ns)
    assert replicate.end_ns - replicate.start_ns == 12_000_000_000
    assert "secret" not in repr(at.spans)


@pytest.mark.parametrize(
    ("failure", "is_sole", "name", "error"),
    [
        (None, True, "sync t", None),
        (NotEnoughReplicasAfterAppend("gone"), False, "replicate t", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
        ("not in time", False, None, "REQUEST_TIMED_OUT"),
    ],
)
def test_what_became_of_the_wait_is_told(
    desk: Callable[[float], Desk],
    failure: PenstockError | str | None,
    is_sole: bool,
    name: str | None,
    error: str | None,
) -> None:
    at = desk(1)
    loop = asyncio.new_event_loop()
    wait: asyncio.Future[None] = loop.create_future()
    answer: asyncio.Future[bytes] = loop.create_future()
    produce = request_of(batch_of())
    trace = at.tracer.produce(None, 100.0, produce)
    assert trace is not None
    append = trace.around(lambda *_: (ProducePartitionResult(0, 0, 7), wait))
    append(None, topic(is_sole=is_sole), 0, produce.topics[0][2][0][1], produce, 0)
    answer.add_done_callback(trace.answered_later)
    if isinstance(failure, PenstockError):
        wait.set_exception(failure)
    elif failure is None:
        wait.set_result(None)
    answer.set_result(b"")
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert [span.name for span in at.spans] == ["append t", *([name] if name else []), "produce t"]
    root = at.span("produce t")
    assert (root.error, root.parent) == (error, None)
    assert (root.attributes["messaging.destination.partition.id"], root.attributes["messaging.kafka.offset"]) == (
        "0",
        7,
    )


def test_a_fetch_is_linked_to_the_traces_of_its_records(desk: Callable[[float], Desk]) -> None:
    at = desk(0)
    at.tracer.fetched("c", 99.0, given(batch_of(), batch_of(7, sampled=False)))
    at.tracer.fetched("c", 99.0, [])
    assert at.spans == []
    two = memoryview(bytes(batch_of(8, count=2, offset=30)) + bytes(batch_of(9, offset=32)) + b"cut short" * 20)
    at.tracer.fetched("c", 99.0, given(two))
    (span,) = at.spans
    assert (span.name, span.kind, span.parent) == ("fetch t", Kind.SERVER, None)
    assert [link.span_id for link in span.links] == [8, 9]
    assert span.own.trace_id != TRACE
    assert span.end_ns - span.start_ns == 1_000_000_000
    assert span.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "fetch",
        "messaging.operation.type": "receive",
        "messaging.client.id": "c",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 30,
        "messaging.batch.message_count": 3,
    }
    many = memoryview(bytes(batch_of(8)) * (BATCHES_COUNTED_MAX + 1))
    at.tracer.fetched(None, 99.0, [*given(many), *given(batch_of(), topic="u")])
    assert at.spans[1].name == "fetch"
    assert at.spans[1].attributes.keys() == {
        "messaging.system",
        "messaging.operation.name",
        "messaging.operation.type",
    }


def test_fetches_share_the_limit_a_second(desk: Callable[[float], Desk]) -> None:
    at = desk(0)
    for _ in range(HONOURED_PER_SECOND_MAX + 1):
        at.tracer.fetched("c", 99.0, given(batch_of(5)))
    assert len(at.spans) == HONOURED_PER_SECOND_MAX
    assert not at.traces(batch_of(5))


def test_a_followers_copy_is_part_of_the_one_trace_it_copies(desk: Callable[[float], Desk]) -> None:
    at = desk(0)
    at.tracer.replicated(3, 98.0, 99.0, given(batch_of(8)))
    at.tracer.replicated(3, 98.0, 99.0, given(batch_of(8), batch_of(9)))
    one, several = at.spans
    assert (one.name, one.kind) == ("replicate t", Kind.CLIENT)
    assert (one.own.trace_id, one.links) == (TRACE, ())
    assert one.parent == TraceContext(TRACE, 8, is_sampled=True, state="a=1")
    assert one.attributes["penstock.leader.id"] == 3
    assert one.events == (("fetched", (START_MS - 1000) * 1_000_000),)
    assert (several.parent, [link.span_id for link in several.links]) == (None, [8, 9])


def test_no_id_is_zero(desk: Callable[[float], Desk]) -> None:
    at = desk(1)
    at.chance.next = [0] * 10
    at.tracer.fetched("c", 99.0, given(batch_of()))
    assert at.spans[0].own == Own(1 << 64, 1)
