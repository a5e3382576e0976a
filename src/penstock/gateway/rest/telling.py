"""A record that was read, told as JSON: in the format that was asked for, or in the one it seems to have.

Called by rest.events and rest.socket.
Law: one that does not decode is told in base64, with the reason where a format was asked for: a stream goes on.
"""

from typing import Any

from penstock.gateway.rest.payloads import DECODERS, BadPayload, binary_out, json_out
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.timestamps import told_time

FORMATS = ("auto", "json", "string", "binary", "schema")


async def tell(message: Any, written_as: str, codecs: SchemaCodecs) -> dict[str, Any]:
    key_type, key, key_fault = await _payload(message.key(), written_as, codecs)
    value_type, value, value_fault = await _payload(message.value(), written_as, codecs)
    told: dict[str, Any] = {
        "topic_name": message.topic(),
        "partition_id": message.partition(),
        "offset": message.offset(),
        "timestamp": told_time(message.timestamp()[1]),
        "headers": [{"name": name, "value": binary_out(_raw(value))} for name, value in message.headers() or ()],
        "key": {"type": key_type, "data": key},
        "value": {"type": value_type, "data": value},
    }
    if key_fault or value_fault:
        told["message"] = key_fault or value_fault
    return told


async def _payload(data: bytes | None, written_as: str, codecs: SchemaCodecs) -> tuple[str, Any, str | None]:
    if data is None:
        return "NULL", None, None
    if written_as == "auto":
        return await _guess(data, codecs)
    try:
        if written_as == "schema":
            return "SCHEMA", await codecs.decode(data), None
        return written_as.upper(), DECODERS[written_as](data), None
    except BadPayload as fault:
        return "BINARY", binary_out(data), f"{fault}"


async def _guess(data: bytes, codecs: SchemaCodecs) -> tuple[str, Any, str | None]:
    if data[:1] == b"\0" and codecs.has_registry:
        try:
            return "SCHEMA", await codecs.decode(data), None
        except BadPayload:
            return "BINARY", binary_out(data), None
    try:
        return "JSON", json_out(data), None
    except BadPayload:
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "BINARY", binary_out(data), None
    return "STRING", text, None


def _raw(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
