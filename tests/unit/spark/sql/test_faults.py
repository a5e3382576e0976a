"""Spark's complaints, as one sentence with a place."""

import pytest

from penstock.spark.sql.faults import explain_query, point_at
from penstock.spark.sql.naming import BadQuery, nearest_names, quote


class SparkError(Exception):
    def __init__(self, text: str, condition: str = "") -> None:
        super().__init__(text)
        self.getCondition = lambda: condition


PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'GRUP'. SQLSTATE: 42601 (line 2, pos 2)

== SQL ==
SELECT a FROM t
  GRUP BY a
--^^^
"""
COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be "
    "resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]\n+- Range"
)


def test_a_syntax_error_names_line_and_column_and_points_there() -> None:
    told = str(explain_query(SparkError(PARSE), "SELECT a FROM t\n  GRUP BY a", is_following=False))
    assert told == "line 2, column 3: Syntax error at or near 'GRUP'.\n    GRUP BY a\n    ^"


def test_an_unknown_column_comes_without_plan_codes_or_states() -> None:
    told = str(explain_query(SparkError(COLUMN), "SELECT nope FROM t", is_following=False))
    assert told.startswith("line 1, column 8: column `nope` cannot be resolved. Did you mean")
    assert "SQLSTATE" not in told
    assert "Project" not in told
    assert told.endswith("\n  SELECT nope FROM t\n         ^")


@pytest.mark.parametrize(
    ("text", "condition", "advice"),
    [
        ("Sorting is not supported on streaming DataFrames/Datasets, unless …", "", "ORDER BY"),
        ("[NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING] Window …", "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING", "OVER"),
        ("Distinct aggregations are not supported on streaming", "", "approx_count_distinct"),
        ("Stream-stream LeftOuter join between two streaming DataFrame/Datasets …", "", "--watermark"),
        ("Invalid subquery", "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY", "JOIN"),
        ("[WRITE_STREAM_NOT_ALLOWED] `writeStream` can …", "WRITE_STREAM_NOT_ALLOWED", "nothing to follow"),
    ],
)
def test_what_a_stream_cannot_do_comes_with_what_to_write_instead(text: str, condition: str, advice: str) -> None:
    told = str(explain_query(SparkError(text, condition), "SELECT 1", is_following=True))
    assert advice in told
    assert "\n" not in told
    assert advice not in str(explain_query(SparkError("something else"), "SELECT 1", is_following=True))


def test_our_own_sentences_pass_as_they_are() -> None:
    ours = BadQuery("there is no topic ordrs")
    assert explain_query(ours, "SELECT 1", is_following=False) is ours


def test_the_mark_stands_below_its_place_after_tabs_too() -> None:
    assert point_at("\tSELECT x", 1, 9) == "  \tSELECT x\n  \t       ^"


def test_names_that_may_have_been_meant_are_found_whatever_their_case() -> None:
    assert nearest_names("ordrs", ["orders", "payments", "Orders.v2"])[0] == "orders"
    assert nearest_names("ORDERS", ["orders"]) == ["orders"]
    assert nearest_names("xyz", ["orders"]) == []


def test_a_name_is_quoted_for_sql() -> None:
    assert quote("a`b.c") == "`a``b.c`"
