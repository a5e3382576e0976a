"""handlers.fetch for committed readers: nothing undecided, the exact list of what was aborted, woken by markers."""

import asyncio
from typing import Any

import pytest
from tests.unit.handlers.test_fetch import BY_NAME, PATIENT_MS, VERSIONS, about, at, decode, fetch, partitions, start
from tests.unit.log.making import committed_values, make_batch

from penstock.disk import RealFile
from penstock.records.markers import ControlType, Marker

COMMITTED = 1


class Topic:
    """One partition that transactions are written to."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.partition = node.partition("orders")
        self.sequences: dict[int, int] = {}

    def send(self, producer: int, value: str) -> int:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        now_ms = self.node.context.clock.now_ms()
        view, header = make_batch(value, timestamp=now_ms, producer=producer, sequence=sequence, is_transactional=True)
        self.partition.append(view, header, now_ms)
        return header.size

    def plain(self, value: str) -> int:
        now_ms = self.node.context.clock.now_ms()
        view, header = make_batch(value, timestamp=now_ms)
        self.partition.append(view, header, now_ms)
        return header.size

    def end(self, producer: int, *, is_abort: bool = False) -> None:
        marker = Marker(ControlType.ABORT if is_abort else ControlType.COMMIT, 0)
        self.partition.append_marker(marker, producer, 0, self.node.context.clock.now_ms())


@pytest.fixture
async def orders(node: Any) -> Topic:
    await node.create("orders")
    return Topic(node)


async def read(orders: Topic, offset: int = 0, size_max: int = 1 << 20, isolation: int = COMMITTED) -> Any:
    (result,) = partitions(await fetch(orders.node, at("orders", 0, offset, size_max), isolation_level=isolation))
    return result


def told(result: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in result.aborted_transactions]


def values(result: Any, offset: int = 0) -> list[str]:
    return committed_values(memoryview(result.records or b""), offset, told(result))


@pytest.fixture(params=["cached", "from disk"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "from disk":
        monkeypatch.setattr(RealFile, "read_cached", lambda *_: None)


@pytest.mark.usefixtures("source")
async def test_committed_readers_see_nothing_of_or_behind_an_open_transaction(orders: Topic) -> None:
    orders.plain("a")
    orders.send(7, "b")
    orders.plain("c")
    result = await read(orders)
    assert (values(result), result.high_watermark, result.last_stable_offset) == (["a"], 3, 1)
    everything = await read(orders, isolation=0)
    assert everything.aborted_transactions is None
    assert committed_values(memoryview(everything.records), 0, []) == ["a", "b", "c"]
    orders.end(7)
    assert values(await read(orders)) == ["a", "b", "c"]


@pytest.mark.usefixtures("source")
async def test_they_are_told_of_each_abort_that_reaches_into_the_answer_and_of_no_other(orders: Topic) -> None:
    first = orders.send(7, "aborted")
    orders.plain("a")
    orders.end(7, is_abort=True)
    orders.send(7, "b")
    orders.end(7)
    orders.send(8, "aborted too")
    orders.end(8, is_abort=True)
    assert told(await read(orders)) == [(7, 0), (8, 5)]
    assert values(await read(orders)) == ["a", "b"]
    assert told(await read(orders, size_max=first)) == [(7, 0)], "of the whole batches only"
    assert told(await read(orders, 2, size_max=first)) == [(7, 0)], "its marker is in the answer"
    assert told(await read(orders, 3, size_max=first)) == []
    assert told(await read(orders, 6)) == [(8, 5)]
    assert told(await read(orders, 7)) == []


async def test_a_batch_that_is_cut_short_adds_nothing_to_the_list(orders: Topic) -> None:
    size = orders.plain("a")
    orders.send(7, "aborted")
    orders.end(7, is_abort=True)
    result = await read(orders, size_max=size + 70)
    assert len(result.records) > size
    assert told(result) == []


async def test_every_version_carries_the_list(orders: Topic) -> None:
    orders.send(7, "aborted")
    orders.end(7, is_abort=True)
    for version in VERSIONS:
        topic = orders.node.context.image.topics["orders"].id if version >= 13 else "orders"
        (result,) = partitions(await fetch(orders.node, at(topic), version=version, isolation_level=COMMITTED))
        assert told(result) == [(7, 0)]


async def test_a_reader_at_the_end_of_what_is_decided_gets_nothing_and_no_error(orders: Topic) -> None:
    orders.send(7, "open")
    for offset in (0, 1):
        result = await read(orders, offset)
        assert (result.error_code, result.records or b"", told(result)) == (0, b"", [])


def wait(orders: Topic, **limits: Any) -> Any:
    body = about(at("orders"), max_wait=PATIENT_MS, isolation_level=COMMITTED, **limits)
    return start(orders.node, body)


async def test_a_waiting_committed_reader_is_woken_by_the_marker_and_not_by_the_records(orders: Topic) -> None:
    answer = wait(orders)
    orders.send(7, "a")
    orders.plain("b")
    await asyncio.sleep(0)
    assert not answer.done()
    assert orders.partition.waiting
    orders.end(7)
    (result,) = partitions(decode(await answer, BY_NAME))
    assert values(result) == ["a", "b"]
    assert not orders.partition.waiting


async def test_what_is_appended_in_the_moment_the_wait_begins_is_not_missed(orders: Topic) -> None:
    answer = wait(orders)
    orders.plain("a")  # before the loop has turned once
    (result,) = partitions(decode(await answer, BY_NAME))
    assert values(result) == ["a"]


async def test_a_reader_who_hangs_up_before_the_wait_began_leaves_nothing_behind(orders: Topic) -> None:
    answer = wait(orders)
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)
    assert not orders.partition.waiting
