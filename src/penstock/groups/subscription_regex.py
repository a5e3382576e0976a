"""Patterns that members subscribe with: compiled, and matched against the names of topics.

Called by the groups of the consumer protocol, and by the handlers that list by pattern.
Invariants:
- A pattern matches a whole name, as Kafka's do: `foo` is not a match for `foo-bar`, `foo.*` is.
- resolve() is plain and shares nothing: it may run on any thread, and RE2 lets go of the interpreter while it matches.
"""

from collections.abc import Iterable

from penstock.config.regular_expressions import BadPattern, Pattern, compile_bounded
from penstock.errors import InvalidRegularExpression

# Matching takes at most some 8 ns for each step of the program and each character, and only if the pattern and the name
# were made for it; the patterns people write take microseconds. Without repetition a step is taken once for a name,
# so a list of a thousand names, which is 8,000 steps or more, is harmless.
PROGRAM_STEPS_MAX = 10_000
REPEATING_STEPS_MAX = 2_000
REPETITION = frozenset("*+?{")


def compile_pattern(text: str) -> Pattern:
    """Raises InvalidRegularExpression, with the reason for the member that sent it."""
    try:
        return compile_bounded(text, PROGRAM_STEPS_MAX if REPETITION.isdisjoint(text) else REPEATING_STEPS_MAX)
    except BadPattern as fault:
        raise InvalidRegularExpression(str(fault)) from None


def resolve(pattern: Pattern, topic_names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole."""
    return frozenset(name for name in topic_names if pattern.fullmatch(name) is not None)
