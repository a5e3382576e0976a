"""Options as they are written: names of several parts, and values that may be whole messages.

Used by declarations and parser; interpreting.py gives them their meaning. An aggregate value is protobuf's text format:
`{ doc: "x" tags: ["a", "b"] [pkg.extension] { ... } }`.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from penstock.schemas.protobuf.tokens import Kind, Token, Words, integer_of


class Part(NamedTuple):
    """One part of an option's name; in parentheses it names an extension."""

    name: str
    is_extension: bool


@dataclass(frozen=True, slots=True)
class Value:
    """`data`: str, int, float, bytes, a tuple of Entry, or a tuple of Value."""

    kind: Literal["name", "integer", "float", "string", "aggregate", "list"]
    data: Any
    start: int


class Entry(NamedTuple):
    """One field of an aggregate; `[name]` is an extension, `[host/name]` the type inside an Any."""

    name: str
    is_extension: bool
    value: Value
    start: int


class Option(NamedTuple):
    parts: tuple[Part, ...]
    value: Value
    start: int

    @property
    def text(self) -> str:
        return ".".join(f"({part.name})" if part.is_extension else part.name for part in self.parts)


class OptionSet(NamedTuple):
    """All options of one element: its descriptor, and its full name, from which extensions are looked for."""

    owner: Any
    scope: str
    options: list[Option]


def statement(words: Words) -> Option:
    """`option name = value;`, after its first word."""
    option = assignment(words)
    words.expect(";")
    return option


def bracketed(words: Words) -> list[Option]:
    """`[name = value, ...]`, if there is one."""
    found: list[Option] = []
    if not words.accept("["):
        return found
    while True:
        found.append(assignment(words))
        if not words.accept(","):
            break
    words.expect("]")
    return found


def assignment(words: Words) -> Option:
    words.count()
    start = words.token.start
    parts = [_part(words)]
    while words.accept("."):
        parts.append(_part(words))
        words.check_parts(len(parts))
    words.expect("=")
    return Option(tuple(parts), _value(words), start)


def _part(words: Words) -> Part:
    if words.accept("("):
        name = words.dotted_name("the name of an extension")
        words.expect(")")
        return Part(name, True)
    return Part(words.name("the name of an option").text, False)


def _value(words: Words) -> Value:
    if words.is_next("{"):
        return _aggregate(words, "{", "}")
    return _scalar(words)


def _scalar(words: Words) -> Value:
    token = words.token
    match token.kind:
        case Kind.STRING:
            return Value("string", words.string("a value"), token.start)
        case Kind.NAME:
            return Value("name", words.take().text, token.start)
        case Kind.INTEGER | Kind.FLOAT:
            return _number(words, words.take(), token.start, 1)
        case _ if words.accept("-"):
            if words.token.text in ("inf", "infinity", "nan"):
                return Value("float", -float(words.take().text), token.start)
            if words.token.kind not in (Kind.INTEGER, Kind.FLOAT):
                words.unexpected("a number")
            return _number(words, words.take(), token.start, -1)
        case _:
            return words.unexpected("a value")


def _number(words: Words, token: Token, start: int, sign: int) -> Value:
    if token.kind is Kind.FLOAT:
        return Value("float", sign * float(token.text), start)
    return Value("integer", sign * integer_of(words, token), start)


def _aggregate(words: Words, opening: str, closing: str) -> Value:
    start = words.token.start
    words.deeper()
    words.expect(opening)
    entries: list[Entry] = []
    while not words.is_next(closing):
        if words.token.kind is Kind.END:
            words.unexpected(f'"{closing}"')
        entries.append(_entry(words))
        if not words.accept(","):
            words.accept(";")
    words.take()
    words.back()
    return Value("aggregate", tuple(entries), start)


def _entry(words: Words) -> Entry:
    words.count()
    start = words.token.start
    is_extension = words.accept("[")
    name = words.dotted_name("the name of a field") if is_extension else words.name("the name of a field").text
    if is_extension:
        if words.accept("/"):
            name += "/" + words.dotted_name("the name of a type")
        words.expect("]")
    # Only before a message may the colon be left out.
    if not words.accept(":") and not (words.is_next("{") or words.is_next("<")):
        words.unexpected('":"')
    return Entry(name, is_extension, _entry_value(words), start)


def _entry_value(words: Words) -> Value:
    if words.is_next("{"):
        return _aggregate(words, "{", "}")
    if words.is_next("<"):
        return _aggregate(words, "<", ">")
    if not words.is_next("["):
        return _scalar(words)
    start = words.take().start
    words.deeper()
    items: list[Value] = []
    while not words.is_next("]"):
        words.count()
        items.append(_entry_value(words))
        if not words.accept(","):
            break
    words.expect("]")
    words.back()
    return Value("list", tuple(items), start)
