"""Assignors by example: the cases people reason about, and the bound on work."""

from collections.abc import Iterable
from uuid import UUID

import pytest

from penstock.groups import load_balance
from penstock.groups.assignors import ASSIGNORS, Assignment, MemberSubscription, range_, uniform

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def member(name: str, topics: Iterable[UUID] = (A, B), instance: str | None = None) -> MemberSubscription:
    return MemberSubscription(name, instance, None, frozenset(topics))


def numbers(assigned: dict[str, Assignment]) -> dict[str, dict[int, list[int]]]:
    return {
        name: {topic_id.int: sorted(partitions) for topic_id, partitions in mine.items()}
        for name, mine in assigned.items()
    }


def test_uniform_is_what_a_group_gets_that_asks_for_nothing() -> None:
    assert list(ASSIGNORS) == ["uniform", "range"]


@pytest.mark.parametrize("assign", ASSIGNORS.values())
def test_no_members_no_topics_and_topics_without_partitions(assign) -> None:
    assert assign([], {}, {A: 3}) == {}
    assert assign([member("m")], {"m": {A: frozenset({1})}}, {}) == {"m": {}}
    assert assign([member("m", []), member("n", [A])], {}, {A: 0}) == {"m": {}, "n": {}}


# Uniform


def test_uniform_deals_each_topic_to_all() -> None:
    assert numbers(uniform([member("m"), member("n")], {}, {A: 4, B: 3})) == {
        "m": {1: [0, 2], 2: [0, 2]},
        "n": {1: [1, 3], 2: [1]},
    }


def test_uniform_gives_a_member_with_too_much_up_to_its_share_of_every_topic() -> None:
    past = {"m": {A: frozenset(range(4)), B: frozenset(range(4))}}
    assert numbers(uniform([member("m"), member("n")], past, {A: 4, B: 4})) == {
        "m": {1: [0, 1], 2: [0, 1]},
        "n": {1: [2, 3], 2: [2, 3]},
    }


def test_the_member_that_holds_one_more_keeps_it_whatever_its_name() -> None:
    past = {"z": {A: frozenset({0, 1, 2})}, "m": {A: frozenset({3, 4})}}
    assert numbers(uniform([member("m", [A]), member("z", [A])], past, {A: 5})) == {
        "m": {1: [3, 4]},
        "z": {1: [0, 1, 2]},
    }


def test_new_partitions_go_to_who_has_least_and_move_nothing() -> None:
    past = {"m": {A: frozenset({0, 1})}, "n": {A: frozenset({2})}}
    assert numbers(uniform([member("m", [A]), member("n", [A])], past, {A: 6})) == {
        "m": {1: [0, 1, 3]},
        "n": {1: [2, 4, 5]},
    }


def test_partitions_and_topics_that_are_gone_are_dropped() -> None:
    past = {"m": {A: frozenset({0, 5}), C: frozenset({0})}}
    assert numbers(uniform([member("m", [A, C])], past, {A: 2})) == {"m": {1: [0, 1]}}


def test_a_partition_two_members_claim_stays_with_the_first() -> None:
    past = {"n": {A: frozenset({0, 1})}, "m": {A: frozenset({0})}}
    assert numbers(uniform([member("n", [A]), member("m", [A])], past, {A: 2})) == {"m": {1: [0]}, "n": {1: [1]}}


def test_a_member_that_alone_reads_a_topic_leaves_the_others_to_the_rest() -> None:
    assigned = uniform([member("m", [A, B]), member("n", [A])], {}, {A: 4, B: 4})
    assert numbers(assigned) == {"m": {2: [0, 1, 2, 3]}, "n": {1: [0, 1, 2, 3]}}


def test_a_load_is_evened_by_way_of_a_third_member() -> None:
    """`l` can take nothing from `r`; `m` takes from `r` and gives to `l`."""
    members = [member("l", [A]), member("m", [A, B]), member("r", [B])]
    past = {"m": {A: frozenset({0, 1})}, "r": {B: frozenset({0, 1, 2, 3})}}
    assert numbers(uniform(members, past, {A: 2, B: 4})) == {"l": {1: [0, 1]}, "m": {2: [2, 3]}, "r": {2: [0, 1]}}


def test_of_what_may_be_given_a_member_gives_what_it_did_not_have_before() -> None:
    members = [member("l", [B]), member("m", [A, B]), member("n", [A])]
    past = {"m": {B: frozenset({0})}, "n": {A: frozenset({0})}}
    after = uniform(members, past, {A: 1, B: 3})
    assert 0 in after["m"][B]


def test_when_the_work_allowed_is_done_everything_still_has_an_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [member("l", [A]), member("m", [A, B]), member("r", [B])]
    past = {"m": {A: frozenset(range(30))}, "r": {B: frozenset(range(30))}}
    even = uniform(members, past, {A: 30, B: 30})
    monkeypatch.setattr(load_balance, "GIFTS_LOOKED_AT_MAX", 3)
    cut_short = uniform(members, past, {A: 30, B: 30})
    assert [len(even["l"][A]), len(even["r"][B])] == [20, 20]
    assert len(cut_short["r"][B]) > 25
    assert sum(len(mine.get(A, ())) for mine in cut_short.values()) == 30


def test_a_small_group_that_grows_gives_to_whoever_may_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One member reads all topics and the new ones three each: that takes no chains of gifts."""
    monkeypatch.setattr(load_balance, "GIFTS_LOOKED_AT_MAX", 0)
    topics = {UUID(int=number): 10 for number in range(1, 11)}
    ids = list(topics)
    past = {"all": {topic_id: frozenset(range(10)) for topic_id in topics}}
    members = [member("all", topics), *(member(f"n{number}", ids[number : number + 3]) for number in range(8))]
    members += [member("n8", [ids[0], ids[9]]), member("n9", [ids[9]])]
    loads = [sum(map(len, mine.values())) for mine in uniform(members, past, topics).values()]
    assert (min(loads), max(loads)) == (8, 12)


# Range


def test_range_cuts_each_topic_into_runs() -> None:
    assert numbers(range_([member("n"), member("m")], {}, {A: 3, B: 4})) == {
        "m": {1: [0, 1], 2: [0, 1]},
        "n": {1: [2], 2: [2, 3]},
    }


def test_range_puts_static_members_first_by_their_instance() -> None:
    members = [member("a", [A]), member("z", [A], "1"), member("b", [A], "2")]
    assert numbers(range_(members, {}, {A: 3})) == {"a": {1: [2]}, "z": {1: [0]}, "b": {1: [1]}}


def test_range_leaves_members_beyond_the_partitions_without_any() -> None:
    assert numbers(range_([member("m", [A]), member("n", [A]), member("o", [A])], {}, {A: 2})) == {
        "m": {1: [0]},
        "n": {1: [1]},
        "o": {},
    }


def test_range_cuts_a_topic_among_its_subscribers_only() -> None:
    members = [member("m", [A]), member("n", [A, B]), member("o", [B])]
    assert numbers(range_(members, {"o": {A: frozenset({0})}}, {A: 2, B: 2})) == {
        "m": {1: [0]},
        "n": {1: [1], 2: [0]},
        "o": {2: [1]},
    }
