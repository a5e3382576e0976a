"""Conditions on keys, values and headers."""

import pytest

from penstock.gateway.console.filtering import STEPS_MAX, make_filter
from penstock.gateway.errors import HttpProblem

VALUE = '{"user":{"id":7,"name":"Ann","tags":["a","b"],"on":true},"items":[{"price":3},{"price":12.5}],"odd key":null}'


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("$.user.id == 7", True),
        ("$.user.id = 7", True),
        ("$.user.id == 8", False),
        ("$.user.id != 8", True),
        ("$.user.id >= 7", True),
        ("$.user.id > 7", False),
        ("$.user.id < 7.5", True),
        ("$.user.id <= 6", False),
        ("$.user.name == Ann", True),
        ('$.user.name == "Ann"', True),
        ("$.user.name contains AN", True),
        ("$.user.name > Amy", True),
        ("$.user.tags[1] == b", True),
        ("$.user.tags[2] exists", False),
        ("$.items[*].price > 10", True),
        ("$.items[*].price > 20", False),
        ('$["odd key"] exists', True),
        ('$["odd key"] == null', True),
        ("$.user.on == true", True),
        ("$.user.on == 1", False),  # to JSON, true is no number
        ("$.user.id == true", False),
        ("$.user.id > x", False),  # a number and a text have no order
        ("$.none.such exists", False),
        ("$.user", True),
        ("$.user contains ann", True),
        ("$", True),
    ],
)
def test_json_paths(condition: str, expected: bool) -> None:
    assert make_filter("json", "value", condition).wants("", VALUE, ()) is expected


@pytest.mark.parametrize("text", ["", "no json", "[" * 100_000, "{", "\x00", '"' + "x" * 10])
def test_a_condition_never_raises_on_a_value(text: str) -> None:
    assert make_filter("json", "any", "$.a.b == 1").wants(text, text, [("h", text)]) is False


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("json", "user.id"),
        ("json", "$.a ~ 3"),
        ("json", "$.a =="),
        ("json", "$" + ".a" * (STEPS_MAX + 1)),
        ("regex", "("),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused_in_words(kind: str, wanted: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        make_filter(kind, "any", wanted)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("key", (True, False, False)),
        ("value", (False, True, False)),
        ("headers", (False, False, True)),
        ("any", (True, True, True)),
    ],
)
def test_a_filter_looks_only_where_it_is_told_to(where: str, expected: tuple[bool, bool, bool]) -> None:
    wanted = make_filter("text", where, "NEEDLE")
    found = (
        wanted.wants("a needle", "", ()),
        wanted.wants("", "a needle", ()),
        wanted.wants("", "", [("name", "a needle")]),
    )
    assert found == expected


def test_a_regular_expression_that_would_take_for_ever_elsewhere_takes_no_time() -> None:
    evil = make_filter("regex", "value", "(a+)+$")
    assert evil.wants("", "a" * 100_000 + "!", ()) is False
    assert make_filter("regex", "headers", r"^trace: [0-9a-f]+$").wants("", "", [("trace", "beef")]) is True
