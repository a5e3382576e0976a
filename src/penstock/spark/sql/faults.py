"""What Spark says about a query, as one sentence with a place in it.

Called by cli.sql. Spark's own messages are kept where they are clear; its codes, SQL states, plans and class names go.
For what a stream cannot do there is a sentence of ours that says what to write instead.
"""

import re
from typing import Any

from penstock.spark.errors import reason
from penstock.spark.sql.naming import BadQuery

# Part of Spark's condition or message, and what to tell. The first that fits counts.
_STREAMS = (
    ("Sorting is not supported", "rows without an end cannot be sorted: drop ORDER BY, aggregate, or drop --follow"),
    (
        "NON_TIME_WINDOW_NOT_SUPPORTED",
        "window functions (OVER) need all rows: drop --follow, or GROUP BY window(timestamp, '1 minute')",
    ),
    ("Distinct aggregations", "counting distinct values keeps every row for ever: use approx_count_distinct(…)"),
    ("Limits are not supported", "LIMIT does not go with this query while following: use --limit"),
    ("Offset is not supported", "OFFSET has no meaning while following: drop it, or drop --follow"),
    (
        "join between two streaming",
        "an outer join of two topics must know how long a row may wait for its match: give --watermark and bound both "
        "timestamps in ON, as a.timestamp BETWEEN b.timestamp AND b.timestamp + INTERVAL 1 MINUTE; or drop --follow",
    ),
    (
        "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY",
        "a followed topic cannot stand in IN (…), EXISTS (…) or for a value: write it as a JOIN, or drop --follow",
    ),
    ("WRITE_STREAM_NOT_ALLOWED", "no topic is named in this query: there is nothing to follow"),
    ("'correctness' issue", "an aggregation of an aggregation cannot be followed: drop --follow"),
    ("on a streaming DataFrame/Dataset", "this combination of topics (EXCEPT, INTERSECT …) cannot be followed"),
)
_CODE = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_PLACE = re.compile(r";?\s*\(?\bline (?P<line>\d+),? pos (?P<column>\d+)\)?;?")
_SENTENCES_MAX = 300


def explain_query(error: BaseException, query: str, *, is_following: bool) -> BadQuery:
    """Spark's ParseException or AnalysisException (or any other) as ours."""
    if isinstance(error, BadQuery):
        return error
    text = reason(error)
    whole = f"{_condition(error)} {error}"
    if is_following:
        for mark, told in _STREAMS:
            if mark in whole:
                return BadQuery(told)
    at = find_place(error, query)
    told = plain_sentence(text)
    if at is None:
        return BadQuery(told)
    line, column = at
    return BadQuery(f"line {line}, column {column}: {told}\n{point_at(query, line, column)}")


def plain_sentence(text: str) -> str:
    """Without codes and places; one or two sentences."""
    text = _PLACE.sub("", _STATE.sub("", _CODE.sub("", text.strip()))).strip().rstrip(";")
    if len(text) > _SENTENCES_MAX:
        text = text[:_SENTENCES_MAX].rpartition(" ")[0] + " …"
    return text.replace("A column, variable, or function parameter with name", "column")


def find_place(error: BaseException, query: str) -> tuple[int, int] | None:
    """Line and column, both from 1. Spark counts columns from 0."""
    found = list(_PLACE.finditer(str(error)))
    if found:
        line, column = int(found[0]["line"]), int(found[0]["column"]) + 1
        return (line, column) if line <= query.count("\n") + 1 else None
    return None


def point_at(query: str, line: int, column: int) -> str:
    """The line of the query, and a mark below the place."""
    text = query.split("\n")[line - 1]
    # Tabs stay tabs, so that the mark stands where a terminal shows the place.
    before = "".join("\t" if letter == "\t" else " " for letter in text[: column - 1])
    return f"  {text}\n  {before}^"


def _condition(error: Any) -> str:
    condition = getattr(error, "getCondition", None)
    try:
        return str(condition() or "") if condition is not None else ""
    except Exception:  # the gateway to the JVM may be gone with it; the message is what we have
        return ""
