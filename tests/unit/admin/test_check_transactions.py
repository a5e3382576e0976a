"""What doctor says of transactions that keep records from readers of committed data."""

from dataclasses import replace

from penstock.admin.check_transactions import GRACE_MS, Pinned, judge_transactions
from penstock.admin.finding import Report
from penstock.admin.hanging import HeldTransaction, Standing
from penstock.admin.transaction_views import OpenTransaction, TransactionView
from penstock.model import TopicPartition

NOW = 1_700_000_000_000
ORDERS = TopicPartition("Orders", 0)
BILLS = TopicPartition("bills", 4)
PINNED = {ORDERS: Pinned(10, 25), BILLS: Pinned(100, 101)}
PAY = TransactionView("pay-1", 2, 7, 3, "Ongoing", 60_000, NOW - 5000, frozenset({ORDERS, BILLS}))


def held(
    at: TopicPartition = ORDERS,
    start: int = 10,
    standing: Standing = Standing.ONGOING,
    view: TransactionView | None = PAY,
) -> HeldTransaction:
    return HeldTransaction(OpenTransaction(at, start, 7, 3, -1, NOW - 7000), standing, view)


def judged(*seen: HeldTransaction, pinned: dict[TopicPartition, Pinned] = PINNED) -> Report:
    report = Report()
    judge_transactions(pinned, seen, NOW, report)
    assert all(finding.why and finding.todo for finding in report.findings)
    return report


def test_a_transaction_within_its_time_out_is_a_note_with_who_and_since_when_and_what_to_do() -> None:
    report = judged(held())
    assert report.findings == []
    (note,) = report.notes
    for part in (
        "pay-1",
        "producer 7",
        "epoch 3",
        "Orders-0",
        "since 2023-11-14T22:13:15.000Z",
        "do not see 15 records",
        "times out (2023-11-14T22:14:15.000Z)",
        "starting a new producer",
    ):
        assert part in note


def test_one_transaction_over_many_partitions_is_one_note() -> None:
    report = judged(held(), held(BILLS, 100))
    (note,) = report.notes
    assert "Orders-0, bills-4" in note
    assert "do not see 16 records" in note


def test_a_hanging_transaction_is_a_finding_with_the_command_that_ends_it() -> None:
    (finding,) = judged(held(standing=Standing.HANGING, view=None)).findings
    assert "Orders-0" in finding.what
    assert "producer 7 (epoch 3) hangs" in finding.what
    assert "its last write was 2023-11-14T22:13:13.000Z" in finding.what
    assert "stand at offset 10 and do not see 15 records" in finding.why
    assert "penstock transactions abort-hanging --topic Orders --partition 0 --start-offset 10" in finding.todo


def test_a_hanging_transaction_behind_another_is_found_before_it_pins() -> None:
    report = judged(held(), held(start=12, standing=Standing.HANGING, view=None))
    (finding,) = report.findings
    assert "Another transaction pins the partition now" in finding.why
    assert len(report.notes) == 1


def test_only_the_first_transaction_of_a_partition_pins_it() -> None:
    report = judged(held(view=PAY), held(start=15, view=replace(PAY, transactional_id="late")))
    (note,) = report.notes
    assert "pay-1" in note


def test_a_transaction_that_outlived_its_time_out_is_a_finding_about_its_coordinator() -> None:
    overdue = replace(PAY, since_ms=NOW - 60_000 - GRACE_MS - 1)
    (finding,) = judged(held(view=overdue)).findings
    assert "longer than its time-out of 60000 ms" in finding.what
    assert "broker 2" in finding.todo
    assert judged(held(view=replace(PAY, since_ms=NOW - 60_000 - GRACE_MS))).findings == []


def test_markers_that_never_get_written_are_a_finding_too() -> None:
    stuck = replace(PAY, state="PrepareCommit", since_ms=NOW - 60_000 - GRACE_MS - 1)
    (finding,) = judged(held(view=stuck, standing=Standing.ENDING)).findings
    assert "not all its markers are written" in finding.what
    fresh = replace(PAY, state="PrepareCommit")
    assert judged(held(view=fresh, standing=Standing.ENDING)).findings == []


def test_nothing_is_said_of_what_ended_while_it_was_looked_at() -> None:
    report = judged()
    assert report.findings == []
    assert report.notes == []


def test_a_transaction_over_very_many_partitions_names_only_some() -> None:
    many = {TopicPartition("t", number): Pinned(0, 1) for number in range(50)}
    (note,) = judged(*(held(at, 0) for at in many), pinned=many).notes
    assert "and 40 more" in note
    assert "do not see 50 records" in note
