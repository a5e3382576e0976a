"""Which clients a client metrics subscription means: `client_id=billing-.*`, a pattern for each thing known of them.

Called by client_metrics_settings, which refuses what cannot be read, and by telemetry, which asks who fits.
Invariants:
- A pattern matches a whole value, as Kafka's do, by RE2: no pattern takes time that grows faster than it and the value.
- Only the first "=" parts name and pattern, so that a pattern may have more of them.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Protocol

MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
PROGRAM_STEPS_MAX = 2_000
PATTERN_MEMORY_BYTES_MAX = 256 * 1024


class Pattern(Protocol):
    def fullmatch(self, text: str) -> object | None: ...


def match_fault(items: tuple[str, ...]) -> str | None:
    """What is wrong with the items of a `match` setting, or None."""
    seen: set[str] = set()
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip()
        if not equals or name not in MATCH_KEYS:
            return f"{item[:100]!r} is not NAME=PATTERN with one of {', '.join(MATCH_KEYS)}"
        if name in seen:
            return f"{name} is named twice"
        seen.add(name)
        if (fault := _pattern_fault(text.strip())) is not None:
            return fault
    return None


def compile_match(items: Iterable[str]) -> Mapping[str, Pattern]:
    """The patterns of a `match` setting that match_fault() found nothing wrong with."""
    parts = (item.partition("=") for item in items)
    return {name.strip(): _re2().compile(text.strip(), options=_options()) for name, _, text in parts}


def _pattern_fault(text: str) -> str | None:
    re2 = _re2()
    try:
        compiled = re2.compile(text, options=_options())
    except re2.error as failure:
        reason = failure.args[0] if failure.args else b""
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return f"{text[:100]!r} is no regular expression that RE2 knows: {words}"
    except UnicodeEncodeError:
        return "a pattern must be text that UTF-8 can write"
    return f"the pattern {text[:100]!r} is too large" if compiled.programsize > PROGRAM_STEPS_MAX else None


@cache
def _re2() -> Any:
    # Loaded with the first pattern: four megabytes that a broker without one does not need.
    import re2  # pyright: ignore[reportMissingTypeStubs]: the package has none

    return re2


@cache
def _options() -> Any:
    options = _re2().Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    return options
