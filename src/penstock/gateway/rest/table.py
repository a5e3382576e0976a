"""One row per operation of the REST interface: where it is, what it takes, what it answers, who handles it.

Called by every module of rest, which gives its rows; gateway.rest makes routes of them, rest.openapi the document.
Law: what is not in a row is neither served nor documented.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from penstock.gateway.errors import JSON
from penstock.gateway.rest.shapes import Schema

Handler = Callable[[Request], Awaitable[Response]]
SocketHandler = Callable[[WebSocket], Awaitable[None]]


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
