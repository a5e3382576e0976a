"""One page of a long list: searched, sorted and cut here, so that ten thousand topics cost a browser nothing.

Called by the parts of the console's API that list things.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from starlette.requests import Request

from penstock.gateway.console.asking import SEARCH_MAX, choice_of, number_of, text_of

T = TypeVar("T")

PER_PAGE = 50
PER_PAGE_MAX = 500
NAMES_KEPT = 20_000


class Wanted(NamedTuple):
    search: str
    sort: str
    is_descending: bool
    page: int
    per_page: int


def wanted_of(request: Request, sorts: tuple[str, ...]) -> Wanted:
    return Wanted(
        text_of(request, "search", "", SEARCH_MAX).strip().lower(),
        choice_of(request, "sort", sorts, sorts[0]),
        choice_of(request, "order", ("asc", "desc"), "asc") == "desc",
        number_of(request, "page", 1, 1, 1_000_000),
        number_of(request, "per_page", PER_PAGE, 1, PER_PAGE_MAX),
    )


def choose(
    items: Iterable[T],
    wanted: Wanted,
    name: Callable[[T], str],
    keys: Mapping[str, Callable[[T], Any]],
    *,
    is_in_order: bool = False,
) -> tuple[list[T], dict[str, int]]:
    """The items of the page, and the figures its pager needs. What has no value for the sort comes last either way.

    `is_in_order`: the items are sorted by name already.
    """
    words = wanted.search.split()
    found = [item for item in items if all(word in name(item).lower() for word in words)]
    key = keys.get(wanted.sort)
    if not is_in_order:
        found.sort(key=lambda item: natural(name(item)))
    if key is not None:
        known = [item for item in found if key(item) is not None]
        known.sort(key=key, reverse=wanted.is_descending)
        found = known + [item for item in found if key(item) is None]
    elif wanted.is_descending:
        found.reverse()
    pages = max(1, -(-len(found) // wanted.per_page))
    page = min(wanted.page, pages)
    first = (page - 1) * wanted.per_page
    figures = {"total": len(found), "page": page, "pages": pages, "per_page": wanted.per_page}
    return found[first : first + wanted.per_page], figures


_NUMBERS = re.compile(r"(\d{1,18})")


@lru_cache(NAMES_KEPT)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """topic-9 comes before topic-10. Kept: the same names are sorted again every few seconds."""
    parts = _NUMBERS.split(name)
    return tuple((0, int(part), "") if place % 2 else (1, 0, part) for place, part in enumerate(parts))
