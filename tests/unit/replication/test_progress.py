"""What a leader makes of what its followers say: who counts, how far all are, who lags, who is back."""

import pytest

from penstock.cluster.image import PartitionState
from penstock.model import Offset
from penstock.replication.progress import RETURNING_S, Progress

ME, NEAR, FAR = 1, 2, 3
STATE = PartitionState(ME, 5, (ME, NEAR, FAR), (ME, NEAR, FAR), 7)
LIFE = 100  # a broker epoch


def led(isr: tuple[int, ...] = (ME, NEAR, FAR), epoch_start: int = 0, elr: tuple[int, ...] = ()) -> Progress:
    state = PartitionState(ME, 5, isr, (ME, NEAR, FAR), 7, elr)
    return Progress(ME, state, Offset(epoch_start), 0.0)


def hear(progress: Progress, node: int, offset: int, *, life: int = LIFE, end: int = 50, now: float = 1.0) -> bool:
    return progress.heard(node, life, Offset(offset), Offset(0), Offset(end), now)


def committed(progress: Progress, own_end: int = 50, high_watermark: int = 0, now: float = 1.0) -> int:
    return progress.committed_end(Offset(own_end), Offset(high_watermark), now)


def test_what_all_in_sync_have_is_committed() -> None:
    progress = led()
    hear(progress, NEAR, 40)
    assert committed(progress) == 0, "nothing is known of the third yet"
    hear(progress, FAR, 30)
    assert committed(progress) == 30
    hear(progress, FAR, 60)
    assert committed(progress) == 40


def test_what_is_committed_stays_so_when_less_is_heard() -> None:
    progress = led()
    hear(progress, NEAR, 40)
    hear(progress, FAR, 40)
    hear(progress, FAR, 10)
    assert committed(progress, high_watermark=40) == 40


def test_one_out_of_sync_does_not_hold_up_the_others() -> None:
    progress = led(isr=(ME, NEAR))
    hear(progress, NEAR, 45)
    assert committed(progress) == 45
    hear(progress, FAR, 20)
    assert committed(progress, high_watermark=30) == 45, "it has less than is committed"


def test_one_that_is_about_to_be_in_sync_is_waited_for_while_it_asks() -> None:
    progress = led(isr=(ME,))
    hear(progress, FAR, 40, now=1.0)
    assert committed(progress, high_watermark=35, now=1.0) == 40
    assert committed(progress, high_watermark=35, now=1.0 + 2 * RETURNING_S) == 50


def test_one_that_was_just_dropped_is_not_taken_for_one_that_returns() -> None:
    progress = led()
    hear(progress, NEAR, 50)
    hear(progress, FAR, 40)
    progress.adopt(PartitionState(ME, 5, (ME, NEAR), (ME, NEAR, FAR), 8), 1.0)
    assert committed(progress, high_watermark=40, now=1.0) == 50


def test_one_that_is_stopping_is_not_taken_for_one_that_returns_though_it_still_asks() -> None:
    progress = led(isr=(ME, NEAR))
    hear(progress, NEAR, 50)
    hear(progress, FAR, 40)
    assert committed(progress, high_watermark=40) == 40
    progress.followers[FAR].is_leaving = True
    assert committed(progress, high_watermark=40) == 50


def test_one_we_asked_to_add_counts_before_the_store_has_said_yes() -> None:
    progress = led(isr=(ME, NEAR))
    hear(progress, NEAR, 50)
    hear(progress, FAR, 45)
    progress.adding = frozenset({FAR})
    assert progress.maximal_in_sync == {ME, NEAR, FAR}
    assert committed(progress, high_watermark=40, now=99.0) == 45
    progress.adopt(PartitionState(ME, 5, (ME, NEAR), (ME, NEAR, FAR), 8), 99.0)
    assert not progress.adding


@pytest.mark.parametrize(
    ("isr", "elr", "min_insync", "expected"),
    [
        ((ME, NEAR), (), 2, True),
        ((ME,), (), 2, False),
        ((ME,), (), 1, True),
        ((ME,), (NEAR,), 1, False),  # the store still counts on NEAR to have all that is committed
        ((ME, NEAR, FAR), (), 9, True),  # more than there are replicas is as many as there are
    ],
)
def test_nothing_is_committed_by_too_few(
    isr: tuple[int, ...], elr: tuple[int, ...], min_insync: int, expected: bool
) -> None:
    assert led(isr, elr=elr).may_commit(min_insync) is expected


def test_a_former_life_of_a_follower_is_not_heard() -> None:
    progress = led()
    assert hear(progress, NEAR, 20, life=101)
    assert not hear(progress, NEAR, 40, life=100)
    assert progress.followers[NEAR].next_offset == 20
    assert hear(progress, NEAR, 0, life=102), "a new life may have less"
    assert progress.followers[NEAR].next_offset == 0


def test_who_is_no_replica_is_not_heard() -> None:
    assert not hear(led(), 9, 40)


def test_who_has_not_had_all_for_too_long_lags() -> None:
    progress = led()
    hear(progress, NEAR, 50, end=50, now=10.0)
    hear(progress, FAR, 20, end=50, now=10.0)
    assert progress.lagging(Offset(50), 5.0, 9.0) == {FAR}, "never had all since this leader began"
    assert progress.lagging(Offset(50), 5.0, 11.0) == {FAR}
    assert progress.lagging(Offset(60), 5.0, 14.0) == {FAR}
    assert progress.lagging(Offset(60), 5.0, 15.5) == {NEAR, FAR}
    assert progress.lagging(Offset(20), 5.0, 99.0) == frozenset(), "who has all does not lag, however quiet it is"


def test_under_load_it_is_enough_to_have_what_there_was_at_the_last_fetch() -> None:
    progress = led()
    hear(progress, NEAR, 10, end=50, now=1.0)
    hear(progress, NEAR, 50, end=90, now=4.0)
    assert progress.followers[NEAR].caught_up_at == 1.0
    hear(progress, NEAR, 90, end=130, now=7.0)
    assert progress.followers[NEAR].caught_up_at == 4.0


def test_who_is_back_has_all_that_is_committed_and_all_from_before_this_epoch() -> None:
    progress = led(isr=(ME, NEAR), epoch_start=30)
    assert not progress.is_back(FAR, Offset(10))
    hear(progress, FAR, 29)
    assert not progress.is_back(FAR, Offset(10))
    hear(progress, FAR, 30)
    assert progress.is_back(FAR, Offset(10))
    assert not progress.is_back(FAR, Offset(31))
    assert not progress.is_back(NEAR, Offset(0)), "it never left"
    progress.adding = frozenset({FAR})
    assert not progress.is_back(FAR, Offset(10)), "already asked for"


def test_deleted_records_are_gone_once_all_in_sync_let_them_go() -> None:
    progress = led(isr=(ME, NEAR))
    assert progress.low_watermark(Offset(20)) == -1
    progress.heard(NEAR, LIFE, Offset(50), Offset(15), Offset(50), 1.0)
    assert progress.low_watermark(Offset(20)) == 15
    progress.heard(NEAR, LIFE, Offset(50), Offset(20), Offset(50), 1.0)
    assert progress.low_watermark(Offset(20)) == 20
