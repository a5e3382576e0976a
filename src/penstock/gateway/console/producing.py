"""One record written from the page: text, JSON, base64, or data that a schema of the registry encodes.

Called through the console's routes.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.asking import BODY_BYTES_MAX, body_of, field, refuse
from penstock.gateway.console.service import Console
from penstock.gateway.errors import HttpProblem, json_response

FORMATS = ("null", "text", "json", "base64", "schema")
HEADERS_MAX = 100


async def produce(console: Console, request: Request) -> Response:
    body = await body_of(request)
    topic: str = field(body, "topic", str)
    partition: int | None = field(body, "partition", int, None)
    facts = await console.kafka.topic(topic)
    # Asked first: the broker may make a topic that a producer names.
    if facts is None:
        raise HttpProblem(404, 40403, "there is no such topic; create it first")
    if partition is not None and not 0 <= partition < facts.partitions:
        raise refuse(f"the topic has the partitions 0 to {facts.partitions - 1}")
    headers: list[Any] = field(body, "headers", list, [])
    if len(headers) > HEADERS_MAX:
        raise refuse(f"a record from here has at most {HEADERS_MAX} headers")
    delivered = await console.kafka.produce(
        topic,
        await encode(console, body, "value", f"{topic}-value"),
        await encode(console, body, "key", f"{topic}-key"),
        partition,
        [_header(one) for one in headers],
    )
    return json_response(delivered._asdict())


async def encode(console: Console, body: Mapping[str, Any], part: str, subject: str) -> bytes | None:
    """A part of the record as bytes: {"format": …, "data": "…"}, and for `schema` perhaps a subject."""
    given: Mapping[str, Any] = field(body, part, dict, {"format": "null"})
    form = field(given, "format", str)
    if form not in FORMATS:
        raise refuse(f"the {part}'s format is to be one of {', '.join(FORMATS)}")
    if form == "null":
        return None
    data: str = field(given, "data", str, length_max=BODY_BYTES_MAX)
    match form:
        case "text":
            return data.encode(errors="surrogatepass")
        case "json":
            _parsed(data, part)
            # As it was typed: numbers and spaces are the sender's.
            return data.encode()
        case "base64":
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                raise refuse(f"the {part} is no base64") from None
        case _:
            return await _encode_by_schema(console, _parsed(data, part), field(given, "subject", str, subject), part)


async def _encode_by_schema(console: Console, data: Any, subject: str, part: str) -> bytes | None:
    from penstock.gateway.rest.payloads import BadPayload
    from penstock.gateway.rest.schemas import SchemaCodecs, Wanted

    codecs = SchemaCodecs(cast("Any", console.services))
    encoder = await codecs.encoder(Wanted(subject, None))
    try:
        return encoder.encode(data)
    except BadPayload as fault:
        raise refuse(f"the {part} does not fit schema {encoder.schema_id} of {subject}: {fault}", 422, 42203) from None


def _parsed(data: str, part: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise refuse(f"the {part} is no JSON: {error}") from None


def _header(one: Any) -> tuple[str, bytes | None]:
    if not isinstance(one, dict):
        raise refuse("a header is an object with a name and a value")
    given = cast("dict[str, Any]", one)
    value: str | None = field(given, "value", str, None, 100_000)
    return field(given, "name", str), None if value is None else value.encode(errors="surrogatepass")
