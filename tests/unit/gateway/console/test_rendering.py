"""Any bytes give some text, never too much of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.console.downloading import _csv_line  # pyright: ignore[reportPrivateUsage]
from penstock.gateway.console.rendering import PREVIEW_CHARACTERS, Shown, raw_text, show_bytes


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"12345678901234567890", "json", "12345678901234567890"),
        (b"null", "json", "null"),
        (b"{not json", "text", "{not json"),
        ("grüße ✓".encode(), "text", "grüße ✓"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"ab\x00", "hex", "61 62 00"),
        (b"line\nline\t", "text", "line\nline\t"),
        (b"[" * 5000, "text", "[" * 5000),
    ],
)
def test_kinds(content: bytes | None, kind: str, text: str) -> None:
    assert show_bytes(content)[:2] == (kind, text)


@given(st.binary(max_size=200))
def test_any_bytes_are_shown_and_kept_whole_in_a_line(content: bytes) -> None:
    shown = show_bytes(content, None, 50)
    assert shown.size == len(content)
    assert shown.is_cut == (len(content) > 50)
    told = raw_text(content)
    assert told.get("text") is None or str(told["text"]).encode() == content


def test_a_huge_value_is_neither_parsed_nor_sent_whole() -> None:
    def decode(_: bytes) -> Shown | None:
        raise AssertionError("too large to be decoded")

    huge = b"\x00" * 50_000_000
    document = show_bytes(huge, decode).document(PREVIEW_CHARACTERS)
    assert document == {"kind": "hex", "text": "00 " * 666 + "00", "size": 50_000_000, "cut": True}
    # A cut never tears a character, which would make text look like bytes.
    assert show_bytes("é".encode() * 30, None, 51).kind == "text"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("-5", "-5"),
        ("-a", "'-a"),
        ("@x", "'@x"),
        ("+4.5", "+4.5"),
        ('a"b', '"a""b"'),
        ("\tx", "'\tx"),
    ],
)
def test_a_cell_of_csv_is_never_a_formula(cell: str, written: str) -> None:
    assert _csv_line([cell]).decode() == written + "\r\n"
