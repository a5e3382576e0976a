"""Spark's DDL (`id BIGINT, tags ARRAY<STRING>`) read without Spark.

Called by resolving and the JSON decoder. Spark's own parser needs a JVM, which neither the Python process that plans a
source nor a task has. A text that starts with a brace is Spark's schema JSON or a JSON Schema: see json_schema.
"""

import re
from collections.abc import Callable

from pyspark.sql import types as t

from penstock.spark.errors import BadOption

NESTING_MAX = 64

_TOKEN = re.compile(
    r"\s*(?:(?P<word>\w+)|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<sign>[<>(),:]))"
)

_PLAIN: dict[str, Callable[[], t.DataType]] = {
    "boolean": t.BooleanType,
    "tinyint": t.ByteType,
    "byte": t.ByteType,
    "smallint": t.ShortType,
    "short": t.ShortType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "bigint": t.LongType,
    "long": t.LongType,
    "float": t.FloatType,
    "real": t.FloatType,
    "double": t.DoubleType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ltz": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
    "string": t.StringType,
    "binary": t.BinaryType,
}


def parse_ddl(text: str) -> t.DataType:
    """Columns (a struct) or one type; BadOption with the place of the mistake."""
    reader = _Reader(text)
    # One type by itself is one word, or a word with brackets: `array<int>`; columns have at least two words.
    first = reader.peek_type_word()
    if first in ("array", "map", "struct") or (first in _PLAIN and reader.count == 1):
        found = reader.type(0)
    else:
        found = t.StructType(reader.fields(0, None))
    reader.end()
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._next = 0
        at = 0
        text = text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._mistake(f"unexpected {text[at:].strip()[:10]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self.count = len(self._tokens)

    def peek_type_word(self) -> str:
        """The first word, if a bracket or the end follows it; a column's name is followed by its type."""
        if self.count == 0:
            raise self._mistake("there is nothing in it")
        kind, word = self._tokens[0]
        is_type = kind == "word" and (self.count == 1 or self._tokens[1][1] in ("<", "("))
        return word.lower() if is_type else ""

    def fields(self, depth: int, closing: str | None) -> list[t.StructField]:
        found: list[t.StructField] = []
        if closing is not None and self._take(closing):
            return found
        while True:
            name = self._name()
            self._take(":")
            kind = self.type(depth + 1)
            is_nullable = True
            if self._take_word("not"):
                self._expect_word("null")
                is_nullable = False
            if self._take_word("comment"):
                self._next += 1
            if any(field.name == name for field in found):
                raise self._mistake(f"column {name} is named twice")
            found.append(t.StructField(name, kind, is_nullable))
            if self._take(","):
                continue
            if closing is not None:
                self._expect(closing)
            return found

    def type(self, depth: int) -> t.DataType:
        if depth > NESTING_MAX:
            raise self._mistake(f"types are nested deeper than {NESTING_MAX}")
        kind, word = self._token()
        name = word.lower()
        if kind == "word":
            if name in _PLAIN:
                return _PLAIN[name]()
            if name == "array":
                self._expect("<")
                element = self.type(depth + 1)
                self._expect(">")
                return t.ArrayType(element)
            if name == "map":
                self._expect("<")
                key = self.type(depth + 1)
                self._expect(",")
                value = self.type(depth + 1)
                self._expect(">")
                return t.MapType(key, value)
            if name == "struct":
                self._expect("<")
                return t.StructType(self.fields(depth, ">"))
            if name in ("decimal", "dec", "numeric"):
                return self._decimal()
            if name in ("varchar", "char", "character"):
                self._numbers()
                return t.StringType()
        raise self._mistake(f"unknown type {word!r}")

    def end(self) -> None:
        if self._next < self.count:
            raise self._mistake(f"unexpected {self._tokens[self._next][1]!r}")

    def _decimal(self) -> t.DecimalType:
        numbers = self._numbers()
        precision, scale = (*numbers, 10, 0)[:2] if not numbers else (*numbers, 0)[:2]
        if not (0 < precision <= 38 and 0 <= scale <= precision):
            raise self._mistake(f"decimal({precision},{scale}) is not possible")
        return t.DecimalType(precision, scale)

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if self._take("("):
            while True:
                kind, word = self._token()
                if kind != "word" or not word.isascii() or not word.isdigit() or len(word) > 9:
                    raise self._mistake(f"{word!r} is no number")
                numbers.append(int(word))
                if not self._take(","):
                    break
            self._expect(")")
        return numbers

    def _name(self) -> str:
        kind, word = self._token()
        if kind == "quoted":
            return word[1:-1].replace("``", "`")
        if kind != "word":
            raise self._mistake(f"a column's name is missing before {word!r}")
        return word

    def _token(self) -> tuple[str, str]:
        if self._next >= self.count:
            raise self._mistake("it ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def _take(self, sign: str) -> bool:
        is_there = self._next < self.count and self._tokens[self._next] == ("sign", sign)
        self._next += is_there
        return is_there

    def _take_word(self, word: str) -> bool:
        is_there = self._next < self.count and self._tokens[self._next][1].lower() == word
        self._next += is_there
        return is_there

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            found = self._tokens[self._next][1] if self._next < self.count else "the end"
            raise self._mistake(f"{sign!r} is missing before {found!r}")

    def _expect_word(self, word: str) -> None:
        if not self._take_word(word):
            raise self._mistake(f"{word.upper()} is missing")

    def _mistake(self, why: str) -> BadOption:
        shown = " ".join(self._text.split())
        return BadOption(f"the schema {shown[:80]!r} is no Spark DDL: {why}")
