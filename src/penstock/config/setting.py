"""One setting: its Kafka name, type, default, what it may be, and who may change it.

Called by the tables (broker_settings, topic_config, group_settings), which declare settings as dataclass fields: the
field gives callers a typed attribute, its metadata holds the Setting that parses, refuses, describes and documents it.
Invariants:
- A default passes its own check.
- Text that parse() accepts, render() turns into the form DescribeConfigs shows, and parse() accepts that too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, IntEnum
from typing import Any, cast

from penstock.errors import InvalidConfig

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

Value = int | float | bool | str | tuple[str, ...] | frozenset[str] | None
# What is wrong with a parsed value, as the end of "<name> ...", or None.
Check = Callable[[Any], str | None]


class Kind(IntEnum):
    """Type codes as DescribeConfigs sends them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Scope(Enum):
    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


class Dynamic(Enum):
    """How a running broker's setting may change over the wire."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


READ_ONLY, PER_BROKER, CLUSTER_WIDE = Dynamic.READ_ONLY, Dynamic.PER_BROKER, Dynamic.CLUSTER_WIDE
HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    kind: Kind
    default: Value
    doc: str
    scope: Scope = Scope.BROKER
    attribute: str = ""
    low: float | None = None
    high: float | None = None
    one_of: tuple[str, ...] = ()
    check: Check | None = None
    # Broker settings that give a topic its default, first one set wins; each with what turns its unit into ours.
    broker_names: tuple[tuple[str, int], ...] = ()
    dynamic: Dynamic = READ_ONLY
    sensitive: bool = False
    importance: Importance = MEDIUM
    # False: accepted because clients send it, kept, shown again, and without effect.
    honoured: bool = True
    unordered: bool = False

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        if self.kind is Kind.LIST:
            return f"a comma-separated list of {', '.join(self.one_of)}" if self.one_of else "a comma-separated list"
        if self.one_of:
            return f"one of {', '.join(self.one_of)}"
        if self.kind in (Kind.STRING, Kind.PASSWORD):
            return "text"
        noun = "a number" if self.kind is Kind.DOUBLE else "an integer"
        if self.low is not None and self.high is not None:
            return f"{noun} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{noun}, {self.low} or more"
        return f"{noun}, {self.high} or less" if self.high is not None else noun

    def parse(self, text: str) -> Value:
        """The value as attributes hold it; raises InvalidConfig."""
        value = self._parse_ordered(text)
        return frozenset(value) if self.unordered and isinstance(value, tuple) else value

    def render(self, text: str) -> str:
        """Text as it was set, in the one form that DescribeConfigs shows."""
        # Lists keep the order they were set in: tools compare the text with the one they sent.
        return render_value(self._parse_ordered(text)) or ""

    @property
    def default_text(self) -> str | None:
        return render_value(self.default)

    def _parse_ordered(self, text: str) -> Value:
        text = text.strip()
        value: Value
        match self.kind:
            case Kind.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._invalid(text)
                value = text.lower() == "true"
            case Kind.INT | Kind.LONG:
                value = self._parse_integer(text)
            case Kind.DOUBLE:
                try:
                    value = float(text)
                except ValueError:
                    raise self._invalid(text) from None
            case Kind.LIST:
                value = tuple(item.strip() for item in text.split(",")) if text else ()
                if "" in value or len(set(value)) != len(value):
                    raise self._invalid(text, "has an empty or a repeated item")
                if self.one_of and not set(value) <= set(self.one_of):
                    raise self._invalid(text)
            case Kind.STRING | Kind.PASSWORD:
                value = text
                if self.one_of and value not in self.one_of:
                    raise self._invalid(text)
        if isinstance(value, int | float) and not self._in_range(value):
            raise self._invalid(text)
        if self.check is not None and (fault := self.check(value)) is not None:
            raise self._invalid(text, fault)
        return value

    def _parse_integer(self, text: str) -> int:
        digits = text[1:] if text[:1] in ("+", "-") else text
        # int() would take "1_000", "٣" and a megabyte of digits; Kafka takes none of them.
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise self._invalid(text)
        value = int(text)
        low, high = (INT_MIN, INT_MAX) if self.kind is Kind.INT else (LONG_MIN, LONG_MAX)
        if not low <= value <= high:
            raise self._invalid(text)
        return value

    def _in_range(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _invalid(self, text: str, fault: str | None = None) -> InvalidConfig:
        # A secret that fails its check must not come back in the error or land in a log.
        shown = "a hidden value" if self.sensitive else repr(text if len(text) <= 100 else text[:100] + "…")
        return InvalidConfig(f"{self.name} = {shown}: {fault or 'not valid'}; it must be {self.allowed}")


def render_value(value: Value) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case frozenset():
            return ",".join(sorted(value))
        case _:
            return str(value)


def settings_of(table: type) -> dict[str, Setting]:
    """The settings a table declares, by Kafka name, in the order of the file."""
    settings: dict[str, Setting] = {}
    for declared in fields(table):
        setting = cast(Setting | None, declared.metadata.get("setting"))
        if setting is not None:
            assert setting.name not in settings, setting.name
            settings[setting.name] = replace(setting, attribute=declared.name)
    return settings


# The makers below declare one row of a table. To the type checker each returns the attribute's value; to dataclass it
# is a field with that default and the Setting beside it.


def integer(name: str, default: int, doc: str, **options: Any) -> int:
    return _declare(Setting(name=name, kind=Kind.INT, default=default, doc=doc, **options))


def long(name: str, default: int, doc: str, **options: Any) -> int:
    return _declare(Setting(name=name, kind=Kind.LONG, default=default, doc=doc, **options))


def optional_integer(name: str, doc: str, **options: Any) -> int | None:
    return _declare(Setting(name=name, kind=Kind.INT, default=None, doc=doc, **options))


def optional_long(name: str, doc: str, **options: Any) -> int | None:
    return _declare(Setting(name=name, kind=Kind.LONG, default=None, doc=doc, **options))


def double(name: str, default: float, doc: str, **options: Any) -> float:
    return _declare(Setting(name=name, kind=Kind.DOUBLE, default=default, doc=doc, **options))


def flag(name: str, default: bool, doc: str, **options: Any) -> bool:
    return _declare(Setting(name=name, kind=Kind.BOOLEAN, default=default, doc=doc, **options))


def text(name: str, default: str, doc: str, **options: Any) -> str:
    return _declare(Setting(name=name, kind=Kind.STRING, default=default, doc=doc, **options))


def optional_text(name: str, doc: str, **options: Any) -> str | None:
    return _declare(Setting(name=name, kind=Kind.STRING, default=None, doc=doc, **options))


def choice(name: str, default: str, one_of: Sequence[str], doc: str, **options: Any) -> str:
    return _declare(Setting(name=name, kind=Kind.STRING, default=default, doc=doc, one_of=tuple(one_of), **options))


def items(name: str, default: tuple[str, ...], doc: str, **options: Any) -> tuple[str, ...]:
    return _declare(Setting(name=name, kind=Kind.LIST, default=default, doc=doc, **options))


def choices(name: str, default: frozenset[str], one_of: Sequence[str], doc: str, **options: Any) -> frozenset[str]:
    one_of = tuple(one_of)
    return _declare(
        Setting(name=name, kind=Kind.LIST, default=default, doc=doc, one_of=one_of, unordered=True, **options)
    )


def _declare(setting: Setting) -> Any:
    return field(default=setting.default, metadata={"setting": setting})
