"""An Avro schema: read, printed, compared, and used to check values.

Called by schema.parse(). The parts: avro_parse (JSON to types), avro_defaults, avro_print (types to text),
avro_resolution (may this reader read that writer?), avro_values (are these bytes a value?).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from penstock.schemas.avro_defaults import check_defaults
from penstock.schemas.avro_model import Array, Map, Named, Record, Type, Union, type_text
from penstock.schemas.avro_parse import AvroParser
from penstock.schemas.avro_print import print_avro
from penstock.schemas.avro_resolution import resolution_differences
from penstock.schemas.avro_skips import BadValue
from penstock.schemas.avro_values import value_walker
from penstock.schemas.json_text import dump, load
from penstock.schemas.schema import Field, Incompatible, Kind, ParsedSchema, SchemaError, kind_changed

FIELDS_MAX = 2000
_FIELD_DEPTH_MAX = 50


def parse_avro(text: str, references: Sequence[tuple[str, ParsedSchema]], *, is_new: bool = True) -> "AvroSchema":
    known = _referenced_types(references)
    parser = AvroParser(known, is_new=is_new)
    root = parser.type(load(text))
    if is_new:
        check_defaults(parser.defined.values())
    return AvroSchema(root, parser.defined, {**known, **parser.defined})


class AvroSchema:
    """Immutable. `named` are the types it can name to those that refer to it: its own and its references'."""

    kind: Kind = "AVRO"

    def __init__(
        self, root: Type, defined: Mapping[str, Named], named: Mapping[str, Named], *, is_normalized: bool = False
    ) -> None:
        self.root = root
        self.named = named
        self._defined = defined
        self._is_normalized = is_normalized
        self._canonical = print_avro(root, defined, is_normalized=is_normalized)

    @property
    def canonical(self) -> str:
        return self._canonical

    def normalized(self) -> "AvroSchema":
        return self if self._is_normalized else AvroSchema(self.root, self._defined, self.named, is_normalized=True)

    def differences(self, older: ParsedSchema) -> list[Incompatible]:
        if not isinstance(older, AvroSchema):
            return kind_changed(self, older)
        return resolution_differences(self.root, older.root)

    def validate(self, payload: memoryview) -> str | None:
        try:
            self._walk(bytes(payload))
        except BadValue as bad:
            return str(bad)
        return None

    def fields(self) -> list[Field]:
        found: list[Field] = []
        for field in _fields(self.root, "", ()):
            if len(found) == FIELDS_MAX:
                break
            found.append(field)
        return found or [Field("", type_text(self.root), "", None)]

    @cached_property
    def _walk(self) -> Callable[[bytes], None]:
        return value_walker(self.root)


def _referenced_types(references: Sequence[tuple[str, ParsedSchema]]) -> dict[str, Named]:
    known: dict[str, Named] = {}
    for name, schema in references:
        assert isinstance(schema, AvroSchema)
        for full_name, named in schema.named.items():
            other = known.setdefault(full_name, named)
            # Two references may both use a third: the same type, parsed twice.
            if other is not named and _definition(other) != _definition(named):
                raise SchemaError(f"{full_name!r} is defined differently by {name!r} and by another reference")
    return known


def _definition(named: Named) -> str:
    return print_avro(named, {named.full_name: named}, is_normalized=True)


def _fields(type_: Type, prefix: str, path: tuple[Record, ...]) -> Iterator[Field]:
    """The fields below a type, each before those inside it; a record inside itself is not entered again."""
    match type_:
        case Record():
            if type_ in path or len(path) >= _FIELD_DEPTH_MAX:
                return
            for field in type_.fields:
                name = f"{prefix}.{field.name}" if prefix else field.name
                doc = field.properties.get("doc")
                default = dump(field.default) if field.has_default else None
                yield Field(name, type_text(field.type), doc if isinstance(doc, str) else "", default)
                yield from _fields(field.type, name, (*path, type_))
        case Array():
            yield from _fields(type_.items, f"{prefix}[]", path)
        case Map():
            yield from _fields(type_.values, f"{prefix}{{}}", path)
        case Union():
            for branch in type_.branches:
                yield from _fields(branch, prefix, path)
        case _:
            return
