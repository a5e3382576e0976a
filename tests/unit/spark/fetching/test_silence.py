"""What is made of answers without records: whether nothing is there, or nothing was said."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from partition_world import DEADLINE_S, Open, produce, read, transact

from penstock.model import TopicPartition
from penstock.spark.connections import drop_cluster
from penstock.spark.errors import DataLost, Unreachable
from penstock.spark.fetching import OffsetGone, fetch_steps
from penstock.spark.fetching import patience as patience_module
from penstock.spark.fetching.batch_heads import first_offset
from penstock.spark.options import read_options
from penstock.spark.planning import OffsetRange
from penstock.spark.reading import ReadPartition, read_partition
from penstock.testing.embedded import EmbeddedBroker


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits as short as the tests that need many of them."""
    monkeypatch.setattr(patience_module, "PAUSE_MAX_S", 0.02)
    monkeypatch.setattr(fetch_steps, "MAX_WAIT_MS", 10)
    monkeypatch.setattr(fetch_steps, "SILENCE_S", 0.3)


def change_answers(monkeypatch: pytest.MonkeyPatch, change: Callable[[fetch_steps.Answered], fetch_steps.Answered]):
    """A real log keeps its last batch and a real broker is never silent, so the broker's words are changed."""
    parse = fetch_steps.parse_fetch
    monkeypatch.setattr(fetch_steps, "parse_fetch", lambda *told: change(parse(*told)))


@pytest.mark.usefixtures("impatient")
def test_the_end_of_a_log_that_stays_silent_was_compacted_away(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(broker, topic, 10)
    cluster = open_cluster(broker.bootstrap)
    monkeypatch.setattr(fetch_steps.FetchSteps, "_ends", lambda _: (0, 12))
    change_answers(monkeypatch, lambda told: told._replace(high_watermark=12, last_stable=12))
    began = time.monotonic()
    assert [offset for offset, _ in read(cluster, topic, 5, 12)] == list(range(5, 10))
    assert time.monotonic() - began >= fetch_steps.SILENCE_S
    # Before the end there would have to be something behind it that shows the gap.
    with pytest.raises(Unreachable, match="says that offsets up to 11 are readable, and sends none"):
        read(cluster, topic, 5, 11, deadline_s=1.0)


@pytest.mark.usefixtures("impatient")
def test_what_lies_behind_an_open_transaction_proves_that_a_tail_was_compacted_away(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_steps, "SILENCE_S", DEADLINE_S)
    transact(broker, topic, [(1, True), (2, None)])  # 0, marker 1, 2 3 open
    cluster = open_cluster(broker.bootstrap)
    # A fetch from offset 2 on brings nothing committed. As if 2 and 3 lay further back, and a gap before them.
    change_answers(monkeypatch, lambda told: told._replace(last_stable=4, high_watermark=6))
    monkeypatch.setattr(fetch_steps, "first_offset", lambda records: first_offset(records) + 2)
    assert [offset for offset, _ in read(cluster, topic, 0, 4)] == [0]
    # One offset more, and there is something in the range after all.
    change_answers(monkeypatch, lambda told: told._replace(last_stable=5))
    with pytest.raises(Unreachable, match=r"sends none|from offset 4 on, and does not send them"):
        read(cluster, topic, 0, 5, deadline_s=0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "words", [{"is_there": False, "throttle_ms": 1}, {"preferred_replica": 7}, {"throttle_ms": 1}, {}]
)
def test_an_answer_that_says_nothing_is_not_taken_for_the_end(
    broker: EmbeddedBroker, open_cluster: Open, topic: str, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker throttles, sends its client to another replica, or waits for a slow store, without records."""
    produce(broker, topic, 10)
    silences = iter(range(3 * fetch_steps.SILENCES_MAX))

    def late(told: fetch_steps.Answered) -> fetch_steps.Answered:
        return told if next(silences, None) is None else told._replace(records=memoryview(b""), **words)

    change_answers(monkeypatch, late)
    # Of a part, that the end of the log may not be what it waits for.
    assert len(read(open_cluster(broker.bootstrap), topic, 0, 9)) == 9


@pytest.mark.usefixtures("impatient")
def test_records_lost_from_the_end_of_a_log_are_told_as_such(
    broker: EmbeddedBroker, open_cluster: Open, topic: str
) -> None:
    produce(broker, topic, 150)
    with pytest.raises(OffsetGone) as told:
        read(open_cluster(broker.bootstrap), topic, 0, 200, deadline_s=0.3)
    assert (told.value.wanted, told.value.log_start, told.value.end) == (150, 0, 150)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_failing", ["true", "false"])
def test_a_task_goes_on_behind_records_lost_from_the_end_if_it_may(
    broker: EmbeddedBroker, topic: str, is_failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    produce(broker, topic, 150)
    options = read_options(
        {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "failOnDataLoss": is_failing,
            "kafkaConsumer.pollTimeoutMs": "300",
        },
        is_streaming=False,
    )
    rows: list[Any] = []
    task = ReadPartition(OffsetRange(TopicPartition(topic, 0), None, 0, 200))
    told = "ends at offset 150, but offsets up to 199 were planned"
    try:
        if is_failing == "true":
            with pytest.raises(DataLost, match=told):
                rows += read_partition(options, task)
        else:
            rows += read_partition(options, task)
            assert told in caplog.text
            assert sum(batch.num_rows for batch in rows) == 150
    finally:
        drop_cluster(options.connection)
