"""Avro's schema resolution: which values of a writer's schema can a reader's schema not take?

Called by avro.py. A pair (reader type, writer type) needs other pairs: all of them (the fields of a record, the items
of an array, the branches of a writer's union) or one of them (the branches of a reader's union). The pairs form a
graph, with cycles where types are recursive; failures spread through it from those that fail by themselves, and what
no failure reaches is compatible. So the answer is exact for recursive unions too, where a walk that takes a pair under
way for compatible would remember verdicts that later prove wrong; and no chain of types is too long for the stack.
Laws:
- Names match by their last part or by an alias of the reader, as in Avro's own library.
- No more than WORK_MAX pairs, fields and symbols are looked at; a comparison that needs more is refused, not guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.schemas.avro_model import (
    Array,
    Enum,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    RecordField,
    Type,
    Union,
    kind_of,
    simple_name,
    type_text,
)
from penstock.schemas.schema import DIFFERENCES_MAX, Incompatible

WORK_MAX = 200_000
_PATH_LENGTH_MAX = 1000
_NAMES_SHOWN_MAX = 10
_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


class _Need(NamedTuple):
    """Another pair that this one stands on; `step` leads there in the words of the schema."""

    step: str
    pair: "_Pair"


@dataclass(slots=True, eq=False)
class _Pair:
    reader: Type
    writer: Type
    own: list[Incompatible] = field(default_factory=list[Incompatible])
    needs: list[_Need] = field(default_factory=list[_Need])
    is_any: bool = False
    is_expanded: bool = False
    has_failed: bool = False
    failed_needs: int = 0
    needed_by: list["_Pair"] = field(default_factory=list["_Pair"])


class _TooLarge(Exception):
    pass


def resolution_differences(reader: Type, writer: Type) -> list[Incompatible]:
    """Every reason, up to DIFFERENCES_MAX, why a value of `writer` may not be readable as `reader`."""
    comparison = _Comparison()
    try:
        root = comparison.pair(reader, writer, is_trial=False)
        comparison.expand_all()
    except _TooLarge:
        return [Incompatible("COMPARISON_TOO_LARGE", "/", f"comparing takes more than {WORK_MAX} steps")]
    comparison.spread_failures()
    return list(_reasons(root)) if root.has_failed else []


class _Comparison:
    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], _Pair] = {}
        self._to_expand: list[_Pair] = []
        self._work = 0

    def pair(self, reader: Type, writer: Type, *, is_trial: bool) -> _Pair:
        """The pair; `is_trial`: one of several a reader's union offers, of no interest beyond a name that differs."""
        key = id(reader), id(writer)
        made = self._pairs.get(key)
        if made is None:
            self._work += 1 + _weight(reader) + _weight(writer)
            if self._work > WORK_MAX:
                raise _TooLarge
            made = self._pairs[key] = _Pair(reader, writer)
            made.own = list(_own_differences(reader, writer))
        if not made.is_expanded and not (is_trial and made.own and isinstance(reader, Named)):
            made.is_expanded = True
            self._to_expand.append(made)
        return made

    def expand_all(self) -> None:
        while self._to_expand:
            pair = self._to_expand.pop()
            for step, reader, writer in _needs(pair):
                needed = self.pair(reader, writer, is_trial=pair.is_any)
                pair.needs.append(_Need(step, needed))
                needed.needed_by.append(pair)

    def spread_failures(self) -> None:
        failed = [pair for pair in self._pairs.values() if pair.own or (pair.is_any and not pair.needs)]
        for pair in failed:
            pair.has_failed = True
        while failed:
            for waiting in failed.pop().needed_by:
                waiting.failed_needs += 1
                is_lost = not waiting.is_any or waiting.failed_needs == len(waiting.needs)
                if is_lost and not waiting.has_failed:
                    waiting.has_failed = True
                    failed.append(waiting)


def _weight(type_: Type) -> int:
    match type_:
        case Record():
            return len(type_.fields)
        case Enum():
            return len(type_.symbols)
        case _:
            return 0


def _needs(pair: _Pair) -> Iterator[tuple[str, Type, Type]]:
    """The pairs that this one stands on; sets is_any where one of them is enough."""
    reader, writer = pair.reader, pair.writer
    if isinstance(writer, Union):
        for number, branch in enumerate(writer.branches):
            yield str(number), reader, branch
    elif isinstance(reader, Union):
        pair.is_any = True
        for branch in reader.branches:
            yield "", branch, writer
    elif isinstance(reader, Array) and isinstance(writer, Array):
        yield "items", reader.items, writer.items
    elif isinstance(reader, Map) and isinstance(writer, Map):
        yield "values", reader.values, writer.values
    elif isinstance(reader, Record) and isinstance(writer, Record):
        for number, reader_field in enumerate(reader.fields):
            written = _written_as(reader_field, writer)
            if len(written) == 1:
                yield f"fields/{number}/type", reader_field.type, written[0].type


