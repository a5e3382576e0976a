"""Writes of a transaction whose coordinator is another broker: asked over the wire, and never believed for too long."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.unit.handlers.peering import OtherBroker, other_broker
from tests.unit.handlers.transacting import SETTINGS, outcomes, produce, producer, start_produce, until

from penstock.handlers import transactions
from penstock.handlers.answers import made
from penstock.model import TRANSACTION_STATE_TOPIC
from penstock.records.markers import ControlType, Marker

# Each as the first and the last of those who say a thing the same way; all versions have their turn with a coordinator
# here, in test_transactional_produce.
OLD = [3, 10, 11]
NEW = [12, 13]
EVERY = OLD + NEW
SCHEDULES = 12


@pytest.fixture
def settings() -> dict[str, str]:
    return {**SETTINGS, "add.partitions.to.txn.retry.backoff.max.ms": "0"}


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("orders", 3)
    return node


@pytest.fixture
async def elsewhere(orders: Any) -> AsyncIterator[OtherBroker]:
    """Coordinates all transactions, as `orders` sees it."""
    async with other_broker(orders) as other:
        other.lead(TRANSACTION_STATE_TOPIC)
        yield other


def written(node: Any, index: int = 0) -> int:
    return node.partition("orders", index).log.next_offset


def is_open(node: Any, index: int = 0, topic: str = "orders") -> bool:
    log = node.partition(topic, index).log
    return log.producers.first_unstable(log.next_offset) is not None


async def finish(answer: Any, version: int) -> list[str]:
    return outcomes(await made(answer), version)


@pytest.mark.parametrize("version", OLD)
async def test_a_batch_of_an_old_client_needs_a_partition_that_was_added_there(
    orders: Any, elsewhere: OtherBroker, version: int
) -> None:
    one = await producer(orders)
    assert await one.produce(version=version) == ("TRANSACTION_ABORTABLE" if version >= 11 else "INVALID_TXN_STATE")
    assert written(orders) == 0
    await one.add(("orders", 0))
    assert [await one.produce(version=version) for _ in range(3)] == ["NONE"] * 3
    assert written(orders) == 3
    # What continues a transaction that the log has seen begin is not asked for again.
    assert len(elsewhere.asked) == 2
    assert all(transaction.verify_only for asked in elsewhere.asked for transaction in asked.transactions)


@pytest.mark.parametrize("version", NEW)
async def test_a_batch_of_a_new_client_adds_its_partition_there(
    orders: Any, elsewhere: OtherBroker, version: int
) -> None:
    one = await producer(orders)
    for is_commit in (True, False, True):
        assert [await one.produce("orders", index, version) for index in (0, 2, 0)] == ["NONE"] * 3
        (topic,) = (await one.description()).topics
        assert (topic.topic, topic.partitions) == ("orders", (0, 2))
        assert await one.end(is_commit, 5) == "NONE"
        await one.settled()
    assert not is_open(orders)


@pytest.mark.parametrize("version", EVERY)
async def test_the_connection_takes_nothing_more_until_the_answer_is_there(
    orders: Any, elsewhere: OtherBroker, version: int
) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    elsewhere.held = []
    answer = start_produce(orders, version, [("orders", 0, one.batch())], transactional_id="t")
    await elsewhere.holds(1)
    assert orders.connection.holds_back_the_next
    assert written(orders) == 0
    elsewhere.release()
    assert await finish(answer, version) == ["NONE"]
    assert not orders.connection.holds_back_the_next


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", OLD)
async def test_an_answer_that_a_marker_overtook_opens_nothing(
    orders: Any, elsewhere: OtherBroker, version: int, is_commit: bool
) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    elsewhere.held = []
    answer = start_produce(orders, version, [("orders", 0, one.batch())], transactional_id="t")
    await elsewhere.holds(1)
    assert await one.end(is_commit) == "NONE"
    await one.settled()
    elsewhere.release()
    # Not known to be wrong, only not known to be right any more: whoever comes again hears the truth.
    assert await finish(answer, version) == ["NOT_ENOUGH_REPLICAS"]
    assert not is_open(orders)
    assert written(orders) == 1, "the marker"
    assert await one.produce(version=version) == ("TRANSACTION_ABORTABLE" if version >= 11 else "INVALID_TXN_STATE")


async def test_an_answer_for_a_leadership_that_is_over_counts_no_more(orders: Any, elsewhere: OtherBroker) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    elsewhere.held = []
    answer = start_produce(orders, 9, [("orders", 0, one.batch())], transactional_id="t")
    await elsewhere.holds(1)
    orders.partition("orders").leader_epoch += 1
    elsewhere.release()
    assert await finish(answer, 9) == ["NOT_ENOUGH_REPLICAS"]
    assert await one.produce() == "NONE"


@pytest.mark.parametrize("is_elsewhere", [True, False])
async def test_a_coordinator_whose_successor_has_written_markers_is_not_believed(
    orders: Any, elsewhere: OtherBroker, is_elsewhere: bool
) -> None:
    if not is_elsewhere:
        elsewhere.resign(TRANSACTION_STATE_TOPIC)
    one = await producer(orders)
    await one.add(("orders", 0))
    now_ms = orders.context.clock.now_ms()
    later = Marker(ControlType.ABORT, coordinator_epoch=7)
    orders.partition("orders").append_marker(later, one.producer_id, one.epoch, now_ms)
    assert await one.produce() == "NOT_ENOUGH_REPLICAS"
    assert not is_open(orders)


@pytest.mark.parametrize("version", EVERY)
async def test_while_no_coordinator_can_be_reached_producers_try_again(
    orders: Any, elsewhere: OtherBroker, version: int
) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    await elsewhere.close()
    assert await one.produce(version=version) == "NOT_ENOUGH_REPLICAS"
    elsewhere.resign(TRANSACTION_STATE_TOPIC, leader=-1)
    assert await one.produce(version=version) == "NOT_ENOUGH_REPLICAS"
    elsewhere.resign(TRANSACTION_STATE_TOPIC)
    assert await one.produce(version=version) == "NONE"


@pytest.mark.parametrize("version", EVERY)
async def test_a_broker_that_is_no_longer_the_coordinator_is_not_taken_for_one(
    orders: Any, elsewhere: OtherBroker, version: int
) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    for index in range(2):
        orders.context.transactions.resign(index)
    assert await one.produce(version=version) == "NOT_ENOUGH_REPLICAS"
    assert written(orders) == 0


@pytest.mark.parametrize("version", NEW)
async def test_a_coordinator_that_has_not_heard_of_a_partition_yet_is_no_reason_to_abort(
    orders: Any, elsewhere: OtherBroker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await producer(orders)
    batches = [("orders", index, one.batch("orders", index)) for index in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(transactions, "_exists", lambda _, at: at.partition != 1)
        assert await produce(orders, version, batches, transactional_id="t") == [
            "NOT_ENOUGH_REPLICAS",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
    assert await produce(orders, version, batches, transactional_id="t") == ["NONE", "NONE"]


async def test_producers_that_ask_at_the_same_time_share_a_request(orders: Any, elsewhere: OtherBroker) -> None:
    several = [await producer(orders, f"t{number}") for number in range(4)]
    for one in several:
        await one.add(("orders", 0))
    codes = await asyncio.gather(
        *(produce(orders, 9, [("orders", 0, one.batch())], transactional_id=one.transactional_id) for one in several)
    )
    assert codes == [["NONE"]] * 4
    (asked,) = elsewhere.asked
    assert {transaction.transactional_id for transaction in asked.transactions} == {"t0", "t1", "t2", "t3"}


# Offsets


async def test_offsets_of_a_group_need_their_transaction_there(orders: Any, elsewhere: OtherBroker) -> None:
    one = await producer(orders)
    assert await _loaded(one, 3) == "INVALID_TXN_STATE"
    await one.add_offsets()
    assert await one.commit_offsets(5, 3) == "NONE"
    assert await one.end(True) == "NONE"
    await one.settled()
    assert orders.context.groups.committed_offsets("g")[0][2].offset == 5


async def test_offsets_of_a_new_client_join_the_transaction_there(orders: Any, elsewhere: OtherBroker) -> None:
    one = await producer(orders)
    assert await _loaded(one, 5) == "NONE"
    assert await one.end(True, 5) == "NONE"
    await one.settled()
    assert orders.context.groups.committed_offsets("g")[0][2].offset == 1


async def test_offsets_whose_answer_a_marker_overtook_are_not_left_pending(orders: Any, elsewhere: OtherBroker) -> None:
    one = await producer(orders)
    assert await _loaded(one, 3) == "INVALID_TXN_STATE"
    await one.add_offsets()
    elsewhere.held = []
    committing = asyncio.ensure_future(one.commit_offsets(5, 3))
    await elsewhere.holds(1)
    assert await one.end(False) == "NONE"
    await one.settled()
    elsewhere.release()
    assert await committing == "COORDINATOR_LOAD_IN_PROGRESS"
    assert not orders.context.groups.is_unstable("g", "orders", 0)


async def test_offsets_wait_while_the_coordinator_of_the_transaction_is_away(
    orders: Any, elsewhere: OtherBroker
) -> None:
    one = await producer(orders)
    assert await _loaded(one, 3) == "INVALID_TXN_STATE"
    await one.add_offsets()
    await elsewhere.close()
    assert await one.commit_offsets(5, 3) == "COORDINATOR_LOAD_IN_PROGRESS"
    elsewhere.resign(TRANSACTION_STATE_TOPIC, leader=-1)
    assert await one.commit_offsets(5, 3) == "COORDINATOR_LOAD_IN_PROGRESS"


async def _loaded(one: Any, version: int) -> str:
    """The code of a commit once the group's partition is loaded."""
    code = ""

    async def is_loaded() -> bool:
        nonlocal code
        code = await one.commit_offsets(1, version)
        return code not in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")

    await until(is_loaded)
    return code


