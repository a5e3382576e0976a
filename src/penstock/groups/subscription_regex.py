"""Patterns that members subscribe with: compiled, and matched against the names of topics.

Called by the groups of the consumer protocol. Kafka's brokers match with RE2/J, and so RE2 matches here: the same
syntax, no look-around, no back references, and time that grows with pattern times name, never exponentially.
Invariants:
- A pattern matches a whole name, as Kafka's do: `foo` is not a match for `foo-bar`, `foo.*` is.
- What compile_pattern() returns is small: no pattern makes a program or a cache above PATTERN_MEMORY_BYTES_MAX.
- resolve() is plain and shares nothing: it may run on any thread, and RE2 lets go of the interpreter while it matches.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

from penstock.errors import InvalidRegularExpression

# Matching takes at most some 8 ns for each step of the program and each character, and only if the pattern and the name
# were made for it; the patterns people write take microseconds. Without repetition a step is taken once for a name,
# so a list of a thousand names, which is 8,000 steps or more, is harmless.
PROGRAM_STEPS_MAX = 10_000
REPEATING_STEPS_MAX = 2_000
REPETITION = frozenset("*+?{")
# With more, RE2 would spend it on automata that patterns made to harm outgrow all the same, at three times the cost.
PATTERN_MEMORY_BYTES_MAX = 256 * 1024


class Pattern(Protocol):
    """What we use of a compiled RE2 pattern; one that two threads may match with at the same time."""

    @property
    def pattern(self) -> str: ...

    def fullmatch(self, text: str) -> object | None: ...


def compile_pattern(text: str) -> Pattern:
    """Raises InvalidRegularExpression, with the reason for the member that sent it."""
    re2 = _re2()
    try:
        compiled = re2.compile(text, options=_options())
    except re2.error as failure:
        reason = failure.args[0] if failure.args else b""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidRegularExpression(f"regular expression {_shortened(text)} is not valid: {words}") from None
    except UnicodeEncodeError:
        raise InvalidRegularExpression("a regular expression must be text that UTF-8 can write") from None
    if compiled.programsize > (PROGRAM_STEPS_MAX if REPETITION.isdisjoint(text) else REPEATING_STEPS_MAX):
        raise InvalidRegularExpression(f"regular expression {_shortened(text)} is too large")
    return compiled


def resolve(pattern: Pattern, topic_names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole."""
    return frozenset(name for name in topic_names if pattern.fullmatch(name) is not None)


@cache
def _re2() -> Any:
    # Loaded with the first pattern: four megabytes that a broker without such a subscription does not need.
    import re2  # pyright: ignore[reportMissingTypeStubs]: the package has none

    return re2


@cache
def _options() -> Any:
    options = _re2().Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    # Only whether a name matches is asked, never which part of it.
    options.never_capture = True
    # RE2 would write each pattern it refuses to standard error.
    options.log_errors = False
    return options


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "…")
