"""A port that answers as a secured Kafka broker does: TLS, SASL, one topic. For what the embedded broker has not yet.

The server's half of SCRAM is written from RFC 5802 alone, so that the client's half is not checked against itself.
"""

import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from penstock.wire.apis import ApiKey
from penstock.wire.messages import encode_response

HANDSHAKE, AUTHENTICATE = 17, 36
METADATA_VERSION = 5
ITERATIONS = 4096
# A loopback address no other test's broker listens on: whatever client outlived its own broker does not find us here,
# even if we were given the port that one had.
APART = "127.0.0.7"


def make_certificates(directory: Path) -> tuple[Path, Path]:
    """A certificate for localhost and APART that signs itself, and its key."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:localhost,IP:{APART}", "-keyout", str(key),
         "-out", str(certificate)],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return certificate, key


class ScriptedBroker:
    def __init__(
        self,
        *,
        certificates: tuple[Path, Path] | None = None,
        wants_client_certificate: bool = False,
        mechanisms: tuple[str, ...] = (),
        users: dict[str, str] | None = None,
        is_honest: bool = True,
        hangs_up_at_tls: bool = False,
        silent_after: int | None = None,
        other_port: int | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`silent_after` so many answers it says no more, nor hangs up; `other_port` is a second broker's."""
        self.silent_after, self.other_port = silent_after, other_port
        self.host = host
        self.mechanisms, self.users = mechanisms, users or {}
        self.is_honest = is_honest
        self.served = 0
        self.connections = 0
        self._hangs_up_at_tls = hangs_up_at_tls
        self._context: ssl.SSLContext | None = None
        if certificates is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(*certificates)
            if wants_client_certificate:
                self._context.verify_mode = ssl.CERT_REQUIRED
                self._context.load_verify_locations(certificates[0])

    def __enter__(self) -> Self:
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A close alone does not wake who is in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(10)
        with contextlib.suppress(OSError, struct.error), raw:
            if self._hangs_up_at_tls and raw.recv(1, socket.MSG_PEEK) == b"\x16":
                return
            stream = raw if self._context is None else self._context.wrap_socket(raw, server_side=True)
            session = _Session(self)
            while True:
                size = struct.unpack(">i", _exactly(stream, 4))[0]
                if not 0 < size < 1_000_000:
                    return
                frame = _exactly(stream, size)
                api, version, correlation, length = struct.unpack_from(">hhih", frame)
                body = session.answer(api, version, frame[10 + length :])
                if body is None:
                    return
                if self.silent_after is not None and self.served >= self.silent_after:
                    continue
                self.served += 1
                stream.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)


class _Session:
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._mechanism = ""
        self._is_known = not broker.mechanisms
        self._scram: tuple[str, str, str] | None = None  # bare first message, first answer, password

    def answer(self, api: int, version: int, body: bytes) -> bytes | None:
        if api == ApiKey.API_VERSIONS:
            known = [(ApiKey.API_VERSIONS, 0, 3), (ApiKey.METADATA, 0, METADATA_VERSION)]
            known += [(HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 1)] if self._broker.mechanisms else []
            return struct.pack(">hi", 0, len(known)) + b"".join(struct.pack(">hhh", *row) for row in known)
        if api == HANDSHAKE:
            self._mechanism = body[2:].decode()
            names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in self._broker.mechanisms)
            error = 0 if self._mechanism in self._broker.mechanisms else 33
            return struct.pack(">hi", error, len(self._broker.mechanisms)) + names
        if api == AUTHENTICATE:
            said = self._authenticate(body[4:].decode())
            if said is None:
                text = b"Authentication failed"
                return struct.pack(">hh", 58, len(text)) + text + struct.pack(">iq", 0, 0)
            return struct.pack(">hhi", 0, -1, len(said)) + said.encode() + struct.pack(">q", 3_600_000)
        if api == ApiKey.METADATA and self._is_known:
            return self._metadata()
        return None  # as Kafka does with who has not said who it is: hang up

    def _metadata(self) -> bytes:
        partition: dict[str, Any] = {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1]}
        topic = {"error_code": 0, "name": "secret", "is_internal": False, "partitions": [partition]}
        ports = [self._broker.port] + ([] if self._broker.other_port is None else [self._broker.other_port])
        brokers = [{"node_id": number, "host": "localhost", "port": port} for number, port in enumerate(ports, 1)]
        return encode_response(ApiKey.METADATA, METADATA_VERSION, {"brokers": brokers, "topics": [topic]})

    def _authenticate(self, said: str) -> str | None:
        if self._mechanism == "PLAIN":
            _, user, password = said.split("\0")
            self._is_known = self._broker.users.get(user) == password
            return "" if self._is_known else None
        algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self._mechanism]
        salt = b"salt of the server"
        if self._scram is None:
            bare = said.removeprefix("n,,")
            fields = dict(part.split("=", 1) for part in bare.split(","))
            user = fields["n"].replace("=2C", ",").replace("=3D", "=")
            first = f"r={fields['r']}more,s={base64.b64encode(salt).decode()},i={ITERATIONS}"
            self._scram = bare, first, self._broker.users.get(user, "")
            return first
        bare, first, password = self._scram
        without_proof, proof = said.rsplit(",p=", 1)
        signed = f"{bare},{first},{without_proof}".encode()
        salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", algorithm)
        signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return None
        self._is_known = True
        key = hmac.digest(salted, b"Server Key" if self._broker.is_honest else b"a guess", algorithm)
        return f"v={base64.b64encode(hmac.digest(key, signed, algorithm)).decode()}"


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data
