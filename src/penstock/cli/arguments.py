"""What people type, turned into values: name=value, topic:partitions, points in time, lengths of time.

Called by all commands. What cannot be read is a BadParameter: typer says so and ends with exit code 2.
"""

import re
from collections.abc import Iterable
from datetime import datetime

import typer

from penstock.admin.offsets import TopicPartitions

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART = re.compile(r"(\d+)(ms|[smhdw])")
_ISO_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value`, each; the last of a name wins."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{pair!r} is not of the form name=value")
        found[name.strip()] = value
    return found


def parse_topic_partitions(text: str) -> TopicPartitions:
    """`orders` or `orders:0,3`. A topic's name has no colon in it."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not re.fullmatch(r"\d+(,\d+)*", numbers)):
        raise typer.BadParameter(f"{text!r} is neither TOPIC nor TOPIC:PARTITION,PARTITION…")
    return TopicPartitions(topic, tuple(sorted({int(number) for number in numbers.split(",")})) if colon else ())


def parse_moment_ms(text: str) -> int:
    """Milliseconds since 1970, or an ISO date or date and time; without a zone it is this machine's own."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither milliseconds since 1970 nor a date and time as 2024-05-17T08:30:00Z"
        ) from None
    return int(moment.timestamp() * 1000)


def parse_duration_ms(text: str) -> int:
    """`90s`, `1h30m`, `2d`, or ISO's `PT1H30M`, which Kafka's own tools take."""
    iso = _ISO_DURATION.fullmatch(text)
    if iso is not None and any(iso.groups()):
        units = ("w", "d", "h", "m", "s")
        return sum(int(number) * _UNITS_MS[unit] for number, unit in zip(iso.groups(), units, strict=True) if number)
    if re.fullmatch(rf"(?:{_DURATION_PART.pattern})+", text):
        return sum(int(number) * _UNITS_MS[unit] for number, unit in _DURATION_PART.findall(text))
    raise typer.BadParameter(f"{text!r} is no length of time; write it as 90s, 1h30m, 2d or PT1H30M")
