"""Regular expressions that somebody else wrote: compiled by RE2, in bounded memory, or refused with the reason.

Called by client_matching and groups.subscription_regex, which decide how large a program may be. Kafka's brokers match
with RE2/J: the same syntax, no look-around, no back references.
Invariants:
- What compile_bounded() returns matches in time that grows with pattern times text, never exponentially.
- No pattern makes a program or a cache above PATTERN_MEMORY_BYTES_MAX.
- RE2 is loaded with the first pattern: four megabytes that a broker without one does not need.
"""

from functools import cache
from typing import Any, Protocol

# With more, RE2 would spend it on automata that patterns made to harm outgrow all the same, at three times the cost.
PATTERN_MEMORY_BYTES_MAX = 256 * 1024
TOLD_MAX = 100


class Pattern(Protocol):
    """What we use of a compiled RE2 pattern; one that two threads may match with at the same time."""

    @property
    def pattern(self) -> str: ...

    def fullmatch(self, text: str) -> object | None: ...


class BadPattern(Exception):
    """What is wrong with a pattern, in words for whoever wrote it."""


def compile_bounded(text: str, program_steps_max: int) -> Pattern:
    """Raises BadPattern."""
    re2 = _re2()
    try:
        compiled = re2.compile(text, options=_options())
    except re2.error as failure:
        reason = failure.args[0] if failure.args else b""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(f"regular expression {_shortened(text)} is not valid: {words}") from None
    except UnicodeEncodeError:
        raise BadPattern("a regular expression must be text that UTF-8 can write") from None
    if compiled.programsize > program_steps_max:
        raise BadPattern(f"regular expression {_shortened(text)} is too large")
    return compiled


@cache
def _re2() -> Any:
    import re2  # pyright: ignore[reportMissingTypeStubs]: the package has none

    return re2


@cache
def _options() -> Any:
    options = _re2().Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    # Only whether a text matches is asked, never which part of it.
    options.never_capture = True
    # RE2 would write each pattern it refuses to standard error.
    options.log_errors = False
    return options


def _shortened(text: str) -> str:
    return repr(text if len(text) <= TOLD_MAX else text[:TOLD_MAX] + "…")
