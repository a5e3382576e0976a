"""A message as `penstock consume` writes it: by a template, with everything, or as JSON.

Called by cli.consume.
"""

import base64
import re
from collections.abc import Callable
from typing import Any

import typer

from penstock.admin.text import render_moment

VALUE_ONLY = "{value}"
EVERYTHING = "{topic}-{partition}@{offset}  {timestamp}  key={key}  {headers}  {value}"

_FIELD = re.compile(rb"\{(\w+)\}")
_ESCAPES = {b"\\n": b"\n", b"\\t": b"\t", b"\\r": b"\r", b"\\0": b"\0", b"\\\\": b"\\"}
_ESCAPE = re.compile(rb"\\[ntr0\\]")
_NULL = b"null"

Render = Callable[[Any], bytes]


def _raw(value: bytes | str | None) -> bytes:
    if value is None:
        return _NULL
    return value.encode() if isinstance(value, str) else value


def _timestamp_ms(message: Any) -> int | None:
    kind, timestamp = message.timestamp()
    return timestamp if kind else None


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + _raw(value) for name, value in message.headers() or ())


_FIELDS: dict[bytes, Render] = {
    b"topic": lambda message: message.topic().encode(),
    b"partition": lambda message: b"%d" % message.partition(),
    b"offset": lambda message: b"%d" % message.offset(),
    b"timestamp": lambda message: (render_moment(_timestamp_ms(message)) or "-").encode(),
    b"timestamp_ms": lambda message: b"%d" % (_timestamp_ms(message) or 0),
    b"key": lambda message: _raw(message.key()),
    b"value": lambda message: _raw(message.value()),
    b"headers": _headers,
}


def compile_template(template: str) -> Render:
    r"""`{offset} {key} {value}`, with \n and \t for what they mean; bytes of a message go through as they are."""
    text = _ESCAPE.sub(lambda match: _ESCAPES[match[0]], template.encode())
    parts = _FIELD.split(text)
    unknown = [name.decode() for name in parts[1::2] if name not in _FIELDS]
    if unknown:
        known = ", ".join(name.decode() for name in _FIELDS)
        raise typer.BadParameter(f"{unknown[0]!r} is nothing a message has; --format knows {known}")
    steps: list[bytes | Render] = [_FIELDS[part] if slot % 2 else part for slot, part in enumerate(parts)]

    def render(message: Any) -> bytes:
        return b"".join(step if isinstance(step, bytes) else step(message) for step in steps) + b"\n"

    return render


def json_document(message: Any) -> dict[str, Any]:
    """Text as text; what is no UTF-8 in base64, under a name that says so."""
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": _timestamp_ms(message),
        **text_or_base64("key", message.key()),
        **text_or_base64("value", message.value()),
        "headers": [{"name": name, **text_or_base64("value", value)} for name, value in message.headers() or ()],
    }


def text_or_base64(name: str, value: bytes | str | None) -> dict[str, str | None]:
    if value is None or isinstance(value, str):
        return {name: value}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}
