"""Each checker is shown a good history, which it passes, and each kind of bad one, which it must not."""

from cluster_checkers import (
    UNTOLD,
    Commit,
    Leadership,
    Leg,
    Outcome,
    Read,
    StoredBatch,
    Value,
    check_commits,
    check_delivery,
    check_growth,
    check_leaders,
    check_logs,
    check_queue,
    check_replicas,
    check_settled,
    check_transfers,
)

A, B, C = Value(0, 0), Value(0, 1), Value(0, 2)
ACKED = {A: (0, 0), B: (0, 1)}
SENT = {0: 3}
GOOD = [Read(0, 0, A), Read(0, 1, B)]


def queue(final: list[Read], **others: list[Read]) -> list[str]:
    return check_queue(ACKED, SENT, {**others, "final": final}, "final")


def test_a_queue_with_everything_in_its_place_is_sound() -> None:
    assert queue(GOOD, tail=GOOD[:1]) == []


def test_a_record_of_unknown_outcome_may_be_there_or_not() -> None:
    assert queue([*GOOD, Read(0, 2, C)]) == queue(GOOD) == []


def test_a_lost_record_is_seen() -> None:
    assert "acknowledged and lost" in queue(GOOD[:1])[0]


def test_a_doubled_record_is_seen() -> None:
    assert "stored more than once" in queue([*GOOD, Read(0, 2, A)])[0]


def test_a_record_at_another_offset_than_acknowledged_is_seen() -> None:
    assert "not where its producer was told" in queue([Read(0, 0, A), Read(0, 2, B)])[0]


def test_an_acknowledgement_that_does_not_say_where_is_one_all_the_same() -> None:
    untold = {A: (0, UNTOLD)}
    assert check_queue(untold, SENT, {"final": GOOD}, "final") == []
    assert "acknowledged and lost" in check_queue(untold, SENT, {"final": []}, "final")[0]


def test_a_record_nobody_sent_is_seen() -> None:
    assert "read and never sent" in queue([*GOOD, Read(0, 2, Value(7, 0))])[0]
    assert "read and never sent" in queue([*GOOD, Read(0, 2, Value(0, 3))])[0]


def test_disorder_of_a_producer_is_seen() -> None:
    found = check_queue({}, SENT, {"final": [Read(0, 0, B), Read(0, 1, A)]}, "final")
    assert len(found) == 1
    assert "order" in found[0]


def test_one_offset_with_two_values_is_seen() -> None:
    assert "one offset, two values" in queue(GOOD, tail=[Read(0, 1, C)])[0]


def test_a_reader_that_is_sent_back_is_seen() -> None:
    assert "again or backwards" in queue(GOOD, tail=[GOOD[1], GOOD[0]])[0]


TRANSFER = [Leg("t", 2, 0, -5), Leg("t", 2, 1, 5)]


def test_transfers_that_are_whole_or_absent_are_sound() -> None:
    outcomes = {"t": Outcome.COMMITTED, "u": Outcome.UNKNOWN, "a": Outcome.ABORTED}
    assert check_transfers(outcomes, TRANSFER, 0) == []
    assert check_transfers({"t": Outcome.UNKNOWN}, TRANSFER, 0) == []


def test_each_way_to_spoil_a_transfer_is_seen() -> None:
    committed = {"t": Outcome.COMMITTED}
    assert "committed and lost" in check_transfers(committed, [], 0)[0]
    assert "given up and read" in check_transfers({"t": Outcome.ABORTED}, TRANSFER, 0)[0]
    assert "read in part" in check_transfers({"t": Outcome.UNKNOWN}, TRANSFER[:1], -5)[0]
    assert "more than once" in check_transfers(committed, TRANSFER * 2, 0)[0]
    assert "never made" in check_transfers({}, TRANSFER, 0)[0]
    assert "hold 0" in check_transfers(committed, TRANSFER, 6000)[0]


def test_a_record_that_no_member_got_is_seen() -> None:
    assert check_delivery("g", [A], {A, B}) == []
    assert "never delivered to g" in check_delivery("g", [A, B], {A})[0]


def test_a_committed_offset_may_go_back_only_to_a_commit_of_unknown_outcome() -> None:
    attempts = [Commit(0, 5, False), Commit(0, 9, True), Commit(0, 7, True)]
    assert check_commits("g", [(0, 9), (0, 5)], attempts) == []
    assert "went back" in check_commits("g", [(0, 9), (0, 7)], attempts)[0]


def test_a_committed_offset_that_nobody_committed_is_seen() -> None:
    assert "nobody committed" in check_commits("g", [(0, 4)], [Commit(0, 5, True)])[0]


def test_two_leaders_in_one_epoch_are_seen() -> None:
    history = [Leadership("p", 1, 3, 0, (1, 2)), Leadership("p", 2, 3, 1, (1, 2))]
    assert "two leaders" in check_leaders(history)[0]


def test_a_leaderless_while_is_sound_and_epochs_that_fall_are_not() -> None:
    good = [Leadership("p", 1, 3, 0, (1,)), Leadership("p", -1, 4, 1, ()), Leadership("p", 2, 5, 2, (2,))]
    assert check_leaders(good) == []
    assert "did not grow" in check_leaders(good[::-1])[0]
    assert "did not grow" in check_leaders([good[0], good[0]])[0]


def test_a_leader_outside_its_isr_is_seen() -> None:
    assert "outside its ISR" in check_leaders([Leadership("p", 1, 0, 0, (2,))])[0]


def batch(base: int, content: bytes = b"x") -> StoredBatch:
    return StoredBatch(base, base + 1, content)


def test_replicas_may_differ_only_above_the_high_watermark_and_below_a_log_start() -> None:
    assert check_replicas("p", {1: [batch(0), batch(2), batch(4, b"y")], 2: [batch(2), batch(4)]}, 4) == []


def test_replicas_that_differ_end_early_or_have_a_hole_are_seen() -> None:
    assert "differ" in check_replicas("p", {1: [batch(0)], 2: [batch(0, b"y")]}, 2)[0]
    assert "ends at 2" in check_replicas("p", {1: [batch(0), batch(2)], 2: [batch(0)]}, 4)[0]
    assert "goes on at 4" in check_replicas("p", {1: [batch(0), batch(4)], 2: [batch(0), batch(4)]}, 6)[0]


def test_a_transaction_that_hangs_is_seen() -> None:
    assert check_settled({"p": (5, 5)}) == []
    assert "last stable offset" in check_settled({"p": (5, 4)})[0]


def test_a_traceback_is_seen_and_named() -> None:
    assert check_logs({"broker-1": "all is well"}) == []
    text = 'ERROR: bad\nTraceback (most recent call last):\n  File "x", line 1\nKeyError: 7\n'
    assert check_logs({"broker-1": text}) == ["broker-1: 1 × KeyError: 7"]


def test_growth_beyond_what_is_allowed_is_seen() -> None:
    assert check_growth("fds", 10, 15, 5) == []
    assert check_growth("fds", 10, 16, 5) != []
