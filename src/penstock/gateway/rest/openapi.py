"""The OpenAPI document, made from the rows that are served.

Called by gateway.rest, which serves it at /openapi.json.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.gateway.errors import JSON
from penstock.gateway.rest.shapes import INTEGER, STRING, structure
from penstock.gateway.rest.table import Operation, Parameter, Row, Socket

VERSION = "3.1.0"
_PROBLEM = structure(("error_code", "message"), error_code=INTEGER, message=STRING)
_REF = {"$ref": "#/components/schemas/Problem"}
# Whatever is asked: wrong in itself, not for this gateway, too much at once, or the cluster is away.
_ALWAYS = (400, 403, 414, 421, 431, 500, 503)
_TEXTS = {
    400: "The request is wrong; the message says what.",
    403: "The page or the user may not do this.",
    404: "There is no such thing.",
    406: "None of the accepted types is given here.",
    408: "The body did not arrive in time.",
    409: "Not in this state.",
    413: "Too large.",
    414: "The address is too long.",
    415: "This content type is not read here.",
    421: "The gateway does not answer for this host.",
    422: "A field is wrong; the message says which.",
    429: "Too much is under way: come back after Retry-After.",
    431: "Too many headers.",
    500: "The gateway failed, or Kafka said no.",
    501: "Not served here.",
    503: "The cluster does not answer, or the gateway is busy: come back after Retry-After.",
}


def document(rows: Sequence[Row], version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        method = "get" if isinstance(row, Socket) else row.method.lower()
        paths.setdefault(row.path, {})[method] = _socket(row) if isinstance(row, Socket) else _operation(row)
    return {
        "openapi": VERSION,
        "info": {
            "title": "penstock gateway",
            "version": version,
            "description": "Confluent's REST proxy v2 and v3 over any Kafka cluster, and streams of records.",
        },
        "paths": paths,
        "components": {"schemas": {"Problem": _PROBLEM}},
    }


def _operation(row: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": row.summary,
        "tags": [row.tag],
        "operationId": _identity(row.method, row.path),
        "parameters": [_parameter(one) for one in row.parameters],
        "responses": {
            **{str(one.status): _answer(one.text, one.schema, one.media_types) for one in row.answers},
            **_problems((*row.problems, *_ALWAYS), (row.error_media,)),
        },
    }
    if row.body is not None:
        content = {media: {"schema": dict(row.body.schema)} for media in row.body.media_types}
        found["requestBody"] = {"required": row.body.is_required, "content": content}
    return found


def _socket(row: Socket) -> dict[str, Any]:
    return {
        "summary": row.summary,
        "description": "A WebSocket: send `Upgrade: websocket`. Without it there is nothing at this path.",
        "tags": [row.tag],
        "operationId": _identity("GET", row.path),
        "parameters": [_parameter(one) for one in row.parameters],
        "responses": {"101": {"description": "The socket is open."}, **_problems((404, *_ALWAYS), (JSON,))},
        "x-websocket": True,
    }


def _parameter(one: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"name": one.name, "in": one.where, "required": one.is_required, "schema": dict(one.schema)}
    return {**found, "description": one.text} if one.text else found


def _problems(statuses: Sequence[int], media_types: tuple[str, ...]) -> dict[str, Any]:
    # What refuses a request before it reaches its handler says plain JSON.
    told = tuple(dict.fromkeys((*media_types, JSON)))
    return {str(status): _answer(_TEXTS[status], _REF, told) for status in sorted(set(statuses))}


def _answer(text: str, schema: Mapping[str, Any] | None, media_types: tuple[str, ...]) -> dict[str, Any]:
    if schema is None:
        return {"description": text}
    return {"description": text, "content": {media: {"schema": dict(schema)} for media in media_types}}


def _identity(method: str, path: str) -> str:
    words = path.replace("{", "").replace("}", "").replace(":", "/").replace("-", "/").split("/")
    return "_".join([method.lower(), *(word for word in words if word)])
