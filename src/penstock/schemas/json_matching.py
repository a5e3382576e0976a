"""The largest set of pairs in which nobody stands twice.

Called by json_differences.py, to find a newer schema for every older one of a combination. Law: no other choice of the
given edges pairs more of them.
"""

from collections.abc import Callable, Iterable

Edge = tuple[int, int]


def largest_matching(edges: Iterable[Edge], spend: Callable[[int], None]) -> list[Edge]:
    """Pairs of the left and the right, in the order of the left; `spend` is told of the steps."""
    offers: dict[int, list[int]] = {}
    for left, right in edges:
        offers.setdefault(left, []).append(right)
    holder: dict[int, int] = {}
    for left in offers:
        _find_place(left, offers, holder, spend)
    return sorted((left, right) for right, left in holder.items())


def _find_place(start: int, offers: dict[int, list[int]], holder: dict[int, int], spend: Callable[[int], None]) -> None:
    """Give `start` a partner; those who hold one move on to another if that makes room. `holder`: right to left."""
    asked_by: dict[int, int] = {}
    wanted_before: dict[int, int | None] = {start: None}
    waiting = [start]
    for left in waiting:
        spend(len(offers[left]))
        for right in offers[left]:
            if right in asked_by:
                continue
            asked_by[right] = left
            if right in holder:
                waiting.append(holder[right])
                wanted_before[holder[right]] = right
                continue
            # A free one: everybody on the way back gives up what they hold for what they asked for.
            moving: int | None = right
            while moving is not None:
                mover = asked_by[moving]
                holder[moving] = mover
                moving = wanted_before[mover]
            return
