"""What two looks at a group tell about why it does not move."""

from dataclasses import replace

from penstock.admin.check_groups import judge, needs_second_look
from penstock.admin.finding import Report
from penstock.admin.group_facts import GroupFacts, Rebalance
from penstock.admin.group_lag import GroupView, Member, PartitionLag
from penstock.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ANNA = Member("m-1", "anna", "10.0.0.1", None, (T0, T1))
TOPICS = {"t": 2}


def lag(at: TopicPartition, committed: int | None, end: int | None, owner: Member | None = ANNA) -> PartitionLag:
    return PartitionLag(at, committed, 0, end, owner, None)


STEADY = GroupView("g", "stable", "classic", "range", None, (ANNA,), (lag(T0, 10, 10), lag(T1, 10, 10)))


def findings(before: GroupView, after: GroupView, topics: dict[str, int] = TOPICS) -> list[str]:
    report = Report()
    judge(before, after, topics, 6.0, report)
    assert all(finding.why and finding.todo for finding in report.findings)
    return [finding.what for finding in report.findings]


def test_a_group_at_the_end_of_its_topics_is_well() -> None:
    report = Report()
    judge(STEADY, STEADY, TOPICS, 6.0, report)
    assert report.findings == []
    assert report.sound == ["group g: stable, 1 members, lag 0"]
    assert not needs_second_look(STEADY)


def test_a_group_nobody_has_heard_of() -> None:
    gone = GroupView("g", "dead", "unknown", "", None, (), ())
    assert findings(gone, gone) == ["group g does not exist"]


def test_a_rebalance_is_stuck_only_if_it_is_seen_twice() -> None:
    waiting = replace(STEADY, state="preparing rebalancing")
    assert needs_second_look(waiting)
    assert findings(STEADY, waiting) == []
    (found,) = findings(waiting, replace(STEADY, state="completing rebalancing"))
    assert "rebalancing for 6 s" in found
    assert "anna on 10.0.0.1" in found
    assert findings(waiting, STEADY) == []


def test_messages_wait_and_nobody_is_there() -> None:
    empty = replace(STEADY, state="empty", members=(), partitions=(lag(T0, 4, 10, None),))
    assert not needs_second_look(empty)
    assert findings(empty, empty) == ["group g has no members, and 6 messages wait"]
    idle = replace(empty, partitions=(lag(T0, 10, 10, None),))
    assert findings(idle, idle) == []


def test_a_group_that_shows_how_far_a_spark_query_is_needs_no_members() -> None:
    waits = replace(STEADY, group="spark-daily", state="empty", members=(), partitions=(lag(T0, 4, 10, None),))
    moved = replace(waits, partitions=(lag(T0, 6, 13, None),))
    done = replace(waits, partitions=(lag(T0, 10, 10, None),))
    assert needs_second_look(waits), "whether it moves shows only later"
    assert not needs_second_look(done)
    for before, after, told in (
        (waits, waits, "6 messages wait and it has not moved for 6 s"),
        (waits, moved, "it moves, 7 messages wait"),
        (done, done, "nothing waits"),
    ):
        report = Report()
        judge(before, after, TOPICS, 6.0, report)
        assert report.findings == []
        (note,) = report.notes
        assert note.startswith("group spark-daily shows how far a Spark query is, and has no members; ")
        assert told in note
    # What retention took from it is still said.
    gone = replace(waits, partitions=(PartitionLag(T0, 5, 50, 60, None, None),))
    assert findings(gone, gone) == ["group spark-daily: t-0 is committed at 5, but starts at 50"]
    # And one that has members is a group as any other.
    joined = replace(STEADY, group="spark-daily", partitions=(lag(T0, 4, 10), lag(T1, 10, 10)))
    assert "has committed nothing" in findings(joined, joined)[0]


def test_retention_that_ran_past_the_consumer() -> None:
    late = PartitionLag(T0, 5, 50, 60, ANNA, None)
    view = replace(STEADY, partitions=(late, lag(T1, 10, 10)))
    assert late.lag == 10
    (found, *_) = findings(view, view)
    assert found == "group g: t-0 is committed at 5, but starts at 50"


def test_a_commit_past_the_end() -> None:
    view = replace(STEADY, partitions=(lag(T0, 20, 10), lag(T1, 10, 10)))
    assert findings(view, view) == ["group g: t-0 is committed at 20, but ends at 10"]


