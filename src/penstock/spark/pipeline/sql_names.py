"""Which tables a SQL text reads, found without Spark.

Called by pipeline.graph, so that `validate` needs no Java. Reads tokens, not grammar: what stands after FROM, JOIN and
their commas is a table unless it is a subquery, a function or a name that WITH defines. A name with a dot in it
belongs to a catalog and is not ours. Where that is not enough, a step says its `inputs` itself.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<text>r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.)*")"""
    r"""|(?P<quoted>`(?:[^`]|``)*`)|(?P<word>[A-Za-z_]\w*)|(?P<other>.)""",
    re.DOTALL,
)
# FROM inside the brackets of these does not name a table.
_FROM_OF_ITS_OWN = frozenset({"extract", "trim", "substring", "substr", "overlay", "position"})
# What ends a list of tables.
_ENDS = frozenset(
    [
        "where",
        "group",
        "order",
        "having",
        "limit",
        "window",
        "union",
        "intersect",
        "except",
        "sort",
        "distribute",
        "cluster",
        "on",
        "using",
        "lateral",
        "pivot",
        "unpivot",
        "qualify",
        "offset",
    ]
)
_NOT_TABLES = frozenset({"lateral", "values"})


QUERY_WORDS = frozenset({"select", "with", "from", "values", "table", "("})


class Read(NamedTuple):
    """A table's name, and where it stands in the text; lines and columns count from 1."""

    name: str
    line: int
    column: int


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def tables_read(sql: str) -> list[Read]:
    """Each name once, in the order of the text."""
    tokens = list(_tokens(sql))
    defined = _defined_by_with(tokens)
    found: dict[str, Read] = {}
    # One entry per open bracket: is a table expected next, are we in a list of tables, whose brackets are they?
    stack: list[tuple[bool, str]] = []
    is_expected = is_in_list = False
    opener = ""
    for slot, token in enumerate(tokens):
        before = tokens[slot - 1].word if slot else ""
        if token.text == "(" and token.kind == "other":
            # `FROM (a JOIN b)` has a table inside as well; `FROM (SELECT …)` is told by its SELECT.
            stack.append((is_in_list, opener))
            opener = before
            is_in_list = is_expected
        elif token.text == ")" and token.kind == "other" and stack:
            is_in_list, opener = stack.pop()
            is_expected = False
        elif token.word == "from":
            is_ours = opener not in _FROM_OF_ITS_OWN and not (before == "distinct" and _is_word(tokens, slot - 2))
            is_expected, is_in_list = is_ours, is_ours or is_in_list
        elif token.word == "join":
            is_expected = is_in_list = True
        elif token.text == "," and token.kind == "other":
            is_expected = is_in_list
        elif token.word in {"select", "with"} or (token.word in _ENDS and not is_expected):
            is_in_list = is_expected = False
        elif is_expected and token.kind in {"word", "quoted"}:
            is_expected = False
            name = token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
            after = tokens[slot + 1].text if slot + 1 < len(tokens) else ""
            is_ours = after not in {".", "("} and name.lower() not in defined | _NOT_TABLES
            if is_ours and name.lower() not in found:
                above = sql[: token.start]
                line = above.count("\n") + 1
                found[name.lower()] = Read(name, line, token.start - (above.rfind("\n") + 1) + 1)
    return list(found.values())


def first_word(sql: str) -> str:
    """In small letters; empty where there is none."""
    return next((token.text.lower() for token in _tokens(sql)), "")


def writing_word(sql: str) -> str:
    """INSERT and its like behind a WITH or a FROM, in small letters; empty where the text only reads."""
    depth = 0
    tokens = list(_tokens(sql))
    for token, after in pairwise(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "other" else 0
        if depth:
            continue
        # All four may be names of columns as well, so that what stands around them must fit.
        if token.word == "insert" and after.word in {"into", "overwrite", "with"}:
            return token.word
        if token.text == ")" and tokens[0].word == "with" and after.word in {"update", "delete", "merge"}:
            return after.word
    return ""


def _is_word(tokens: list[_Token], slot: int) -> bool:
    """IS DISTINCT FROM and IS NOT DISTINCT FROM compare; SELECT DISTINCT … FROM never has the two side by side."""
    return slot >= 0 and tokens[slot].word in {"is", "not"}


def _defined_by_with(tokens: list[_Token]) -> set[str]:
    """`WITH a AS (…), b (x, y) AS (…)`: a name before AS and a bracket."""
    names: set[str] = set()
    if not any(token.word == "with" for token in tokens):
        return names
    for slot, token in enumerate(tokens[:-1]):
        if token.word == "as" and tokens[slot + 1].text == "(" and slot:
            back = slot - 1
            if tokens[back].text == ")":
                while back > 0 and tokens[back].text != "(":
                    back -= 1
                back -= 1
            names.add(tokens[back].text.strip("`").lower())
    return names


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(sql):
        kind = match.lastgroup or "other"
        if kind not in {"space", "comment"}:
            yield _Token(kind, match.group(), match.start())