def _own_differences(reader: Type, writer: Type) -> Iterator[Incompatible]:
    """What is wrong between two types themselves, whatever lies inside them; paths relative to them."""
    if isinstance(reader, Union) or isinstance(writer, Union):
        return
    if isinstance(reader, Named) and isinstance(writer, Named) and type(reader) is type(writer):
        matches = simple_name(reader.full_name) == simple_name(writer.full_name) or writer.full_name in reader.aliases
        if not matches:
            message = f"the writer's {kind_of(writer)} is {writer.full_name}, the reader's {reader.full_name}"
            yield Incompatible("NAME_MISMATCH", "name", f"{message}, without an alias for it")
    match reader, writer:
        case Primitive(), Primitive() if reader.name == writer.name:
            yield from _decimal_differences(reader, writer)
        case Primitive(), Primitive() if writer.name in _PROMOTIONS.get(reader.name, ()):
            return
        case (Array(), Array()) | (Map(), Map()):
            return
        case Fixed(), Fixed():
            if reader.size != writer.size:
                message = f"{writer.full_name} is written with {writer.size} bytes and read with {reader.size}"
                yield Incompatible("FIXED_SIZE_MISMATCH", "size", message)
            yield from _decimal_differences(reader, writer)
        case Enum(), Enum():
            if reader.default is None and not writer.symbol_set <= reader.symbol_set:
                missing = sorted(writer.symbol_set - reader.symbol_set)
                shown = ", ".join(missing[:_NAMES_SHOWN_MAX]) + (", …" if len(missing) > _NAMES_SHOWN_MAX else "")
                message = f"the reader's enum {reader.full_name} lacks the symbols {shown} and has no default"
                yield Incompatible("MISSING_ENUM_SYMBOLS", "symbols", message)
        case Record(), Record():
            yield from _field_differences(reader, writer)
        case _:
            message = f"{type_text(writer)} cannot be read as {type_text(reader)}"
            yield Incompatible("TYPE_MISMATCH", "", message)


def _field_differences(reader: Record, writer: Record) -> Iterator[Incompatible]:
    for number, reader_field in enumerate(reader.fields):
        written = _written_as(reader_field, writer)
        if not written and not reader_field.has_default:
            message = f"the reader's field {reader_field.name!r} has no default and the writer has no such field"
            yield Incompatible("READER_FIELD_MISSING_DEFAULT_VALUE", f"fields/{number}", message)
        elif len(written) > 1:
            names = " and ".join(repr(found.name) for found in written[:_NAMES_SHOWN_MAX])
            message = f"the reader's field {reader_field.name!r} and its aliases stand for the writer's {names} at once"
            yield Incompatible("NAME_MISMATCH", f"fields/{number}", message)


def _decimal_differences(reader: Primitive | Fixed, writer: Primitive | Fixed) -> Iterator[Incompatible]:
    """Bytes carry no scale: read with another one, 1.50 becomes 15.0, and no reader notices."""
    if reader.decimal is None or writer.decimal is None:
        return
    if reader.decimal.scale != writer.decimal.scale or reader.decimal.precision < writer.decimal.precision:
        message = (
            f"a decimal of {writer.decimal.precision} digits, {writer.decimal.scale} after the point, cannot be read "
            f"with {reader.decimal.precision} digits, {reader.decimal.scale} after the point"
        )
        yield Incompatible("DECIMAL_SCALE_OR_PRECISION_MISMATCH", "logicalType", message)


def _written_as(reader_field: RecordField, writer: Record) -> list[RecordField]:
    """The writer's fields that the reader's field, by its name or an alias, stands for."""
    names = dict.fromkeys((reader_field.name, *reader_field.aliases))
    return [writer.by_name[name] for name in names if name in writer.by_name]


def _reasons(root: _Pair) -> Iterator[Incompatible]:
    """The differences below a pair that failed, in the order of the schema; what lies inside a pair is told once."""
    left = DIFFERENCES_MAX
    seen: set[int] = set()
    waiting = [(root, "")]
    while waiting and left:
        pair, path = waiting.pop()
        if pair.needs:
            if id(pair) in seen:
                continue
            seen.add(id(pair))
        found = [Incompatible(own.kind, _join(path, own.path), own.message) for own in pair.own]
        below: list[tuple[_Pair, str]] = []
        if pair.is_any:
            found += [] if _is_told(pair, seen) else [_no_branch(pair, path, pair.writer)]
        elif isinstance(pair.writer, Union) and isinstance(pair.reader, Union):
            lost = [need for need in pair.needs if need.pair.has_failed and not _is_told(need.pair, seen)]
            found += [_no_branch(pair, _join(path, need.step), need.pair.writer) for need in lost]
        else:
            below = [(need.pair, _join(path, need.step)) for need in pair.needs if need.pair.has_failed]
        yield from found[:left]
        left -= min(left, len(found))
        waiting += reversed(below)


def _is_told(choice: _Pair, seen: set[int]) -> bool:
    """A recursive type fails inside itself because it fails at all, and why it does has been said."""
    return any(id(need.pair) in seen for need in choice.needs)


def _no_branch(pair: _Pair, path: str, writer: Type) -> Incompatible:
    message = f"the reader's union ({_brief(type_text(pair.reader))}) has no branch for {_brief(type_text(writer))}"
    return Incompatible("MISSING_UNION_BRANCH", path or "/", message)


def _join(path: str, step: str) -> str:
    # A long chain of types makes a long path; beyond this nobody reads it, and it would cost its square.
    if len(path) > _PATH_LENGTH_MAX:
        return path if path.endswith("…") else f"{path}/…"
    return f"{path}/{step}" if step else path or "/"


def _brief(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"
