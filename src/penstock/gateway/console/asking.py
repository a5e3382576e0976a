"""What a request of the page says, read once and within bounds; who may change something.

Called by every part of the console's API.
Laws:
- A parameter that is missing, too long or no number is a 400 that names it.
- Nothing is changed by a request that a page elsewhere could send: JSON content type, own origin, not read-only.
"""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from starlette.requests import Request

from penstock.gateway.errors import HttpProblem
from penstock.gateway.read_only import READ_ONLY

NAME_MAX = 1000
SEARCH_MAX = 300
BODY_BYTES_MAX = 10 * 1024 * 1024
NUMBER_MAX = 2**63 - 1

BAD_REQUEST = 40001
FOREIGN_ORIGIN = 40304


def refuse(message: str, status: int = 400, code: int = BAD_REQUEST) -> HttpProblem:
    return HttpProblem(status, code, message)


def text_of(request: Request, name: str, default: str | None = None, length_max: int = NAME_MAX) -> str:
    value = request.query_params.get(name, default)
    if value is None:
        raise refuse(f"the parameter {name} is missing")
    if len(value) > length_max:
        raise refuse(f"the parameter {name} is longer than {length_max} characters")
    return value


def number_of(request: Request, name: str, default: int | None = None, least: int = 0, most: int = NUMBER_MAX) -> int:
    value = request.query_params.get(name)
    if value is None or value == "":
        if default is None:
            raise refuse(f"the parameter {name} is missing")
        return default
    return to_number(value, name, least, most)


def to_number(value: str, name: str, least: int = 0, most: int = NUMBER_MAX) -> int:
    # int() takes spaces, underscores and thousands of digits; a query has no use for them.
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        raise refuse(f"the parameter {name} is to be a whole number")
    number = int(value)
    if not least <= number <= most:
        raise refuse(f"the parameter {name} is to lie between {least} and {most}")
    return number


def choice_of(request: Request, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
    value = text_of(request, name, default)
    if value not in allowed:
        raise refuse(f"the parameter {name} is to be one of {', '.join(allowed)}")
    return value


def flag_of(request: Request, name: str) -> bool:
    return request.query_params.get(name, "") in ("1", "true", "yes")


async def body_of(request: Request) -> Mapping[str, Any]:
    """The JSON object that was sent."""
    size = 0
    parts: list[bytes] = []
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise refuse(f"the request is larger than {BODY_BYTES_MAX} bytes", 413, 413)
        parts.append(part)
    try:
        body: Any = orjson.loads(b"".join(parts) or b"{}")
    except orjson.JSONDecodeError as error:
        raise refuse(f"the request's body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise refuse("the request's body is to be a JSON object")
    return cast("dict[str, Any]", body)


def field(
    body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any = ..., length_max: int = NAME_MAX
) -> Any:
    """One member of a JSON object, of the kind it must have. A bool is no number here."""
    value = body.get(name, default)
    if value is ...:
        raise refuse(f"{name} is missing")
    if value is default:
        return value
    is_wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is int)
    if is_wrong:
        raise refuse(f"{name} is of the wrong kind")
    if isinstance(value, str) and len(value) > length_max:
        raise refuse(f"{name} is longer than {length_max} characters")
    return value


def require_change(request: Request, is_readonly: bool, allowed_origins: tuple[str, ...]) -> None:
    """Raises unless this request may change something."""
    if is_readonly:
        raise refuse("this console only shows; it was started with --read-only", 403, READ_ONLY)
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise refuse("changes are sent with the content type application/json", 415, 415)
    origin = request.headers.get("origin")
    if origin is not None and origin not in allowed_origins and urlsplit(origin).netloc != request.headers.get("host"):
        raise refuse("changes are taken from the console's own pages only", 403, FOREIGN_ORIGIN)
    if origin is None and request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise refuse("changes are taken from the console's own pages only", 403, FOREIGN_ORIGIN)
