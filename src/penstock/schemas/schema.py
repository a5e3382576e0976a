"""What a schema can do, whatever its kind; how one is made; when one may follow another.

Called by the gateway (registry, REST, console). The kinds live in avro.py, json_schema.py and protobuf/.
Laws:
- A ParsedSchema never changes, and reading one needs no network and no file.
- `reader.differences(writer) == []` means: every value that `writer` allows can be read with `reader`.
- parse() raises nothing but SchemaError; differences() and validate() raise nothing at all. All three do bounded work.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, get_args

from penstock.errors import ErrorCode, PenstockError

SCHEMA_BYTES_MAX = 1 << 20
REFERENCES_MAX = 200
DIFFERENCES_MAX = 100
"""How many differences one comparison tells; who has read a hundred knows enough."""

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class SchemaError(PenstockError):
    """A schema that cannot be used: one sentence that names the place inside it."""

    code = ErrorCode.INVALID_REQUEST


class Incompatible(NamedTuple):
    """One reason why data of the older schema cannot be read with the newer one."""

    kind: str
    path: str
    message: str


class Reference(NamedTuple):
    """Another registered schema that this one uses under `name`."""

    name: str
    subject: str
    version: int


class Field(NamedTuple):
    """One line of a schema as a person reads it; `default` is JSON text, None where there is none."""

    name: str
    type: str
    doc: str
    default: str | None


class Level(StrEnum):
    """Which older schemas a new one must get along with, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """The new schema must read old data."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """The old schemas must read new data."""
        return self.value.startswith(("FORWARD", "FULL"))


class ParsedSchema(Protocol):
    """A schema that has passed every check of its kind; made by parse()."""

    @property
    def kind(self) -> Kind: ...

    @property
    def canonical(self) -> str:
        """What a registry keeps, and compares when it looks a schema up."""
        ...

    def normalized(self) -> "ParsedSchema":
        """The same meaning in one spelling."""
        ...

    def differences(self, older: "ParsedSchema") -> list[Incompatible]:
        """Why data written with `older` cannot be read with this one; empty where it can."""
        ...

    def validate(self, payload: memoryview) -> str | None:
        """Why these bytes (without their frame) are no value of this schema; None where they are one."""
        ...

    def fields(self) -> list[Field]: ...


def parse(
    kind: str, text: str, references: Sequence[tuple[str, ParsedSchema]] = (), *, is_new: bool = True
) -> ParsedSchema:
    """The schema in `text`; `references` are the schemas it uses: the name it uses each by, parsed with its own.

    `is_new`: False for one that a registry has already taken, and which must stay readable even if it would be refused
    today (an Avro default that does not fit its type, a name with an umlaut).
    """
    # A character takes at least one byte, so the cheap test guards the encoding of a huge text.
    if len(text) > SCHEMA_BYTES_MAX or len(text.encode(errors="surrogatepass")) > SCHEMA_BYTES_MAX:
        raise SchemaError(f"the schema is longer than {SCHEMA_BYTES_MAX} bytes; split it and use references")
    if not text.strip():
        raise SchemaError("the schema is empty")
    if len(references) > REFERENCES_MAX:
        raise SchemaError(f"the schema has {len(references)} references, more than {REFERENCES_MAX}")
    names = [name for name, _ in references]
    for name in names:
        if not name:
            raise SchemaError("a reference has an empty name; name it as the schema uses it")
        if names.count(name) > 1:
            raise SchemaError(f"the reference {name!r} is given twice; give each name once")
    for name, schema in references:
        if schema.kind != kind:
            raise SchemaError(f"the reference {name!r} is a schema of kind {schema.kind}, not {kind}")
    match kind:
        case "AVRO":
            from penstock.schemas.avro import parse_avro

            return parse_avro(text, references, is_new=is_new)
        case "JSON":
            from penstock.schemas.json_schema import parse_json

            return parse_json(text, references)
        case "PROTOBUF":
            from penstock.schemas.protobuf import parse_protobuf

            return parse_protobuf(text, references)
        case _:
            raise SchemaError(f"{kind!r} is no kind of schema; use one of {', '.join(KINDS)}")


def compatibility(level: Level, candidate: ParsedSchema, older: Sequence[ParsedSchema]) -> list[Incompatible]:
    """Why `candidate` may not follow `older` (newest last) under this level; empty where it may."""
    found = first_incompatible(level, candidate, older)
    return [] if found is None else found[1]


def first_incompatible(
    level: Level, candidate: ParsedSchema, older: Sequence[ParsedSchema]
) -> tuple[int, list[Incompatible]] | None:
    """The newest of `older` that `candidate` does not get along with, as its place in `older`, and why."""
    if level is Level.NONE:
        return None
    first = 0 if level.is_transitive else max(0, len(older) - 1)
    for place in range(len(older) - 1, first - 1, -1):
        found: list[Incompatible] = []
        if level.is_backward:
            found += candidate.differences(older[place])
        if level.is_forward:
            found += older[place].differences(candidate)
        if found:
            # What is wrong in both directions is told once.
            return place, list(dict.fromkeys(found))[:DIFFERENCES_MAX]
    return None


def kind_changed(newer: ParsedSchema, older: ParsedSchema) -> list[Incompatible]:
    """The one difference between schemas of two kinds; empty where the kinds are equal."""
    if newer.kind == older.kind:
        return []
    return [Incompatible("TYPE_MISMATCH", "/", f"one schema is {older.kind}, the other {newer.kind}")]
