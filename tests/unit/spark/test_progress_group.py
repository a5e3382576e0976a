"""Progress committed to a group: what, how often, under which name, and never at the query's expense."""

import threading
from collections.abc import Mapping

import pytest

from penstock.model import TopicPartition
from penstock.spark import progress_group
from penstock.spark.offsets import Position
from penstock.spark.progress_group import ProgressGroup, announce
from penstock.spark.query_name import query_label

A0 = TopicPartition("a", 0)


class Groups:
    """The cluster's groups, at the world's edge."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, dict[TopicPartition, int], str]] = []
        self.failures = 0
        self.changed = threading.Condition()

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        with self.changed:
            if self.failures:
                self.failures -= 1
                raise RuntimeError("coordinator not available")
            self.commits.append((group, dict(offsets), metadata))
            self.changed.notify_all()

    def find(self, prefix: str, metadata: str) -> str | None:
        found = [group for group, _, said in self.commits if group.startswith(prefix) and said == metadata]
        return found[0] if found else None

    def close(self) -> None:
        pass


@pytest.fixture
def groups() -> Groups:
    return Groups()


def at(offset: int, query: str = "token") -> Position:
    return Position({A0: offset}, query=query)


def test_what_is_told_is_committed_to_the_group_that_is_named(groups: Groups):
    progress = ProgressGroup(lambda: groups, "mine")
    progress.told(at(5))
    assert progress.settle()
    assert groups.commits == [("mine", {A0: 5}, "token")]
    assert not progress.must_announce


def test_of_many_positions_the_last_one_counts(groups: Groups):
    progress = ProgressGroup(lambda: groups, "mine")
    for offset in range(200):
        progress.told(at(offset))
    assert progress.settle()
    assert groups.commits[-1] == ("mine", {A0: 199}, "token")
    assert len(groups.commits) <= 3


def test_the_group_is_found_by_the_token_that_a_task_committed(groups: Groups):
    progress = ProgressGroup(lambda: groups, None)
    progress.told(at(5))
    assert progress.must_announce
    assert not progress.settle(), "no task can have announced it yet"
    announce(groups, "other", A0, 0, "another token").join()
    announce(groups, "daily", A0, 5, "token").join()
    progress.announced("token")
    progress.told(at(9))
    assert progress.settle()
    assert groups.commits[1:] == [("spark-daily", {A0: 5}, "token"), ("spark-daily", {A0: 9}, "token")]
    assert not progress.must_announce


def test_a_query_that_got_another_name_leaves_its_old_group_alone(groups: Groups):
    groups.commit("spark-old-name", {A0: 5}, "token")
    progress = ProgressGroup(lambda: groups, None)
    progress.may_search()
    progress.told(at(6))
    assert progress.settle()
    assert groups.commits[-1] == ("spark-old-name", {A0: 6}, "token"), "no task has run that would know better"
    assert progress.must_announce
    progress.announced("this run's")
    announce(groups, "new-name", A0, 6, "this run's").join()
    progress.told(at(9))
    assert progress.settle()
    assert groups.commits[-1] == ("spark-new-name", {A0: 9}, "token")
    assert not progress.must_announce


def test_a_commit_that_is_on_its_way_arrives_before_the_tasks_of_a_batch_announce_it(groups: Groups):
    """Else it would take their token away, and the group would not be found until the next batch."""
    groups.commit("spark-daily", {A0: 5}, "token")
    begun, goes_on, planned = threading.Event(), threading.Event(), threading.Event()
    commit = groups.commit

    def slow(group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        begun.set()
        assert goes_on.wait(30)
        commit(group, offsets, metadata)

    groups.commit = slow
    progress = ProgressGroup(lambda: groups, None)
    progress.may_search()
    progress.told(at(5))
    assert begun.wait(30)

    def plan() -> None:
        progress.announced("this run's")
        planned.set()

    thread = threading.Thread(target=plan)
    thread.start()
    assert not planned.wait(0.2)
    goes_on.set()
    thread.join(30)
    assert planned.is_set()
    assert len(groups.commits) == 2, "the one that was on its way"


def test_without_a_token_no_group_is_looked_for(groups: Groups):
    groups.commits.append(("spark-stranger", {A0: 1}, ""))
    progress = ProgressGroup(lambda: groups, None)
    progress.may_search()
    progress.told(at(5, query=""))
    assert not progress.settle()
    assert len(groups.commits) == 1


def test_a_commit_that_fails_is_tried_again(groups: Groups):
    groups.failures = 3
    progress = ProgressGroup(lambda: groups, "mine")
    progress.told(at(5))
    assert progress.settle()
    assert groups.commits == [("mine", {A0: 5}, "token")]


def test_a_cluster_that_never_answers_costs_a_bounded_wait_and_no_error(groups: Groups):
    groups.failures = 1 << 30
    progress = ProgressGroup(lambda: groups, "mine")
    progress.told(at(5))
    assert not progress.settle(0.3)


def test_no_group_means_no_thread_and_no_client():
    def refuse() -> Groups:
        raise AssertionError("nobody should connect")

    progress = ProgressGroup(refuse, "none")
    before = threading.active_count()
    progress.told(at(5))
    assert progress.settle()
    assert threading.active_count() == before


def test_commits_are_a_second_apart(groups: Groups, monkeypatch: pytest.MonkeyPatch):
    assert progress_group.COMMIT_INTERVAL_S == 1.0
    now, looks = [0.0], [0]

    def clock() -> float:
        with groups.changed:
            looks[0] += 1
            groups.changed.notify_all()
        return now[0]

    progress = ProgressGroup(lambda: groups, "mine", clock)
    progress.told(at(1))
    with groups.changed:
        assert groups.changed.wait_for(lambda: groups.commits, 10)
    progress.told(at(2))
    progress.told(at(3))
    # It has looked at its clock twice since, by which no time has passed: so nothing more is committed.
    seen = looks[0]
    with groups.changed:
        assert groups.changed.wait_for(lambda: looks[0] >= seen + 2, 10)
    assert len(groups.commits) == 1
    now[0] = 1.0
    progress.told(at(4))
    with groups.changed:
        assert groups.changed.wait_for(lambda: len(groups.commits) == 2, 10)
    assert groups.commits[1] == ("mine", {A0: 4}, "token")


@pytest.mark.parametrize(
    ("properties", "label"),
    [
        ({}, None),
        ({"sql.streaming.queryId": "i-d", "spark.job.description": "daily\nid = i-d\nrunId = r\nbatch = 3"}, "daily"),
        ({"sql.streaming.queryId": "i-d", "spark.job.description": "\nid = i-d\nrunId = r\nbatch = 3"}, "i-d"),
        ({"sql.streaming.queryId": "i-d", "spark.job.description": "a job of somebody"}, "i-d"),
        ({"sql.streaming.queryId": "i-d"}, "i-d"),
        ({"spark.job.description": "a batch"}, None),
    ],
)
def test_what_a_task_knows_of_its_query(properties: dict[str, str], label: str | None):
    assert query_label(properties.get) == label
