"""What a request says, taken out of its path, its query and its body: of the right type and within bounds, or refused.

Called by all handlers of rest. Names are rest.names'.
Law: whatever does not fit is an HttpProblem whose sentence says which part, and what would do.
"""

from collections.abc import Mapping
from typing import Any, cast

from starlette.requests import HTTPConnection, Request

from penstock.gateway.errors import HttpProblem
from penstock.gateway.rest.shapes import INT32_MAX

# The fields an object may have, and what each may be.
Known = Mapping[str, type | tuple[type, ...]]


def query_number(connection: HTTPConnection, name: str, minimum: int, maximum: int) -> int | None:
    text = connection.query_params.get(name)
    if text is None:
        return None
    number = _number(text)
    if number is None or not minimum <= number <= maximum:
        raise HttpProblem(400, 400, f"{name}={text[:40]} is no number from {minimum} to {maximum}.")
    return number


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


def fields(value: Any, what: str, known: Known, *, status: int = 422) -> dict[str, Any]:
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


def is_c_string(text: str) -> bool:
    """librdkafka takes C strings: what holds a NUL or half a character cannot be said to it."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
