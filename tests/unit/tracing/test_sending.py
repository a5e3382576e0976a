"""Spans on their way out: a queue with an end, a thread that fails for nobody, a stop that does not wait for ever."""

import logging
import threading
from collections.abc import Iterator, Sequence

import pytest

from penstock.tracing import sending
from penstock.tracing.sending import EXPORT_SPANS_MAX, QUEUE_SPANS_MAX, SpanSender
from penstock.tracing.span import Kind, Own, Span

DEADLINE_S = 20.0


def span(number: int) -> Span:
    return Span(f"span {number}", Kind.INTERNAL, Own(1, number + 1), None, 0, 1, {})


class Collector:
    """Takes spans when it is let; `answer` says what it makes of them."""

    def __init__(self) -> None:
        self.batches: list[list[Span]] = []
        self.answer: bool | Exception = True
        self.is_entered = threading.Event()
        self.may_go_on = threading.Event()
        self.is_closed = threading.Event()

    def export(self, spans: Sequence[Span]) -> bool:
        self.is_entered.set()
        assert self.may_go_on.wait(DEADLINE_S)
        if isinstance(self.answer, Exception):
            raise self.answer
        self.batches.append(list(spans))
        return self.answer

    def close(self) -> None:
        self.is_closed.set()
        self.may_go_on.set()


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def sender(collector: Collector) -> SpanSender:
    return SpanSender(collector, "http://collector")


def test_a_stop_sends_what_is_left_in_order(collector: Collector, sender: SpanSender) -> None:
    spans = [span(number) for number in range(EXPORT_SPANS_MAX + 3)]
    collector.may_go_on.set()
    for each in spans:
        sender.put(each)
    sender.close(DEADLINE_S)
    assert [each for batch in collector.batches for each in batch] == spans
    assert max(len(batch) for batch in collector.batches) <= EXPORT_SPANS_MAX
    assert (sender.delivered, sender.dropped) == (len(spans), 0)
    assert collector.is_closed.is_set()


def test_a_collector_that_hangs_costs_spans_and_no_time(collector: Collector, sender: SpanSender) -> None:
    for number in range(EXPORT_SPANS_MAX):
        sender.put(span(number))
    assert collector.is_entered.wait(DEADLINE_S), "a full batch wakes the thread"
    for number in range(QUEUE_SPANS_MAX + 5):
        sender.put(span(number))  # would never return if it waited: the collector does not go on
    assert sender.dropped == 5
    sender.close(0)
    assert collector.is_closed.is_set(), "what is under way is called off"


def test_the_thread_outlives_what_the_collector_does_and_says_so_once(
    collector: Collector, sender: SpanSender, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, sending.__name__)
    answers: list[bool | Exception] = [False, RuntimeError("a fault of the exporter's"), False, True, True]
    came = threading.Semaphore(0)
    export = collector.export

    def answer_of_the_round(spans: Sequence[Span]) -> bool:
        collector.answer = answers[spans[0].start_ns]
        try:
            return export(spans)
        finally:
            came.release(len(spans))

    monkeypatch.setattr(collector, "export", answer_of_the_round)
    collector.may_go_on.set()
    for turn in range(len(answers)):
        for number in range(EXPORT_SPANS_MAX):
            sender.put(span(number)._replace(start_ns=turn))
        for _ in range(EXPORT_SPANS_MAX):
            assert came.acquire(timeout=DEADLINE_S)
    sender.close(DEADLINE_S)
    assert (sender.delivered, sender.dropped) == (2 * EXPORT_SPANS_MAX, 3 * EXPORT_SPANS_MAX)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "http://collector takes no spans" in caplog.messages[0]


def test_an_abandoned_sender_sends_nothing_more(collector: Collector, sender: SpanSender) -> None:
    for number in range(EXPORT_SPANS_MAX):
        sender.put(span(number))
    assert collector.is_entered.wait(DEADLINE_S)
    sender.put(late := span(1_000))
    sender.abandon()
    sender.close(DEADLINE_S)
    assert all(late not in batch for batch in collector.batches)
