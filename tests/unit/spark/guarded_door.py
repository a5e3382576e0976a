"""A door before the embedded broker: TLS with certificates of both sides, and SASL, for what it does not speak itself.

Whoever is admitted has its requests handed on to the broker, one after the other; it must have been told to advertise
the door's address. The server's half of TLS and SASL is that of scripted_broker.
"""

import contextlib
import socket
import struct
import sys
from pathlib import Path

from penstock.wire.apis import ApiKey
from penstock.wire.messages import decode_response, encode_response

# It lies with the tests of our own connection.
sys.path.insert(0, str(Path(__file__).parent / "fetching"))

from scripted_broker import APART, AUTHENTICATE, HANDSHAKE, ScriptedBroker, _exactly, _Session, make_certificates

__all__ = ["APART", "GuardedDoor", "make_certificates"]

DEADLINE_S = 30.0


class GuardedDoor(ScriptedBroker):
    """Open as soon as `upstream` is set."""

    upstream: tuple[str, int] | None = None

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(DEADLINE_S)
        assert self._context is not None
        assert self.upstream is not None
        with (
            contextlib.suppress(OSError),
            raw,
            socket.create_connection(self.upstream) as broker,
            self._context.wrap_socket(raw, server_side=True) as stream,
        ):
            session = _Session(self)
            while True:
                request = _frame(stream)
                api, version, correlation, length = struct.unpack_from(">hhih", request)
                if api in (HANDSHAKE, AUTHENTICATE):
                    body = session.answer(api, version, request[10 + length :])
                    reply = struct.pack(">i", correlation) + (body or b"")
                elif not session._is_known and api != ApiKey.API_VERSIONS:
                    return
                else:
                    broker.sendall(struct.pack(">i", len(request)) + request)
                    reply = _frame(broker)
                if api == ApiKey.API_VERSIONS:
                    reply = reply[:4] + _with_sasl(version, reply[4:])
                stream.sendall(struct.pack(">i", len(reply)) + reply)


def _frame(stream: socket.socket) -> bytes:
    return _exactly(stream, struct.unpack(">i", _exactly(stream, 4))[0])


def _with_sasl(version: int, body: bytes) -> bytes:
    """What the broker answers to whoever asks for its versions, and that there is SASL."""
    if int.from_bytes(body[:2], "big"):
        return body
    known = [
        {"api_key": one.api_key, "min_version": one.min_version, "max_version": one.max_version}
        for one in decode_response(ApiKey.API_VERSIONS, version, body).api_keys
    ]
    sasl = [{"api_key": key, "min_version": 0, "max_version": 1} for key in (HANDSHAKE, AUTHENTICATE)]
    return encode_response(ApiKey.API_VERSIONS, version, {"error_code": 0, "api_keys": [*known, *sasl]})
