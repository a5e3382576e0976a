"""Offsets of open transactions beside those of one group that are committed: which counts, and which is stable."""

from uuid import UUID

from penstock.groups.classic_group import ClassicGroup
from penstock.groups.group_records import CommittedOffset, OffsetRecord
from penstock.groups.offsets import GroupOffsets
from penstock.model import NO_TOPIC_ID

FIRST = UUID("8f0f5f62-7a54-4d3e-9c1f-0d3a3b2c1d0e")
SECOND = UUID("1c2d3e4f-7a54-4d3e-9c1f-0d3a3b2c1d0e")
KEY = ("orders", 0)


def record(offset: int, partition: int = 0, topic_id: UUID = NO_TOPIC_ID) -> OffsetRecord:
    return OffsetRecord("g", "orders", partition, CommittedOffset(offset, -1, "", 0, topic_id=topic_id))


def shown(offsets: GroupOffsets, partition: int = 0) -> int | None:
    committed = offsets.get("orders", NO_TOPIC_ID, partition)
    return None if committed is None else committed.offset


def test_a_pending_offset_is_hidden_until_its_transaction_is_committed() -> None:
    offsets = GroupOffsets()
    offsets.apply(record(1))
    offsets.apply_in_transaction(7, record(2))
    assert (shown(offsets), offsets.is_unstable(*KEY)) == (1, True)
    offsets.end_transaction(7, is_commit=True)
    assert (shown(offsets), offsets.is_unstable(*KEY)) == (2, False)


def test_an_aborted_transaction_leaves_what_was_committed_before() -> None:
    offsets = GroupOffsets()
    offsets.apply(record(1))
    offsets.apply_in_transaction(7, record(2))
    offsets.apply_in_transaction(7, record(3, partition=1))
    offsets.end_transaction(7, is_commit=False)
    assert [shown(offsets), shown(offsets, 1)] == [1, None]
    assert not offsets.is_unstable("orders", 1)


def test_a_transaction_commits_the_last_of_what_it_was_given() -> None:
    offsets = GroupOffsets()
    for number in (3, 4, 2):
        offsets.apply_in_transaction(7, record(number))
    offsets.end_transaction(7, is_commit=True)
    assert shown(offsets) == 2


def test_a_commit_later_in_the_log_outlives_the_end_of_an_earlier_transaction() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1))
    offsets.apply(record(2))
    assert offsets.is_unstable(*KEY)
    offsets.end_transaction(7, is_commit=True)
    assert (shown(offsets), offsets.is_unstable(*KEY)) == (2, False)


def test_a_transaction_that_commits_again_after_it_was_overtaken_counts_again() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1))
    offsets.apply(record(2))
    offsets.apply_in_transaction(7, record(3))
    offsets.end_transaction(7, is_commit=True)
    assert shown(offsets) == 3


def test_of_two_transactions_the_later_in_the_log_counts_whichever_ends_first() -> None:
    for order in ((7, 8), (8, 7)):
        offsets = GroupOffsets()
        offsets.apply_in_transaction(7, record(1))
        offsets.apply_in_transaction(8, record(2))
        offsets.end_transaction(order[0], is_commit=True)
        assert (shown(offsets), offsets.is_unstable(*KEY)) == ({7: 1, 8: 2}[order[0]], True)
        offsets.end_transaction(order[1], is_commit=True)
        assert (shown(offsets), offsets.is_unstable(*KEY)) == (2, False)


def test_an_aborted_transaction_does_not_overtake_an_earlier_one() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1))
    offsets.apply_in_transaction(8, record(2))
    offsets.end_transaction(8, is_commit=False)
    offsets.end_transaction(7, is_commit=True)
    assert shown(offsets) == 1


def test_the_order_is_that_of_each_producers_last_word() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1))
    offsets.apply_in_transaction(8, record(2))
    offsets.apply_in_transaction(7, record(3))
    offsets.end_transaction(7, is_commit=True)
    offsets.end_transaction(8, is_commit=True)
    assert shown(offsets) == 3


def test_a_deletion_takes_the_pending_offsets_with_it() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1))
    offsets.apply_in_transaction(7, record(2, partition=1))
    offsets.apply_in_transaction(8, record(3))
    offsets.apply(OffsetRecord("g", *KEY, None))
    assert not offsets.is_unstable(*KEY)
    offsets.end_transaction(8, is_commit=True)
    offsets.end_transaction(7, is_commit=True)
    assert [shown(offsets), shown(offsets, 1)] == [None, 2]


def test_a_transaction_ends_once() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1))
    offsets.end_transaction(7, is_commit=True)
    offsets.apply(record(2))
    offsets.end_transaction(7, is_commit=True)
    assert shown(offsets) == 2


def test_what_is_sent_in_a_transaction_is_unstable_until_it_is_refused() -> None:
    offsets = GroupOffsets()
    sent = [record(1), record(2, partition=1)]
    offsets.sent(sent, is_transactional=True)
    offsets.sent(sent[:1], is_transactional=True)
    assert offsets.known() == {KEY, ("orders", 1)}
    offsets.refused(sent[:1], is_transactional=True)
    assert offsets.is_unstable(*KEY)
    offsets.refused(sent, is_transactional=True)
    assert not offsets
    assert not offsets.is_unstable(*KEY)


def test_what_is_sent_in_a_transaction_lands_when_it_is_applied() -> None:
    offsets = GroupOffsets()
    offsets.sent([record(1)], is_transactional=True)
    offsets.apply_in_transaction(7, record(1))
    offsets.end_transaction(7, is_commit=False)
    assert not offsets


def test_an_offset_does_not_expire_while_a_transaction_may_replace_it() -> None:
    offsets = GroupOffsets()
    offsets.apply(record(1))
    offsets.apply_in_transaction(7, record(2))
    assert offsets.expired(ClassicGroup("g"), 1_000, 10**9) == []
    offsets.end_transaction(7, is_commit=False)
    assert offsets.expired(ClassicGroup("g"), 1_000, 10**9) == [KEY]


def test_pending_offsets_are_of_their_own_topic_too() -> None:
    offsets = GroupOffsets()
    offsets.apply_in_transaction(7, record(1, topic_id=FIRST))
    offsets.apply_in_transaction(7, record(2, partition=1, topic_id=SECOND))
    assert offsets.of_topic("orders", FIRST) == [KEY]
    assert offsets.of_topic("payments", FIRST) == []