# Any order of things


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_late_nothing_stays_open_that_was_ended(
    orders: Any, elsewhere: OtherBroker, seed: int
) -> None:
    """Produces whose answers are held for a while, among ends of their transactions (TRAPS P6)."""
    chance = random.Random(seed)
    for number in range(SCHEDULES):
        await _run_schedule(orders, elsewhere, f"t{number}", chance)


async def _run_schedule(orders: Any, elsewhere: OtherBroker, transactional_id: str, chance: random.Random) -> None:
    one = await producer(orders, transactional_id)
    is_new = chance.random() < 0.3
    late: list[tuple[Any, int]] = []
    for _ in range(12):
        match chance.choice(("add", "produce", "produce", "hold", "release", "end")):
            case "add" if not is_new:
                await one.add(("orders", chance.randrange(2)))
            case "hold" if elsewhere.held is None:
                elsewhere.held = []
            case "release":
                elsewhere.release()
            case "end":
                await one.end(chance.random() < 0.5, 5 if is_new else 3)
                await one.settled()
            case "produce":
                version = chance.choice(NEW if is_new else OLD)
                index = chance.randrange(2)
                batches = [("orders", index, one.batch("orders", index))]
                late.append((start_produce(orders, version, batches, transactional_id=transactional_id), version))
                # As far as it gets: its question is on its way, or its answer is held.
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
            case _:
                pass
    elsewhere.release()
    for answer, version in late:
        await finish(answer, version)
    await one.settled()
    ongoing: set[int] = set()
    if await one.state() == "Ongoing":
        ongoing = {index for topic in (await one.description()).topics for index in topic.partitions}
    assert {index for index in range(3) if is_open(orders, index)} <= ongoing
    await one.end(True, 5 if is_new else 3)
    await one.settled()
    assert not any(is_open(orders, index) for index in range(3))
