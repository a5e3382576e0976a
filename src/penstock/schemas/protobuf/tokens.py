"""The words of .proto source, one at a time, each with its place.

Used by parser.py and its parts. Laws:
- Words are cut as the parser asks for them: memory does not grow with the text.
- Every refusal is a SchemaError that begins with line:column.
- What one schema may hold (ELEMENTS_MAX) and how deep it may nest (DEPTH_MAX) is counted here, since every part of the
  parser passes through.
"""

import re
from enum import Enum, auto
from typing import NamedTuple, NoReturn

from penstock.schemas.protobuf.literals import unescape
from penstock.schemas.schema import SchemaError

ELEMENTS_MAX = 20_000
"""Fields, values, options, ranges, imports and list items of one schema."""
DEPTH_MAX = 32
"""Messages in messages, and values in option values: as deep as protoc goes."""
NAME_LENGTH_MAX = 1000
"""Of one word, and of the name of a file to import: names come back in errors."""
NAME_PARTS_MAX = 100

_SHOWN_MAX = 40
_SPACE = re.compile(r"[ \t\r\n\f\v]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORD = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<float>(?:[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+))
      | (?P<integer>0[xX][0-9A-Fa-f]+|[0-9]+)
      | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
      | (?P<symbol>[{}()\[\]<>=;,.:/\-])""",
    re.VERBOSE,
)


class Kind(Enum):
    NAME = auto()
    INTEGER = auto()
    FLOAT = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


_KINDS = {
    "name": Kind.NAME,
    "float": Kind.FLOAT,
    "integer": Kind.INTEGER,
    "string": Kind.STRING,
    "symbol": Kind.SYMBOL,
}


class Token(NamedTuple):
    kind: Kind
    text: str
    start: int


class Words:
    """A cursor over the text: `token` is the word not yet taken."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._elements = 0
        self._depth = 0
        # The comments between the word last taken and `token`, as places in the text.
        self._comments: list[tuple[int, int]] = []
        self._last_end = 0
        self.token = self._cut(1 if text.startswith("\ufeff") else 0)

    def take(self) -> Token:
        taken = self.token
        self._last_end = taken.start + len(taken.text)
        self.token = self._cut(self._last_end)
        return taken

    def accept(self, text: str) -> bool:
        """Take the next word if it is this symbol or name."""
        if self.token.text == text and self.token.kind is not Kind.STRING:
            self.take()
            return True
        return False

    def is_next(self, text: str) -> bool:
        return self.token.text == text and self.token.kind is not Kind.STRING

    def expect(self, text: str) -> Token:
        if not self.is_next(text):
            self.unexpected(f'"{text}"')
        return self.take()

    def name(self, what: str) -> Token:
        if self.token.kind is not Kind.NAME:
            self.unexpected(what)
        return self.take()

    def dotted_name(self, what: str) -> str:
        """A name of one or more parts, with or without a dot in front."""
        parts = [""] if self.accept(".") else []
        parts.append(self.name(what).text)
        while self.accept("."):
            parts.append(self.name(what).text)
            self.check_parts(len(parts))
        return ".".join(parts)

    def check_parts(self, count: int) -> None:
        if count > NAME_PARTS_MAX:
            self.refuse(f"a name of more than {NAME_PARTS_MAX} parts is too long")

    def integer(self, what: str, low: int, high: int) -> int:
        """A number of this range, with its sign."""
        start = self.token.start
        is_negative = low < 0 and self.accept("-")
        if self.token.kind is not Kind.INTEGER:
            self.unexpected(what)
        value = integer_of(self, self.take())
        value = -value if is_negative else value
        if not low <= value <= high:
            self.refuse(f"{what} must lie between {low} and {high}", start)
        return value

    def string(self, what: str) -> bytes:
        """One string, or several side by side, which are one."""
        if self.token.kind is not Kind.STRING:
            self.unexpected(what)
        pieces: list[bytes] = []
        while self.token.kind is Kind.STRING:
            token = self.take()
            try:
                pieces.append(unescape(token.text[1:-1]))
            except ValueError as error:
                self.refuse(str(error), token.start)
        return b"".join(pieces)

    def text_string(self, what: str) -> str:
        start = self.token.start
        try:
            return self.string(what).decode()
        except UnicodeDecodeError:
            self.refuse(f"{what} is no UTF-8 text", start)

    def leading_comment(self) -> str:
        """The comment right before the next word, if it stands on lines of its own."""
        lines: list[str] = []
        below = self.token.start
        for start, end in reversed(self._comments):
            gap = self.text[end:below]
            if gap.count("\n") > 1 or (self._last_end and "\n" not in self.text[self._last_end : start]):
                break
            lines.insert(0, _comment_text(self.text[start:end]))
            below = start
        return "\n".join(lines).strip()

    def trailing_comment(self) -> str:
        """The comment on the line of the word last taken."""
        if not self._comments:
            return ""
        start, end = self._comments[0]
        return "" if "\n" in self.text[self._last_end : start] else _comment_text(self.text[start:end])

    def count(self) -> None:
        self._elements += 1
        if self._elements > ELEMENTS_MAX:
            self.refuse(f"the schema has more than {ELEMENTS_MAX} elements; split it and use references")

    def deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self.refuse(f"the schema nests deeper than {DEPTH_MAX}")

    def back(self) -> None:
        self._depth -= 1

    def unexpected(self, expected: str) -> NoReturn:
        token = self.token
        found = "the end of the schema" if token.kind is Kind.END else f"{token.text[:_SHOWN_MAX]!r}"
        self.refuse(f"expected {expected}, found {found}")

    def refuse(self, why: str, start: int | None = None) -> NoReturn:
        raise SchemaError(f"{self.place(self.token.start if start is None else start)}: {why}")

    def place(self, start: int) -> str:
        line = self.text.count("\n", 0, start) + 1
        return f"{line}:{start - self.text.rfind(chr(10), 0, start)}"

    def _cut(self, start: int) -> Token:
        text = self.text
        self._comments = []
        while space := _SPACE.match(text, start):
            if text[start] == "/":
                self._comments.append((start, space.end()))
            start = space.end()
        if start >= len(text):
            return Token(Kind.END, "", len(text))
        word = None if text.startswith("/*", start) else _WORD.match(text, start)
        if word is None:
            self.refuse(_why_no_word(text, start), start)
        assert word.lastgroup is not None
        token = Token(_KINDS[word.lastgroup], word.group(), start)
        if token.kind is Kind.NAME and len(token.text) > NAME_LENGTH_MAX:
            self.refuse(f"a name of more than {NAME_LENGTH_MAX} characters is too long", start)
        after = text[word.end() : word.end() + 1]
        if after and token.kind in (Kind.INTEGER, Kind.FLOAT) and (after.isalnum() or after in ("_", ".")):
            self.refuse(f"{text[start : start + _SHOWN_MAX].split()[0]!r} is no number", start)
        return token


def integer_of(words: Words, token: Token) -> int:
    """The value of an integer word: decimal, hexadecimal or octal."""
    text = token.text
    # Python turns long decimals into numbers in quadratic time, and nothing in the language is longer than 64 bits.
    if len(text) > 32:
        words.refuse("the number is too large", token.start)
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if len(text) > 1 and text[0] == "0":
        try:
            return int(text, 8)
        except ValueError:
            words.refuse(f"{text!r} begins with 0 and so is octal, but has digits above 7", token.start)
    return int(text)


def _comment_text(comment: str) -> str:
    if comment.startswith("//"):
        return comment.lstrip("/").strip()
    lines = comment[2:-2].split("\n")
    return "\n".join(line.strip().lstrip("*").strip() for line in lines).strip()


def _why_no_word(text: str, start: int) -> str:
    character = text[start]
    if character in "\"'":
        return "this string has no end on its line"
    if text.startswith("/*", start):
        return "this comment has no end"
    return f"the character {character!r} has no meaning here"
