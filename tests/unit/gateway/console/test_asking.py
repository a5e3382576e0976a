"""Who may change something, and what a request may say."""

from typing import Any

import pytest
from starlette.requests import Request

from penstock.gateway.console.asking import choice_of, field, number_of, require_change, text_of
from penstock.gateway.console.messages import parse_cursor
from penstock.gateway.errors import HttpProblem


def ask(query: str = "", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "query_string": query.encode(), "headers": raw, "method": "POST", "path": "/"})


JSON = {"content_type": "application/json", "host": "localhost:8080"}


@pytest.mark.parametrize(
    ("headers", "is_readonly", "status"),
    [
        (JSON, False, None),
        ({**JSON, "content_type": "application/json; charset=utf-8"}, False, None),
        ({**JSON, "origin": "http://localhost:8080"}, False, None),
        ({**JSON, "origin": "https://console.example"}, False, None),
        ({**JSON, "sec_fetch_site": "same-origin"}, False, None),
        ({**JSON, "origin": "http://evil.example"}, False, 403),
        ({**JSON, "origin": "http://localhost:9999"}, False, 403),
        ({**JSON, "origin": "null"}, False, 403),
        ({**JSON, "sec_fetch_site": "cross-site"}, False, 403),
        ({**JSON, "content_type": "text/plain"}, False, 415),
        ({"host": "localhost:8080"}, False, 415),
        (JSON, True, 403),
    ],
)
def test_only_the_consoles_own_pages_change_things(
    headers: dict[str, str], is_readonly: bool, status: int | None
) -> None:
    if status is None:
        require_change(ask(**headers), is_readonly, ("https://console.example",))
        return
    with pytest.raises(HttpProblem) as refused:
        require_change(ask(**headers), is_readonly, ("https://console.example",))
    assert refused.value.status == status


@pytest.mark.parametrize(
    "query", ["n=x", "n=1_0", "n=%201", "n=9999999999999999999999", "n=-1", "n=11", "", "n=%D9%A3"]
)
def test_a_number_is_a_number_within_its_bounds(query: str) -> None:
    with pytest.raises(HttpProblem) as refused:
        number_of(ask(query), "n", None, 0, 10)
    assert refused.value.status == 400
    assert "n" in refused.value.message


def test_texts_choices_and_members_are_checked() -> None:
    assert number_of(ask("n=7"), "n") == 7
    assert number_of(ask("n="), "n", 3) == 3
    for call in (
        lambda: text_of(ask("t=" + "x" * 1001), "t"),
        lambda: choice_of(ask("c=d"), "c", ("a", "b")),
        lambda: field({"a": True}, "a", int),
        lambda: field({}, "a", str),
        lambda: field({"a": "x" * 2000}, "a", str),
        lambda: parse_cursor("0:1,1"),
        lambda: parse_cursor("a:1"),
    ):
        with pytest.raises(HttpProblem):
            call()
    absent: Any = field({}, "a", str, None)
    assert absent is None
    assert parse_cursor("0:5,12:7") == {0: 5, 12: 7}
