"""Keys and values as they stand in JSON, and as bytes in a record: base64, plain JSON, text.

Called by v2_produce, v2_consumer_records, v3_record_maker and rest.telling; those with a schema are rest.schemas'.
Law: read(write(x)) == x for all that write() takes.
"""

from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable
from typing import Any

import orjson

Encoder = Callable[[Any], bytes | None]
Decoder = Callable[[bytes | None], Any]


class BadPayload(Exception):
    """One sentence on what is wrong with a key or a value."""


def binary_in(data: Any) -> bytes | None:
    if data is None:
        return None
    if not isinstance(data, str):
        raise BadPayload("binary data must be a string in base64")
    try:
        return a2b_base64(data.encode("ascii"), strict_mode=True)
    except (Error, UnicodeEncodeError):
        raise BadPayload("binary data is not valid base64") from None


def binary_out(data: bytes | None) -> str | None:
    return None if data is None else b2a_base64(data, newline=False).decode("ascii")


def json_in(data: Any) -> bytes | None:
    return None if data is None else write_json(data)


def write_json(data: Any) -> bytes:
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError as fault:
        # What was read may still be nested too deeply to be written.
        raise BadPayload(f"{fault}") from None


def json_out(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise BadPayload("the record is not JSON: read it as binary") from None


def text_in(data: Any) -> bytes | None:
    if data is None:
        return None
    if not isinstance(data, str):
        raise BadPayload("data of type STRING must be a string")
    return data.encode()


def text_out(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


ENCODERS: dict[str, Encoder] = {"binary": binary_in, "json": json_in, "string": text_in}
DECODERS: dict[str, Decoder] = {"binary": binary_out, "json": json_out, "string": text_out}
