"""Are these bytes a value of an Avro schema? Walked over, never built.

Called by avro.py. A decoder would make the value, and what it makes can be far larger than the bytes: eight of them
announce an array of 2^60 nulls. This walk keeps nothing, so its cost is that of reading the bytes once. Laws:
- A value is fine only if it ends where the bytes end.
- A record's walk has no steps but those that consume bytes, so the bytes bound the steps.
- BadValue is the only way out for bad bytes; it carries the place.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.schemas.avro_model import Array, Enum, Fixed, Map, Primitive, Record, Type, Union, nested
from penstock.schemas.avro_skips import (
    PRIMITIVE_SKIPS,
    BadValue,
    Skip,
    blocks,
    branches,
    deeper,
    sized,
    skip_string,
    symbol,
)


def value_walker(root: Type) -> Callable[[bytes], None]:
    """A function that raises BadValue unless its bytes are one whole value of `root`."""
    skip = _Compiler().compile(root)

    def walk(data: bytes) -> None:
        end = skip(data, 0, 0)
        if end != len(data):
            raise BadValue(f"{len(data) - end} bytes are left over after the value")

    return walk


@dataclass(slots=True, eq=False)
class _RecordSkip:
    """A record's fields in order; filled in after it is made, since they may hold the record itself."""

    names: tuple[str, ...] = ()
    skips: tuple[Skip, ...] = ()

    def __call__(self, data: bytes, at: int, depth: int, /) -> int:
        depth = deeper(depth)
        done = 0
        try:
            for skip in self.skips:
                at = skip(data, at, depth)
                done += 1
        except BadValue as bad:
            bad.steps.append(self.names[done])
            raise
        return at


class _Compiler:
    def __init__(self) -> None:
        self._records: dict[int, _RecordSkip] = {}
        self._to_fill: list[Record] = []
        self._empty: set[int] = set()

    def compile(self, root: Type) -> Skip:
        self._empty = _types_without_bytes(root)
        skip = self._skip(root)
        # Record by record instead of one within the other: a chain of types may be longer than the stack.
        while self._to_fill:
            record = self._to_fill.pop()
            # Fields without bytes are left out, or a few bytes could ask for a million steps over them.
            fields = [field for field in record.fields if not _takes_no_bytes(field.type, self._empty)]
            made = self._records[id(record)]
            made.names = tuple(field.name for field in fields)
            made.skips = tuple(self._skip(field.type) for field in fields)
        return skip

    def _skip(self, type_: Type) -> Skip:
        match type_:
            case Primitive():
                return PRIMITIVE_SKIPS[type_.name]
            case Array():
                return blocks(None, self._skip(type_.items), is_empty=_takes_no_bytes(type_.items, self._empty))
            case Map():
                return blocks(skip_string, self._skip(type_.values), is_empty=False)
            case Union():
                return branches(tuple(self._skip(branch) for branch in type_.branches))
            case Fixed():
                return sized(type_.size)
            case Enum():
                return symbol(len(type_.symbols))
            case Record():
                made = self._records.get(id(type_))
                if made is None:
                    made = self._records[id(type_)] = _RecordSkip()
                    self._to_fill.append(type_)
                return made


def _types_without_bytes(root: Type) -> set[int]:
    """The records whose values take no bytes: all their fields are null, of size 0 or such records again."""
    records = list(_reachable_records(root))
    empty: set[int] = set()

    users: dict[int, list[Record]] = {}
    for record in records:
        for field in record.fields:
            if isinstance(field.type, Record):
                users.setdefault(id(field.type), []).append(record)
    waiting = list(records)
    while waiting:
        record = waiting.pop()
        if id(record) not in empty and all(_takes_no_bytes(field.type, empty) for field in record.fields):
            empty.add(id(record))
            waiting += users.get(id(record), ())
    return empty


def _takes_no_bytes(type_: Type, empty_records: set[int]) -> bool:
    match type_:
        case Primitive():
            return type_.name == "null"
        case Fixed():
            return type_.size == 0
        case Record():
            return id(type_) in empty_records
        case _:
            return False


def _reachable_records(root: Type) -> Iterable[Record]:
    seen: dict[int, Record] = {}
    waiting = [root]
    while waiting:
        type_ = waiting.pop()
        if not isinstance(type_, Record):
            waiting += nested(type_)
        elif id(type_) not in seen:
            seen[id(type_)] = type_
            waiting += [field.type for field in type_.fields]
    return seen.values()
