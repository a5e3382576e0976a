"""The known name that a mistyped one probably meant.

Called by pipeline.loading, graph and substitution for their messages.
"""

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN_MAX = 12


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean \\`orders\\`?`, or the list where nothing is near, or nothing."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    if not near:
        near = [one for one in names if one.lower() == name.lower()]
    if near:
        return f"; did you mean `{near[0]}`?"
    if not names or len(names) > _SHOWN_MAX:
        return ""
    return f"; known: {', '.join(names)}"
