"""The largest matching, held against trying every choice."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.schemas.json_matching import Edge, largest_matching


def is_matching(edges: tuple[Edge, ...]) -> bool:
    return len({left for left, _ in edges}) == len({right for _, right in edges}) == len(edges)


@settings(deadline=None)
@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=9))
def test_no_other_choice_pairs_more_and_nobody_stands_twice(edges: set[Edge]) -> None:
    steps: list[int] = []
    found = largest_matching(sorted(edges), steps.append)
    assert set(found) <= edges
    assert is_matching(tuple(found))
    assert len(found) == max(
        size for size in range(5) if any(is_matching(chosen) for chosen in combinations(sorted(edges), size))
    )
    assert sum(steps) >= len(found)
