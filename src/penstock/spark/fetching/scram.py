"""SCRAM as the client speaks it (RFC 5802, RFC 7677), without channel binding.

Called by fetching.sasl. Plain functions of text; the one secret thing kept is the password, until the proof is made.
Laws:
- The server proves that it knows the password too, or the connection is not used.
- A server cannot make us compute for ever: ITERATIONS_MAX.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 1_000_000
_GS2_HEADER = "n,,"


class ScramFailure(Exception):
    """What the server said is no SCRAM, or does not prove that it knows the password."""


class ScramClient:
    def __init__(self, mechanism: str, username: str, password: str, nonce: str | None = None) -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(24)
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof that answers the server's challenge."""
        fields = _fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), _decoded(fields.get("s", "")), _number(fields.get("i", ""))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramFailure("the server's nonce does not begin with ours")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramFailure(f"{iterations} iterations are outside {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        without_proof = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        signed = ",".join((self._first_bare, server_first.decode(), without_proof)).encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramFailure(fields["e"])
        if not self._server_signature or not hmac.compare_digest(_decoded(fields.get("v", "")), self._server_signature):
            raise ScramFailure("the server did not prove that it knows the password")

    def _mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    try:
        parts = message.decode().split(",")
    except UnicodeDecodeError as failure:
        raise ScramFailure("the server's message is not text") from failure
    return {part[:1]: part[2:] for part in parts if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as failure:
        raise ScramFailure("the server's message is not base64") from failure


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else -1
