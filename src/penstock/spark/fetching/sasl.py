"""Telling a broker who we are: PLAIN and SCRAM, over SaslHandshake and SaslAuthenticate.

Called by fetching.connection once, before anything else is asked. A refusal is NotAdmitted: the same password will not
be right the next time, and brokers lock out who tries often.
"""

import time
from struct import Struct
from typing import TYPE_CHECKING

from penstock.spark.fetching.errors import NotAdmitted
from penstock.spark.fetching.scram import ScramClient, ScramFailure
from penstock.spark.fetching.settings import ConnectionSettings
from penstock.wire.primitives import I16, I32, I64, MALFORMED, read_nullable_string

if TYPE_CHECKING:
    from penstock.spark.fetching.connection import BrokerConnection

_SASL_HANDSHAKE = 17
_SASL_AUTHENTICATE = 36
_HANDSHAKE_VERSION = 1  # from which tokens travel in SaslAuthenticate
_LIFETIME_FROM = 1

_UNSUPPORTED_MECHANISM = 33
_HANDSHAKE = Struct(">hi")  # error, how many mechanisms
# A connection is made anew a little before the broker would cut it.
_LIFETIME_SHARE = 0.85


def authenticate(connection: "BrokerConnection", settings: ConnectionSettings) -> None:
    mechanism, username, password = settings.sasl_mechanism, settings.username, settings.password
    assert mechanism is not None
    assert username is not None
    assert password is not None
    _agree(connection, mechanism)
    if mechanism == "PLAIN":
        _exchange(connection, settings, f"\0{username}\0{password}".encode())
        return
    client = ScramClient(mechanism, username, password)
    try:
        proof = client.final(_exchange(connection, settings, client.first()))
        client.verify(_exchange(connection, settings, proof))
    except ScramFailure as failure:
        raise NotAdmitted(_refused(connection, settings, str(failure))) from failure


def _agree(connection: "BrokerConnection", mechanism: str) -> None:
    version = connection.version(_SASL_HANDSHAKE, _HANDSHAKE_VERSION, _HANDSHAKE_VERSION)
    raw = mechanism.encode()
    reply = connection.call(_SASL_HANDSHAKE, version, I16.pack(len(raw)) + raw)
    try:
        error, count = _HANDSHAKE.unpack_from(reply)
        offered: list[str] = []
        position = _HANDSHAKE.size
        for _ in range(count):
            name, position = read_nullable_string(reply, position, False)
            offered.append(name or "")
    except MALFORMED as failure:
        raise ConnectionError(f"{connection.endpoint} sent a broken SaslHandshake") from failure
    if error == _UNSUPPORTED_MECHANISM:
        raise NotAdmitted(
            f"{connection.endpoint} does not take SASL {mechanism}: it offers {', '.join(sorted(offered)) or 'none'}; "
            f"set kafka.sasl.mechanism"
        )
    if error:
        raise NotAdmitted(f"{connection.endpoint} refused SASL {mechanism}: error {error}; is its listener a SASL one?")


def _exchange(connection: "BrokerConnection", settings: ConnectionSettings, token: bytes) -> bytes:
    version = connection.version(_SASL_AUTHENTICATE, 0, _LIFETIME_FROM)
    reply = connection.call(_SASL_AUTHENTICATE, version, I32.pack(len(token)) + token)
    try:
        error = I16.unpack_from(reply)[0]
        message, position = read_nullable_string(reply, 2, False)
        size = I32.unpack_from(reply, position)[0]
        answer = bytes(reply[position + 4 : position + 4 + max(size, 0)])
        lifetime_ms = I64.unpack_from(reply, position + 4 + max(size, 0))[0] if version >= _LIFETIME_FROM else 0
    except MALFORMED as failure:
        raise ConnectionError(f"{connection.endpoint} sent a broken SaslAuthenticate") from failure
    if error:
        raise NotAdmitted(_refused(connection, settings, message or f"error {error}"))
    if lifetime_ms > 0:
        connection.expires_at = time.monotonic() + lifetime_ms / 1000 * _LIFETIME_SHARE
    return answer


def _refused(connection: "BrokerConnection", settings: ConnectionSettings, why: str) -> str:
    return (
        f"{connection.endpoint} did not admit user {settings.username} by {settings.sasl_mechanism}: {why}; "
        f"check the user name and password"
    )
