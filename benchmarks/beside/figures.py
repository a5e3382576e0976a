"""Numbers of several rounds as one: medians, spreads, and ratios taken round by round. Pure functions.

Called by rounds.py and report.py. Systems are measured in turn within a round, so a ratio is taken within a round too:
a minute in which the machine was slow slows both sides of it.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

Figures = Mapping[str, float]


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Spread:
    median: float
    low: float
    high: float

    def plain(self) -> dict[str, float]:
        return asdict(self)


def spread(values: Sequence[float]) -> Spread:
    assert values, "a spread of nothing"
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[Figures], theirs: Sequence[Figures], metric: str) -> Spread | None:
    """Ours divided by theirs, round by round; None where no round has both."""
    pairs = zip(ours, theirs, strict=False)
    found = [mine[metric] / other[metric] for mine, other in pairs if mine.get(metric) and other.get(metric)]
    return spread(found) if found else None


def summary(rounds: Sequence[Figures]) -> dict[str, dict[str, float]]:
    """Each figure's spread; a figure that a round lacks is taken from the others."""
    names = dict.fromkeys(name for one in rounds for name in one)
    return {name: spread([one[name] for one in rounds if name in one]).plain() for name in names}


def order(names: Sequence[str], round_number: int) -> list[str]:
    """Who goes when: every round begins with another, so that nobody always follows the same one."""
    shift = round_number % len(names) if names else 0
    return [*names[shift:], *names[:shift]]
