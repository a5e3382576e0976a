"""One row per operation of the REST interface: where it is, what it takes, what it answers, who handles it.

Called by every module of rest, which gives its rows; gateway.rest makes routes of them, rest.openapi the document.
Law: what is not in a row is neither served nor documented.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from penstock.gateway.errors import JSON, HttpProblem

Schema = Mapping[str, Any]
Handler = Callable[[Request], Awaitable[Response]]
SocketHandler = Callable[[WebSocket], Awaitable[None]]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
PARTITION: Schema = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    where: Literal["path", "query", "header"]
    schema: Schema
    text: str = ""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    schema: Schema
    media_types: tuple[str, ...] = (JSON,)
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    schema: Schema | None = None
    media_types: tuple[str, ...] = (JSON,)


@dataclass(frozen=True, slots=True)
class Operation:
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handler: Handler
    summary: str
    tag: str
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    # Statuses of problems beside those that any request may meet.
    problems: tuple[int, ...] = ()
    error_media: str = JSON


@dataclass(frozen=True, slots=True)
class Socket:
    """A WebSocket. OpenAPI has no word for one: it is documented as the GET that opens it."""

    path: str
    handler: SocketHandler
    summary: str
    tag: str
    parameters: tuple[Parameter, ...] = ()


Row = Operation | Socket


def path_parameters(**schemas: Schema) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, "path", schema, is_required=True) for name, schema in schemas.items())


def structure(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object's schema; what is not named in it may be there all the same, as Confluent adds fields too."""
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def strict(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """The same of a request, where a field nobody knows is refused."""
    return {**structure(required, **properties), "additionalProperties": False}


def list_of(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def nullable(schema: Schema) -> Schema:
    kinds = schema["type"]
    return {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}


# Reading what a request says


def query_int(request: Request, name: str, default: int, minimum: int = 0, maximum: int = INT64_MAX) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    number = _number(text)
    if number is None or not minimum <= number <= maximum:
        raise HttpProblem(400, 400, f"{name}={text[:40]} is no number from {minimum} to {maximum}.")
    return number


def query_flag(request: Request, name: str, default: bool = False) -> bool:
    text = request.query_params.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise HttpProblem(400, 400, f"{name}={text[:40]} is neither true nor false.")
    return text.lower() == "true"


def path_int(request: Request, name: str, missing: HttpProblem) -> int:
    """A number in the path; what is none names nothing that there is."""
    number = _number(request.path_params[name])
    if number is None or not 0 <= number <= INT32_MAX:
        raise missing
    return number


def _number(text: str) -> int | None:
    digits = text.removeprefix("-")
    # Not isdecimal(): it takes digits of any script, and int() would too.
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None


def fields(value: Any, what: str, known: Mapping[str, type | tuple[type, ...]], *, status: int = 422) -> dict[str, Any]:
    """An object with these fields and no others, each of its type (or null); a problem that names the wrong one."""
    if not isinstance(value, dict):
        raise HttpProblem(status, status, f"{what} must be a JSON object.")
    found = cast("dict[str, Any]", value)
    for name, given in found.items():
        wanted = known.get(name)
        if wanted is None:
            raise HttpProblem(status, status, f"{what} has an unknown field {name[:60]!r}: use {', '.join(known)}.")
        # True is an int to Python, and to nobody else.
        is_bool_for_int = isinstance(given, bool) and wanted is int
        if given is not None and (not isinstance(given, wanted) or is_bool_for_int):
            raise HttpProblem(status, status, f"The field {name!r} of {what} has the wrong type.")
    return found


def integer(value: Any, what: str, minimum: int, maximum: int, *, status: int = 422) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise HttpProblem(status, status, f"{what} must be a number from {minimum} to {maximum}.")
    return value
