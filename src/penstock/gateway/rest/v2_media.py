"""The content types of REST v2: application/vnd.kafka[.format].v2+json, in both directions; and v2's own errors.

Called by the v2 modules.
"""

from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.errors import JSON, HttpProblem, KafkaFailed, json_response
from penstock.gateway.limits import content_type

V2 = "application/vnd.kafka.v2+json"
ANSWERS = (V2, JSON)
FORMATS = ("binary", "json", "avro", "jsonschema", "protobuf")
BINARY = "binary"
CONVERSION_FAILED = 42203
ILLEGAL_STATE = 40903

T = TypeVar("T")
_BARE = (V2, "application/vnd.kafka+json", JSON)
_OF_FORMAT = {f"application/vnd.kafka.{name}.v2+json": name for name in FORMATS}
EVERY_BODY = (*_OF_FORMAT, *_BARE)


def body_format(request: Request) -> str:
    """How the records of a request are written; where the type does not say, in base64."""
    kind = content_type(request)
    if kind in _BARE:
        return BINARY
    found = _OF_FORMAT.get(kind)
    if found is None:
        told = ", ".join(_OF_FORMAT)
        raise problem(415, 415, f"The content type {kind[:100]!r} is not read here: use one of {told}.")
    return found


def choose_media(request: Request) -> str:
    """What the answer is called: v2's type, unless the caller wants plain JSON, or nothing that we have (406)."""
    return accepted(request, {V2: V2, "application/vnd.kafka+json": V2, JSON: JSON})


def choose_format(request: Request, own: str) -> str:
    """The same for records, of which a consumer gives one format only."""
    named = f"application/vnd.kafka.{own}.v2+json"
    found = _first_match(_wishes(request), {named: named, V2: V2, "application/vnd.kafka+json": V2, JSON: JSON})
    if found is None and any(wish in _OF_FORMAT for wish in _wishes(request)):
        raise problem(406, 40601, f"This consumer gives records as {own}: accept {named}.")
    return found or _none_of(named, V2, JSON)


def accepted(request: Request, offered: dict[str, str]) -> str:
    wishes = _wishes(request)
    found = _first_match(wishes, offered)
    # Whoever names a format for what has none means v2's JSON all the same.
    if found is None and any(wish in _OF_FORMAT for wish in wishes):
        found = V2
    return found or _none_of(*offered)


def _first_match(wishes: list[str], offered: dict[str, str]) -> str | None:
    """The first the caller names that we have; a wildcard, or no wish at all, takes our own first."""
    first = next(iter(offered.values()))
    for wish in wishes or ["*/*"]:
        found = first if wish in ("*/*", "application/*") else offered.get(wish)
        if found is not None:
            return found
    return None


def _none_of(*offered: str) -> str:
    raise problem(406, 406, f"None of the accepted types is given here: accept {', '.join(offered)}.")


def _wishes(request: Request) -> list[str]:
    """The types of Accept, the preferred ones first."""
    rated: list[tuple[float, int, str]] = []
    is_named = False
    for place, part in enumerate(",".join(request.headers.getlist("accept")).split(",")[:50]):
        kind, *parameters = [piece.strip().lower() for piece in part.split(";")]
        if not kind:
            continue
        is_named = True
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        if quality > 0:
            rated.append((-quality, place, kind))
    # Who names only what he does not want accepts nothing; who names nothing accepts anything.
    return [kind for _, _, kind in sorted(rated)] or ([""] if is_named else [])


def answer_v2(content: Any, media: str, status: int = 200) -> Response:
    return json_response(content, status, media)


def no_content() -> Response:
    return Response(status_code=204)


def problem(status: int, code: int, message: str) -> HttpProblem:
    return HttpProblem(status, code, message, media_type=V2)


def topic_not_found() -> HttpProblem:
    return problem(404, 40401, "Topic not found.")


def partition_not_found() -> HttpProblem:
    return problem(404, 40402, "Partition not found.")


def instance_not_found() -> HttpProblem:
    return problem(404, 40403, "Consumer instance not found.")


async def in_v2(work: Awaitable[T]) -> T:
    """What comes of it; a refusal of the cluster's gets v2's number and content type."""
    try:
        return await work
    except KafkaFailed as failure:
        told = failure.problem()
        if told.status == 404:
            raise topic_not_found() from None
        code = ILLEGAL_STATE if told.status == 409 else told.code
        raise HttpProblem(told.status, code, told.message, told.headers, V2) from None
