"""Version 1 of transactions, where a late request is known by its connection: the rule, and whom it must not touch."""

import asyncio

import pytest

from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.transactions.coordinator import ProducerGrant, TransactionCoordinator

TIMEOUT_MS = 60_000
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
OK = ErrorCode.NONE
LATE = ErrorCode.CONCURRENT_TRANSACTIONS
FIRST, SECOND, THIRD = 7, 8, 9  # connections, in the order in which they were opened


class Speaker:
    """A producer that says on which connection it speaks."""

    def __init__(self, coordinator: TransactionCoordinator, grant: ProducerGrant) -> None:
        self._coordinator = coordinator
        self._producer = (grant.producer_id, grant.producer_epoch)

    async def add(self, connection: int | None, at: TopicPartition = A) -> ErrorCode:
        return await self._coordinator.add_partitions("pay", *self._producer, {at}, connection)

    async def end(self, connection: int | None, *, is_commit: bool = True) -> ErrorCode:
        ended = await self._coordinator.end(
            "pay", *self._producer, is_commit=is_commit, is_version_2=False, connection=connection
        )
        return ended.error


@pytest.fixture
async def speaker(coordinator: TransactionCoordinator) -> Speaker:
    return await new_speaker(coordinator)


async def new_speaker(coordinator: TransactionCoordinator) -> Speaker:
    """The next epoch; what an earlier one has left open is aborted first."""
    while True:
        grant = await coordinator.init_producer_id("pay", TIMEOUT_MS)
        if grant.error is OK:
            return Speaker(coordinator, grant)
        await asyncio.sleep(3)


@pytest.mark.parametrize("is_commit", [True, False])
async def test_an_end_on_a_connection_its_producer_has_left_ends_nothing(
    coordinator: TransactionCoordinator, speaker: Speaker, is_commit: bool
) -> None:
    await speaker.add(FIRST)
    assert await speaker.end(SECOND, is_commit=is_commit) is OK
    assert await speaker.add(SECOND) is OK
    assert await speaker.end(FIRST, is_commit=is_commit) is LATE
    assert coordinator.describe("pay").state == "Ongoing"
    assert await speaker.end(SECOND, is_commit=not is_commit) is OK


async def test_an_end_may_come_on_a_newer_connection_than_all_before_it(speaker: Speaker) -> None:
    await speaker.add(FIRST)
    await speaker.add(SECOND, B)
    assert await speaker.end(THIRD) is OK


async def test_a_late_addition_does_not_make_its_connection_the_newest(speaker: Speaker) -> None:
    await speaker.add(SECOND)
    assert await speaker.add(FIRST, B) is LATE
    assert await speaker.end(FIRST) is LATE
    assert await speaker.end(SECOND) is OK


async def test_a_late_addition_opens_no_transaction(coordinator: TransactionCoordinator, speaker: Speaker) -> None:
    await speaker.add(SECOND)
    assert await speaker.end(SECOND) is OK
    assert await speaker.add(FIRST) is LATE
    assert coordinator.describe("pay").state != "Ongoing"


async def test_a_retry_of_an_addition_counts_though_there_is_nothing_to_write(speaker: Speaker) -> None:
    await speaker.add(FIRST)
    await speaker.add(SECOND)
    assert await speaker.end(FIRST) is LATE


async def test_the_next_addition_counts_while_the_markers_of_the_transaction_before_go_out(speaker: Speaker) -> None:
    await speaker.add(FIRST)
    assert await speaker.end(FIRST) is OK
    adding = asyncio.ensure_future(speaker.add(SECOND))
    await asyncio.sleep(0)
    assert not adding.done()
    assert await speaker.end(FIRST) is LATE
    assert await adding is OK


async def test_a_producer_that_was_fenced_cannot_make_its_successor_late(
    coordinator: TransactionCoordinator, speaker: Speaker
) -> None:
    successor = await new_speaker(coordinator)
    assert await speaker.add(THIRD) is ErrorCode.PRODUCER_FENCED
    await successor.add(FIRST)
    assert await successor.end(FIRST) is OK


async def test_a_new_producer_begins_with_the_connection_it_has(
    coordinator: TransactionCoordinator, speaker: Speaker
) -> None:
    await speaker.add(THIRD)
    successor = await new_speaker(coordinator)
    await successor.add(FIRST)
    assert await successor.end(FIRST) is OK


async def test_what_brokers_add_says_nothing_of_the_producers_connection(speaker: Speaker) -> None:
    await speaker.add(None)
    assert await speaker.end(FIRST) is OK
