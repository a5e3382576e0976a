"""What requests say, read within bounds: numbers of the query and the path, fields of a body, moments."""

from typing import Any

import pytest
from starlette.requests import Request

from penstock.gateway.errors import HttpProblem
from penstock.gateway.rest.reading import fields, integer, is_c_string, path_int, query_number
from penstock.gateway.rest.timestamps import read_time, told_time

MISSING = HttpProblem(404, 404, "Not there.")


def _request(query: str = "", **path: str) -> Request:
    return Request({"type": "http", "headers": [], "query_string": query.encode(), "path_params": path})


@pytest.mark.parametrize(
    ("query", "number"), [("", None), ("n=5", 5), ("n=-1", -1), ("n=007", 7), ("n=9&n=8", 8), ("m=1", None)]
)
def test_a_number_of_the_query_is_read_or_absent(query: str, number: int | None) -> None:
    assert query_number(_request(query), "n", -1, 9) == number


@pytest.mark.parametrize("text", ["", "x", "10", "-2", "--1", "1.0", "+1", "%D9%A1", "9" * 5000])
def test_what_is_no_number_within_bounds_is_refused(text: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        query_number(_request(f"n={text}"), "n", -1, 9)
    assert (refused.value.status, len(refused.value.message) < 100) == (400, True)


def test_a_number_in_the_path_that_cannot_be_is_one_that_is_not_there() -> None:
    assert path_int(_request(n="2147483647"), "n", MISSING) == 2**31 - 1
    for text in ("2147483648", "-1", "x", "٣"):
        with pytest.raises(HttpProblem) as refused:
            path_int(_request(n=text), "n", MISSING)
        assert refused.value is MISSING


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "must be a JSON object"),
        ({"c": 1}, "unknown field 'c': use a, b"),
        ({"x" * 5000: 1}, "unknown field"),
        ({"a": "1"}, "'a' of it has the wrong type"),
        ({"a": True}, "'a' of it has the wrong type"),
        ({"b": 1.5}, "'b' of it has the wrong type"),
    ],
)
def test_a_body_with_a_wrong_field_is_told_which(value: Any, told: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        fields(value, "it", {"a": int, "b": (str, int)}, status=400)
    assert told in refused.value.message
    assert refused.value.status == 400
    assert len(refused.value.message) < 200


def test_null_stands_for_a_field_that_is_left_out() -> None:
    assert fields({"a": None, "b": "x"}, "it", {"a": int, "b": str}) == {"a": None, "b": "x"}
    for value in (None, True, -1, 11, "5"):
        with pytest.raises(HttpProblem):
            integer(value, "n", 0, 10)


def test_librdkafka_is_given_only_what_c_can_say() -> None:
    assert is_c_string("größe 😀")
    assert not is_c_string("a\0b")
    assert not is_c_string("\ud83d")


def test_a_moment_that_was_told_is_read_back() -> None:
    # Of some, seconds as a float lose a millisecond.
    for moment in (1, 1_096_956_680_511, 2_184_885_092_476, 253_402_300_799_999):
        assert read_time(told_time(moment)) == moment
    assert read_time("2026-01-01T01:00:00+01:00") == read_time("2026-01-01T00:00:00") == 1_767_225_600_000
    assert told_time(-1) == "1970-01-01T00:00:00.000Z"
    for wrong in ("yesterday", "1969-12-31T23:59:59Z", -1, "9" * 5000):
        with pytest.raises(HttpProblem) as refused:
            read_time(wrong)
        assert refused.value.status == 400