def test_a_topic_that_is_gone() -> None:
    gone = PartitionLag(TopicPartition("old", 0), 3, None, None, None, "unknown topic")
    view = replace(STEADY, partitions=(*STEADY.partitions, gone))
    assert findings(view, view) == ["group g reads topic old, which does not exist"]


def test_a_partition_that_does_not_answer() -> None:
    broken = PartitionLag(T0, 3, None, None, ANNA, "storage failed")
    view = replace(STEADY, partitions=(broken, lag(T1, 10, 10)))
    assert findings(view, view) == ["group g: the end of t-0 cannot be asked (storage failed)"]


def test_partitions_nobody_owns() -> None:
    assert findings(STEADY, STEADY, {"t": 4}) == ["group g: nobody owns partition 2, 3 of t"]


def test_a_topic_no_member_reads_any_more() -> None:
    other = lag(TopicPartition("u", 0), 1, 5, None)
    view = replace(STEADY, partitions=(*STEADY.partitions, other))
    assert findings(view, view, {"t": 2, "u": 1}) == ["group g has members, but none reads u, where 4 messages wait"]


def test_a_member_that_commits_nothing_while_messages_wait() -> None:
    before = replace(STEADY, partitions=(lag(T0, 4, 10), lag(T1, 4, 10)))
    after = replace(STEADY, partitions=(lag(T0, 4, 12), lag(T1, 9, 10)))
    assert needs_second_look(before)
    (found,) = findings(before, after)
    assert found == "group g: anna on 10.0.0.1 has committed nothing for 6 s on t-0, where 8 messages wait"


def test_a_lag_that_grows_although_the_group_reads() -> None:
    before = replace(STEADY, partitions=(lag(T0, 4, 10), lag(T1, 10, 10)))
    after = replace(STEADY, partitions=(lag(T0, 8, 30), lag(T1, 10, 10)))
    assert findings(before, after) == ["group g: the lag grows, by 16 to 22 in 6 s"]
    shrinking = replace(STEADY, partitions=(lag(T0, 9, 11), lag(T1, 10, 10)))
    assert findings(before, shrinking) == []


def test_more_members_than_partitions_is_only_a_note() -> None:
    spare = Member("m-2", "bert", "10.0.0.2", "static-1", ())
    view = replace(STEADY, members=(ANNA, spare))
    report = Report()
    judge(view, view, TOPICS, 6.0, report)
    assert report.findings == []
    assert "static-1 on 10.0.0.2 has nothing to read" in report.notes[0]


# Groups of the consumer protocol

BERT = Member("m-2", "bert", "10.0.0.2", None, (), (T1,))
MOVING = replace(
    STEADY,
    kind="consumer",
    state="reconciling",
    members=(replace(ANNA, target=(T0,)), BERT),
    facts=GroupFacts(7, 7, Rebalance("2026-01-01T00:00:00+00:00", "member m-2 joined")),
)


def test_a_member_that_gives_nothing_back_is_named_once_it_is_seen_twice() -> None:
    assert needs_second_look(MOVING)
    assert findings(STEADY, MOVING) == []
    assert findings(MOVING, MOVING) == ["group g: anna on 10.0.0.1 has not given back t-1 for 6 s or more"]


def test_a_new_rebalance_begins_the_time_anew() -> None:
    report = Report()
    judge(MOVING, replace(MOVING, facts=replace(MOVING.facts, epoch=8)), TOPICS, 6.0, report)
    assert report.findings == []
    assert report.notes == ["group g has just begun to rebalance (member m-2 joined)"]


def test_a_rebalance_in_which_nobody_holds_anything_back_still_shows_its_cause() -> None:
    slow = replace(MOVING, members=(replace(ANNA, partitions=(T0,), target=(T0,)), BERT))
    assert findings(slow, slow) == ["group g has been rebalancing for 6 s or more (member m-2 joined)"]
    assert findings(slow, replace(slow, state="assigning")) == findings(slow, slow)


def test_members_that_read_on_while_others_are_moved_are_judged_for_it() -> None:
    before = replace(MOVING, partitions=(lag(T0, 4, 10),))
    after = replace(MOVING, members=(replace(ANNA, target=(T0, T1)), BERT), partitions=(lag(T0, 4, 12),))
    assert any("has committed nothing for 6 s on t-0" in found for found in findings(before, after))


def test_what_a_member_is_to_give_back_is_what_its_target_lacks() -> None:
    assert ANNA.to_give_back == ()
    assert replace(ANNA, target=(T1,)).to_give_back == (T0,)
    assert BERT.to_give_back == ()
