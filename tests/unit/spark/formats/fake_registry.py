"""A schema registry on a real socket: the part of Confluent's HTTP API that readers use, and its bad days.

Used by the unit tests of formats and by tests/spark/test_formats.py.
"""

import base64
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit


class FakeRegistry:
    def __init__(self, user_info: str | None = None) -> None:
        self.asked: list[str] = []
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        # Answers to give instead, in order: (status, body, further headers).
        self.instead: list[tuple[int, bytes, dict[str, str]]] = []
        self._user_info = user_info
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                status, body, headers = registry.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: list[dict[str, Any]] | None = None
    ) -> int:
        """The new schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found: dict[str, Any] = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
        if references:
            found["references"] = references
        self.schemas.append(found)
        self.subjects.setdefault(subject, []).append(len(self.schemas))
        return len(self.schemas)

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes, dict[str, str]]:
        if self.instead:
            return self.instead.pop(0)
        if self._user_info is not None:
            expected = "Basic " + base64.b64encode(self._user_info.encode()).decode()
            if authorization != expected:
                return 401, b'{"error_code":401,"message":"no"}', {}
        match [unquote(step) for step in urlsplit(path).path.split("/")[1:]]:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return 200, json.dumps(self.schemas[int(number) - 1]).encode(), {}
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                ids = self.subjects[subject]
                at = len(ids) if version == "latest" else int(version)
                found = {"subject": subject, "version": at, "id": ids[at - 1], **self.schemas[ids[at - 1] - 1]}
                return 200, json.dumps(found).encode(), {}
            case _:
                return 404, b'{"error_code":40401,"message":"not found"}', {}


def framed(schema_id: int, payload: bytes, indexes: bytes = b"") -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + payload
