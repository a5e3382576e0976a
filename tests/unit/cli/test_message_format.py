"""Messages as they are printed, and read back."""

import base64
from typing import Any

import pytest
import typer

from penstock.admin.failures import CommandFailed
from penstock.cli.message_format import EVERYTHING, VALUE_ONLY, compile_template, json_document
from penstock.cli.produce import Outgoing, read_json, read_lines


class FakeMessage:
    """What confluent_kafka's Message has, which cannot be made by hand in all its parts."""

    def __init__(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]] | None = None
    ) -> None:
        self._key, self._value, self._headers = key, value, headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_123

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def test_a_value_alone_goes_through_byte_by_byte() -> None:
    raw = b"\xff\x00{key}\\n"
    assert compile_template(VALUE_ONLY)(FakeMessage(b"k", raw)) == raw + b"\n"


def test_a_template_names_the_parts_of_a_message() -> None:
    message = FakeMessage(None, b"v", [("a", b"1"), ("b", None)])
    render = compile_template(r"{topic}\t{partition}\t{offset}\t{timestamp_ms}\t{key}\t{headers}\t{value}\\")
    assert render(message) == b"orders\t3\t42\t1700000000123\tnull\ta=1,b=null\tv\\\n"
    assert b"2023-11-14T22:13:20.123Z" in compile_template(EVERYTHING)(message)


def test_a_part_that_no_message_has_is_answered_with_those_it_has() -> None:
    with pytest.raises(typer.BadParameter, match=r"colour.*offset"):
        compile_template("{colour}")


def test_what_is_no_text_is_base64_in_json_under_a_name_that_says_so() -> None:
    document = json_document(FakeMessage(b"\xff", b"v", [("h", b"\xfe")]))
    assert document["key_base64"] == base64.b64encode(b"\xff").decode()
    assert "key" not in document
    assert document["value"] == "v"
    assert document["headers"] == [{"name": "h", "value_base64": base64.b64encode(b"\xfe").decode()}]


def test_lines_are_messages_and_a_separator_splits_at_its_first_place() -> None:
    lines = [b"a:b:c\r\n", b":x\n", b"last:"]
    assert list(read_lines(lines, b":", ())) == [Outgoing(b"a", b"b:c"), Outgoing(b"", b"x"), Outgoing(b"last", b"")]
    headers = (("h", b"1"),)
    assert list(read_lines([b"a:b\n"], None, headers)) == [Outgoing(None, b"a:b", headers)]


def test_a_line_without_its_separator_is_named_by_number() -> None:
    with pytest.raises(CommandFailed, match="line 2"):
        list(read_lines([b"a:b\n", b"ab\n"], b":", ()))


def test_json_lines_hold_what_consume_writes() -> None:
    line = b'{"key":"k","value_base64":"/w==","headers":[{"name":"h","value":"1"}],"partition":2,"timestamp_ms":7}\n'
    assert list(read_json([line, b"\n"], ())) == [Outgoing(b"k", b"\xff", (("h", b"1"),), 2, 7)]
    assert list(read_json([b'{"value":{"a":1}}'], ())) == [Outgoing(None, b'{"a": 1}')]


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"value_base64":"!"}', b'{"headers":[{}]}', b'"text"'])
def test_a_line_that_is_no_message_is_named_by_number(line: bytes) -> None:
    with pytest.raises(CommandFailed, match="line 1"):
        list(read_json([line], ()))


def test_printed_and_read_again_it_is_the_same_message() -> None:
    import json

    message: Any = FakeMessage(b"\x00\xff", "Ünïcode".encode(), [("a", None), ("b", b"\x80")])
    (again,) = read_json([json.dumps(json_document(message)).encode()], ())
    assert again == Outgoing(message.key(), message.value(), tuple(message.headers()), 3, 1_700_000_000_123)
