"""The trace a caller is in (W3C's trace context), handed on to the records that it produces.

Called by v2_produce, v3_records and socket. Brokers and consumers that trace go on from there; a record that has
headers of its own keeps them: they come after these, and the last of a name counts.
"""

from starlette.requests import HTTPConnection

HEADER_BYTES_MAX = 512
_NAMES = ("traceparent", "tracestate")

Headers = list[tuple[str, bytes | None]]


def trace_headers(connection: HTTPConnection) -> Headers:
    """Empty for a caller that is not traced, and for one whose context is longer than the standard asks to keep."""
    found = ((name, connection.headers.get(name)) for name in _NAMES)
    return [(name, text.encode("latin-1")) for name, text in found if text and len(text) <= HEADER_BYTES_MAX]
