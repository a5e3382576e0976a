"""Bytes of records as people read them: JSON, text or hex, decoded by their schema where they name one; never too long.

Called by messages and downloading, in the thread of the reader.
Laws: any bytes give some text; text is cut at `length_max` characters and says so; the whole can be asked for.
"""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

PREVIEW_CHARACTERS = 2000
WHOLE_CHARACTERS = 2 * 1024 * 1024
# Beyond this nothing is parsed or decoded while looking through many records: only its first bytes are shown.
PARSED_BYTES_MAX = 1024 * 1024
HEADERS_MAX = 100

# C0 controls except tab, newline and carriage return: bytes that are UTF-8 by chance.
_CONTROLS = frozenset(chr(one) for one in range(32)) - {"\t", "\n", "\r"}


class Shown(NamedTuple):
    """`kind`: null, empty, json, text, hex, avro, jsonschema or protobuf. `note`: why it was not decoded further."""

    kind: str
    text: str
    size: int
    is_cut: bool = False
    schema_id: int | None = None
    note: str | None = None

    def document(self, length_max: int) -> dict[str, Any]:
        text = self.text
        is_cut = self.is_cut or len(text) > length_max
        told: dict[str, Any] = {"kind": self.kind, "text": text[:length_max], "size": self.size, "cut": is_cut}
        if self.schema_id is not None:
            told["schema_id"] = self.schema_id
        if self.note is not None:
            told["note"] = self.note
        return told


# What a schema makes of framed bytes; None where they are not framed.
Decode = Callable[[bytes], Shown | None]


def show_bytes(content: bytes | None, decode: Decode | None = None, bytes_max: int = PARSED_BYTES_MAX) -> Shown:
    if content is None:
        return Shown("null", "", 0)
    if not content:
        return Shown("empty", "", 0)
    if len(content) > bytes_max:
        shown = show_plain(_whole_characters(content[:bytes_max]), may_be_json=content[:1] not in b"{[")
        return shown._replace(size=len(content), is_cut=True)
    if decode is not None and content[0] == 0:
        decoded = decode(content)
        if decoded is not None:
            return decoded
    return show_plain(content)


def show_plain(content: bytes, may_be_json: bool = True) -> Shown:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Shown("hex", content.hex(" "), len(content))
    if may_be_json and text[:1] in '{["-0123456789tfn ' and _is_json(content):
        return Shown("json", text, len(content))
    if not _CONTROLS.isdisjoint(text):
        return Shown("hex", content.hex(" "), len(content))
    return Shown("text", text, len(content))


def show_message(message: Any, decode: Decode | None, bytes_max: int = PARSED_BYTES_MAX) -> dict[str, Any]:
    """All of a record, its parts still whole: see `document`."""
    kind, timestamp_ms = message.timestamp()
    key, value = message.key(), message.value()
    headers: list[tuple[str, bytes | None]] = message.headers() or []
    return {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp_ms if kind else None,
        "is_append_time": kind == 2,
        "key": show_bytes(key, decode, bytes_max),
        "value": show_bytes(value, decode, bytes_max),
        "headers": [(name, show_bytes(content)) for name, content in headers[:HEADERS_MAX]],
        "headers_left_out": max(0, len(headers) - HEADERS_MAX),
    }


def document(shown: dict[str, Any], length_max: int = PREVIEW_CHARACTERS) -> dict[str, Any]:
    """A record as the page gets it."""
    return {
        **shown,
        "key": shown["key"].document(length_max),
        "value": shown["value"].document(length_max),
        "headers": [{"name": name[:1000], **part.document(min(length_max, 1000))} for name, part in shown["headers"]],
    }


def raw_text(content: bytes | None) -> dict[str, str | None]:
    """Bytes in a JSON line: as text where they are text, else in base64. Nothing is lost either way."""
    if content is None:
        return {"text": None}
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _whole_characters(content: bytes) -> bytes:
    """Without the torn character at its end that cutting may have left."""
    for back in range(1, min(4, len(content)) + 1):
        if content[-back] & 0xC0 != 0x80:
            if content[-back] >= 0xC0:
                return content[:-back]
            break
    return content


def _is_json(content: bytes) -> bool:
    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        return False
    return True
