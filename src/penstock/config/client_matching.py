"""Which clients a client metrics subscription means: `client_id=billing-.*`, a pattern for each thing known of them.

Called by client_metrics_settings, which refuses what cannot be read, and by telemetry, which asks who fits.
Invariants:
- A pattern matches a whole value, as Kafka's do.
- Only the first "=" parts name and pattern, so that a pattern may have more of them.
"""

from collections.abc import Iterable, Mapping

from penstock.config.regular_expressions import BadPattern, Pattern, compile_bounded

MATCH_KEYS = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
PROGRAM_STEPS_MAX = 2_000


def match_fault(items: tuple[str, ...]) -> str | None:
    """What is wrong with the items of a `match` setting, or None."""
    seen: set[str] = set()
    for item in items:
        name, text = _split(item)
        if text is None or name not in MATCH_KEYS:
            return f"{item[:100]!r} is not NAME=PATTERN with one of {', '.join(MATCH_KEYS)}"
        if name in seen:
            return f"{name} is named twice"
        seen.add(name)
        try:
            compile_bounded(text, PROGRAM_STEPS_MAX)
        except BadPattern as fault:
            return str(fault)
    return None


def compile_match(items: Iterable[str]) -> Mapping[str, Pattern]:
    """The patterns of a `match` setting that match_fault() found nothing wrong with."""
    parts = (_split(item) for item in items)
    return {name: compile_bounded(text, PROGRAM_STEPS_MAX) for name, text in parts if text is not None}


def _split(item: str) -> tuple[str, str | None]:
    name, equals, text = item.partition("=")
    return name.strip(), text.strip() if equals else None
