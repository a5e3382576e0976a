"""handlers.producer_ids: ids for producers."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.handlers.transacting import SETTINGS, producer

from penstock.cluster.controller import PRODUCER_IDS_PER_BLOCK
from penstock.cluster.store import Unavailable
from penstock.errors import ErrorCode
from penstock.handlers.producer_ids import ProducerIds, handle_init_producer_id
from penstock.wire.apis import ApiKey

INIT = ApiKey.INIT_PRODUCER_ID

# Error code, producer id, epoch.
Init = Callable[..., Awaitable[tuple[int, int, int]]]


class Blocks:
    """A store of ids that answers when it is told to."""

    def __init__(self, size: int = 2) -> None:
        self._size = size
        self.asked = 0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def allocate(self) -> range:
        self.asked += 1
        first = self.asked * 100
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return range(first, first + self._size)


@pytest.fixture
def init(call_handler: Any) -> Init:
    async def init(ids: ProducerIds, version: int | None = None, **body: Any) -> tuple[int, int, int]:
        answer = await call_handler(handle_init_producer_id, SimpleNamespace(producer_ids=ids), INIT, version, body)
        return int(answer.error_code), answer.producer_id, answer.producer_epoch

    return init


@pytest.mark.parametrize("version", range(6))
async def test_every_idempotent_producer_gets_an_id_of_its_own(init: Init, version: int) -> None:
    ids = ProducerIds(Blocks().allocate)
    answers = [await init(ids, version, transactional_id=None) for _ in range(5)]
    assert answers == [(0, 100, 0), (0, 101, 0), (0, 200, 0), (0, 201, 0), (0, 300, 0)]


async def test_a_producer_that_lost_its_state_gets_a_new_id(init: Init) -> None:
    ids = ProducerIds(Blocks().allocate)
    assert await init(ids, transactional_id=None, producer_id=7, producer_epoch=3) == (0, 100, 0)


async def test_ids_come_from_the_clusters_blocks_and_never_twice(node: Any) -> None:
    here = ProducerIds(node.context.controller.allocate_producer_id_block)
    there = ProducerIds(node.context.controller.allocate_producer_id_block)
    given = [await ids.allocate() for _ in range(PRODUCER_IDS_PER_BLOCK + 1) for ids in (here, there)]
    assert len(set(given)) == len(given)


async def test_no_block_is_fetched_before_it_is_needed() -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    assert blocks.asked == 0
    await ids.allocate()
    await ids.allocate()
    assert blocks.asked == 1


async def test_many_who_ask_at_once_share_a_block() -> None:
    blocks = Blocks(size=50)
    ids = ProducerIds(blocks.allocate)
    blocks.gate.clear()
    waiting = [asyncio.create_task(ids.allocate()) for _ in range(50)]
    await asyncio.sleep(0)
    blocks.gate.set()
    assert sorted(await asyncio.gather(*waiting)) == list(range(100, 150))
    assert blocks.asked == 1


@pytest.mark.parametrize("leaver", [0, 1])
async def test_one_who_hangs_up_takes_nothing_from_the_others(leaver: int) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    blocks.gate.clear()
    waiting = [asyncio.create_task(ids.allocate()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop(leaver).cancel()
    await asyncio.sleep(0)
    blocks.gate.set()
    assert len(set(await asyncio.gather(*waiting))) == 2


async def test_a_store_that_is_away_is_told_to_all_who_wait_and_asked_again_later(init: Init) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.allocate)
    blocks.gate.clear()
    blocks.failure = Unavailable("away")
    waiting = [asyncio.create_task(init(ids, transactional_id=None)) for _ in range(3)]
    await asyncio.sleep(0)
    blocks.gate.set()
    # Never REQUEST_TIMED_OUT, which old clients die of.
    assert await asyncio.gather(*waiting) == [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)] * 3
    assert blocks.asked == 1
    blocks.failure = None
    assert (await init(ids, transactional_id=None))[0] == 0


@pytest.mark.parametrize(
    "body",
    [
        {"transactional_id": ""},
        {"transactional_id": None, "producer_id": 7},
        {"transactional_id": None, "producer_epoch": 7},
    ],
)
async def test_half_an_identity_is_refused(init: Init, body: dict[str, Any]) -> None:
    assert await init(ProducerIds(Blocks().allocate), **body) == (ErrorCode.INVALID_REQUEST, -1, -1)


# Transactional producers


@pytest.fixture
def settings() -> dict[str, str]:
    return SETTINGS


@pytest.mark.parametrize("version", range(6))
async def test_a_transactional_producer_keeps_its_id_and_fences_the_one_before(node: Any, version: int) -> None:
    first = await producer(node, version=version)
    second = await producer(node, version=version)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
    assert (await producer(node, "another", version=version)).producer_id != first.producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_producer_goes_on_with_the_identity_it_has_and_no_other(node: Any, version: int) -> None:
    one = await producer(node)
    identity = {"producer_id": one.producer_id, "producer_epoch": one.epoch}
    assert await one.init(version, **identity) == "NONE"
    assert one.epoch == 1
    # The same again is a retry of what was lost on the way, and is given the same.
    assert await one.init(version, **identity) == "NONE"
    assert one.epoch == 1
    await producer(node)
    # Versions before 4 have no word for a fenced producer.
    fenced = "PRODUCER_FENCED" if version >= 4 else "INVALID_PRODUCER_EPOCH"
    assert await one.init(version, **identity) == fenced
    assert await one.init(version, producer_id=987_654, producer_epoch=0) == fenced


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_transaction_needs_a_time_the_broker_allows(node: Any, version: int, timeout_ms: int) -> None:
    one = await producer(node)
    assert await one.init(version, transaction_timeout=timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"


async def test_who_asks_another_broker_than_the_coordinator_is_told_to_look_for_it(node: Any) -> None:
    one = await producer(node)
    node.context.transactions.resign(node.context.transactions.partition_of("t"))
    for version in range(6):
        assert await one.init(version) == "NOT_COORDINATOR"
