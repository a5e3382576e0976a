"""Assignors for any members, subscriptions, topics and past: who owns what, how evenly, and how little moves."""

from collections import Counter
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS, Assignment, MemberSubscription, range_, uniform

TOPICS = [UUID(int=number * 7919) for number in range(1, 7)]

layouts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), min_size=1)
# Also topics that do not exist: a member may subscribe to what was deleted a moment ago.
subscriptions = st.frozensets(st.sampled_from(TOPICS))
names = st.lists(st.sampled_from([f"m{number:02}" for number in range(12)]), unique=True, max_size=9)


@st.composite
def groups(draw: st.DrawFn, alike: bool = False) -> list[MemberSubscription]:
    same = draw(subscriptions)
    return [
        MemberSubscription(
            name, f"i-{name}" if draw(st.booleans()) else None, None, same if alike else draw(subscriptions)
        )
        for name in draw(names)
    ]


@st.composite
def pasts(draw: st.DrawFn) -> dict[str, Assignment]:
    """Any target at all: with members that are gone, partitions that are not, and two owners of one."""
    partitions = st.frozensets(st.integers(0, 12), min_size=1)
    past = st.dictionaries(st.sampled_from(TOPICS), partitions)
    return {name: draw(past) for name in draw(names)}


def loads(assigned: dict[str, Assignment]) -> dict[str, int]:
    return {member_id: sum(map(len, mine.values())) for member_id, mine in assigned.items()}


def flat(assigned: dict[str, Assignment]) -> set[tuple[str, UUID, int]]:
    return {
        (member_id, topic_id, partition)
        for member_id, mine in assigned.items()
        for topic_id, partitions in mine.items()
        for partition in partitions
    }


def least_uneven(members: list[MemberSubscription], topics: dict[UUID, int]) -> int:
    """The smallest sum of squared loads that any assignment can have: one partition after another gets an owner, each
    by the cheapest way of handing others on. Slow and plain, unlike what it judges."""
    wants = {member.member_id: member.topics for member in members}
    owner: dict[tuple[UUID, int], str] = {}
    load = Counter(dict.fromkeys(wants, 0))
    for topic_id, count in topics.items():
        for partition in range(count):
            frontier = [(member_id, [(topic_id, partition)]) for member_id in wants if topic_id in wants[member_id]]
            seen = {member_id for member_id, _ in frontier}
            ways = list(frontier)
            while frontier:
                member_id, moved = frontier.pop(0)
                for held in [at for at, name in owner.items() if name == member_id]:
                    for other in wants:
                        if other not in seen and held[0] in wants[other]:
                            seen.add(other)
                            frontier.append((other, [*moved, held]))
                            ways.append(frontier[-1])
            if not ways:
                continue
            last, moved = min(ways, key=lambda way: load[way[0]])
            takers = [owner[at] for at in moved[1:]] + [last]
            owner.update(zip(moved, takers, strict=True))
            load[last] += 1
    return sum(value**2 for value in load.values())


@given(groups(), pasts(), layouts)
def test_every_partition_that_somebody_wants_has_one_owner_who_wants_it(members, past, topics) -> None:
    wanted = {topic_id for member in members for topic_id in member.topics if topic_id in topics}
    everything = sorted((topic_id, number) for topic_id in wanted for number in range(topics[topic_id]))
    for assign in ASSIGNORS.values():
        assigned = assign(members, past, topics)
        assert assigned.keys() == {member.member_id for member in members}
        assert sorted((topic_id, number) for _, topic_id, number in flat(assigned)) == everything
        for member in members:
            assert assigned[member.member_id].keys() <= member.topics
            assert all(assigned[member.member_id].values())


@given(groups(), pasts(), layouts, st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_plays_no_part(members, past, topics, random) -> None:
    for assign in ASSIGNORS.values():
        expected = assign(members, past, topics)
        shuffled, names_of_past, ids = list(members), list(past), list(topics)
        for one in (shuffled, names_of_past, ids):
            random.shuffle(one)
        answer = assign(shuffled, {name: past[name] for name in names_of_past}, {one: topics[one] for one in ids})
        assert answer == expected


@given(groups(alike=True), pasts(), layouts)
def test_members_that_want_the_same_get_the_same_give_or_take_one(members, past, topics) -> None:
    counts = loads(uniform(members, past, topics)).values()
    assert max(counts, default=0) - min(counts, default=0) <= 1


@settings(max_examples=150)
@given(groups(), pasts(), layouts)
def test_no_assignment_is_more_even_than_the_uniform_one(members, past, topics) -> None:
    counts = loads(uniform(members, past, topics)).values()
    assert sum(count**2 for count in counts) == least_uneven(members, topics)


@given(groups(), pasts(), layouts)
def test_an_even_assignment_stays_as_it_is(members, past, topics) -> None:
    assigned = uniform(members, past, topics)
    assert uniform(members, assigned, topics) == assigned


@given(groups(alike=True), layouts, st.integers(0, 11))
def test_a_member_that_leaves_moves_nothing_but_its_own(members, topics, place) -> None:
    before = uniform(members, {}, topics)
    staying = [member for number, member in enumerate(members) if number != place]
    after = uniform(staying, before, topics)
    stayed = {member.member_id for member in staying}
    assert {one for one in flat(before) if one[0] in stayed} <= flat(after)


@given(groups(alike=True), layouts)
def test_a_member_that_joins_moves_only_what_it_gets(members, topics) -> None:
    before = uniform(members, {}, topics)
    wanted = members[0].topics if members else frozenset(TOPICS)
    after = uniform([*members, MemberSubscription("a-new-one", None, None, wanted)], before, topics)
    gained = {one for one in flat(after) - flat(before) if one[0] != "a-new-one"}
    assert gained == set()
    assert len(flat(before) - flat(after)) == (loads(after)["a-new-one"] if members else 0)


@given(groups(alike=True), pasts(), layouts)
def test_nothing_moves_among_members_alike_that_need_not(members, past, topics) -> None:
    """What must go: what a member holds above its share, with the larger shares where most is held."""
    claims: dict[tuple[UUID, int], str] = {}  # of two that hold the same, the first by name
    for member in sorted(members, key=lambda member: member.member_id):
        for name, topic_id, partition in flat({member.member_id: past.get(member.member_id, {})}):
            if topic_id in member.topics and partition < topics.get(topic_id, 0):
                claims.setdefault((topic_id, partition), name)
    kept = {(name, *at) for at, name in claims.items()} & flat(uniform(members, past, topics))
    total = sum(topics.get(topic_id, 0) for topic_id in (members[0].topics if members else ()))
    quota, extra = divmod(total, len(members) or 1)
    held = sorted(Counter(claims.values()).values(), reverse=True)
    assert len(kept) == sum(min(count, quota + (place < extra)) for place, count in enumerate(held))


@given(groups(alike=True), pasts(), st.integers(0, 9))
def test_range_gives_the_same_numbers_of_topics_alike(members, past, count) -> None:
    topics = dict.fromkeys(TOPICS, count)
    for mine in range_(members, past, topics).values():
        assert len(set(mine.values())) <= 1
        assert all(numbers == frozenset(range(min(numbers), max(numbers) + 1)) for numbers in mine.values())
