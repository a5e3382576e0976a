"""Request headers in, response frames out.

Called by server.connection and client.connection.

    request   api_key i16 | version i16 | correlation_id i32 | client_id nullable string | tagged fields (v2) | body
    response  length i32 | correlation_id i32 | tagged fields (v1) | body

The client id keeps its two-byte length in header v2: a broker must read the header of a version it doesn't know.
"""

from struct import Struct
from typing import NamedTuple

from penstock.errors import MalformedFrame
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.primitives import MALFORMED, skip_tags

_REQUEST = Struct(">hhih")
_RESPONSE = Struct(">ii")
_RESPONSE_FLEXIBLE = Struct(">iib")
_API_VERSIONS = ApiKey.API_VERSIONS.value


class RequestHeader(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def parse_request_header(frame: memoryview) -> RequestHeader:
    """The header of a frame without its length. An API we don't serve has no tagged fields read after its header."""
    try:
        api_key, version, correlation_id, client_id_bytes = _REQUEST.unpack_from(frame)
        if client_id_bytes >= 0:
            offset = 10 + client_id_bytes
            if offset > len(frame):
                raise MalformedFrame("client id runs past the frame")
            client_id = str(frame[10:offset], "utf-8")
        elif client_id_bytes == -1:
            offset = 10
            client_id = None
        else:
            raise MalformedFrame(f"client id of {client_id_bytes} bytes")
        api = BY_KEY.get(api_key)
        if api is not None and version >= api.flexible_from:
            offset = skip_tags(frame, offset)
    except MALFORMED as failure:
        raise MalformedFrame("request header") from failure
    return RequestHeader(api_key, version, correlation_id, client_id, offset)


def request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    raw = b"" if client_id is None else client_id.encode()
    head = _REQUEST.pack(api_key, version, correlation_id, -1 if client_id is None else len(raw)) + raw
    if version >= BY_KEY[api_key].flexible_from:
        head += b"\x00"
    return b"".join(((len(head) + len(body)).to_bytes(4, "big"), head, body))


def response_header(api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Length, correlation id and, for flexible versions, the empty tagged fields that open a response."""
    # A client reads the answer to ApiVersions before it knows what we speak, so that one never has tagged fields.
    if version >= BY_KEY[api_key].flexible_from and api_key != _API_VERSIONS:
        return _RESPONSE_FLEXIBLE.pack(body_bytes + 5, correlation_id, 0)
    return _RESPONSE.pack(body_bytes + 4, correlation_id)


def response_frame(api_key: int, version: int, correlation_id: int, body: bytes) -> bytes:
    return response_header(api_key, version, correlation_id, len(body)) + body
