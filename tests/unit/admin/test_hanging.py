"""When a transaction counts as hanging, and which one a person means."""

import pytest

from penstock.admin.failures import CommandFailed
from penstock.admin.hanging import HeldTransaction, Standing, choose_hanging, compare
from penstock.admin.transaction_views import OpenTransaction, TransactionView
from penstock.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def opened(at: TopicPartition = T0, start: int = 10, producer: int = 7, epoch: int = 3) -> OpenTransaction:
    return OpenTransaction(at, start, producer, epoch, -1, 1_700_000_000_000)


def view(state: str, *partitions: TopicPartition, producer: int = 7) -> TransactionView:
    return TransactionView("pay", 1, producer, 3, state, 60_000, 1_700_000_000_000, frozenset(partitions))


def standing(state: str, *partitions: TopicPartition) -> Standing:
    (held,) = compare([opened()], [view(state, *partitions)], [opened()])
    return held.standing


def test_a_transaction_whose_producer_no_coordinator_knows_hangs() -> None:
    (held,) = compare([opened()], [view("Ongoing", T0, producer=8)], [opened()])
    assert held.standing is Standing.HANGING
    assert held.coordinated is None


def test_a_transaction_the_coordinator_has_the_partition_of_is_left_to_it() -> None:
    assert standing("Ongoing", T0, T1) is Standing.ONGOING
    assert standing("PrepareCommit", T0) is Standing.ENDING
    assert standing("PrepareAbort", T0) is Standing.ENDING
    assert standing("PrepareEpochFence", T0) is Standing.ENDING


def test_a_transaction_without_this_partition_will_never_end_what_is_open_in_it() -> None:
    assert standing("Ongoing", T1) is Standing.HANGING
    assert standing("PrepareCommit", T1) is Standing.HANGING
    assert standing("Empty") is Standing.HANGING
    assert standing("CompleteAbort", T0) is Standing.HANGING


def test_what_ended_while_the_coordinator_was_asked_is_not_called_hanging() -> None:
    assert compare([opened()], [view("CompleteCommit")], []) == []


def test_the_next_transaction_of_the_same_producer_is_not_taken_for_the_one_before() -> None:
    assert compare([opened(start=10)], [view("CompleteCommit")], [opened(start=20)]) == []


def test_what_is_held_comes_in_the_order_of_partitions_and_offsets() -> None:
    seen = [opened(T1, 5), opened(T0, 20, 8), opened(T0, 10, 9)]
    assert [(held.open.at, held.open.start_offset) for held in compare(seen, [], seen)] == [(T0, 10), (T0, 20), (T1, 5)]


HANGING = HeldTransaction(opened(start=10, producer=7), Standing.HANGING, None)
OTHER = HeldTransaction(opened(start=20, producer=8), Standing.HANGING, None)
ALIVE = HeldTransaction(opened(start=30, producer=9), Standing.ONGOING, view("Ongoing", T0, producer=9))


def refusal(held: list[HeldTransaction], start: int | None = None, producer: int | None = None) -> str:
    with pytest.raises(CommandFailed) as failed:
        choose_hanging(held, T0, start, producer)
    return str(failed.value)


def test_the_only_hanging_transaction_is_meant_when_nobody_says_which() -> None:
    assert choose_hanging([HANGING, ALIVE], T0, None, None) is HANGING


def test_one_of_several_is_chosen_by_where_it_starts_or_by_its_producer() -> None:
    assert choose_hanging([HANGING, OTHER, ALIVE], T0, 20, None) is OTHER
    assert choose_hanging([HANGING, OTHER, ALIVE], T0, None, 7) is HANGING
    assert "--start-offset" in refusal([HANGING, OTHER])


def test_a_transaction_that_its_coordinator_will_end_is_refused_with_when_and_how() -> None:
    said = refusal([ALIVE])
    assert "does not hang" in said
    assert "pay" in said
    assert "2023-11-14T22:14:20.000Z" in said
    assert "does not hang" in refusal([HANGING, ALIVE], start=30)


def test_what_is_not_there_is_refused_with_what_is() -> None:
    assert "None is open there" in refusal([])
    assert "from offset 10 of t-0" in refusal([HANGING], start=11)
