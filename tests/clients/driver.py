"""A driver: one client library in a process of its own, told what to do line by line.

Called by conftest and client. Every client, in whatever language, stands behind the same small vocabulary, so that a
scenario is written once. A command is one line of JSON on the driver's stdin, an answer or an event one on its stdout:

    {"id": 7, "do": "send", "with": {"producer": "p1", "topic": "orders", "records": [...]}}
    {"id": 7, "result": [[0, 0], [0, 1]]}        or  {"id": 7, "error": "what the client says"}
    {"consumer": "c1", "assigned": [["orders", 0]]}    also "revoked", "records", "failed"

Keys, values and header values are base64; null is null. Commands of a driver run side by side.
"""

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

ANSWER_DEADLINE_S = 45.0
END_DEADLINE_S = 5.0

Event = dict[str, Any]


class ClientError(Exception):
    """What a client library said when it refused or gave up."""


class Driver:
    def __init__(self, command: list[str], environment: Mapping[str, str], diary: Path) -> None:
        self._diary = diary
        self._answers: dict[int, Future[Any]] = {}
        self._listeners: dict[str, Callable[[Event], None]] = {}
        self._count = 0
        self._writing = threading.Lock()
        with diary.open("ab") as standard_error:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=standard_error, env=dict(environment)
            )
        threading.Thread(target=self._listen, name=f"driver-{self._process.pid}", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def call(self, do: str, **arguments: Any) -> Any:
        """The client's answer, waited for. Raises ClientError if it is an error."""
        return self.begin(do, **arguments).result(ANSWER_DEADLINE_S)

    def begin(self, do: str, **arguments: Any) -> "Future[Any]":
        assert self._process.stdin is not None
        answer: Future[Any] = Future()
        with self._writing:
            self._count += 1
            self._answers[self._count] = answer
            line = json.dumps({"id": self._count, "do": do, "with": arguments})
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        return answer

    def listen(self, consumer: str, listener: Callable[[Event], None]) -> None:
        self._listeners[consumer] = listener

    def diary(self, lines: int = 40) -> str:
        """The last the driver and its client wrote to stderr."""
        return "\n".join(self._diary.read_text("utf-8", "replace").splitlines()[-lines:])

    def end(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_DEADLINE_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "id" not in message:
                listener = self._listeners.get(message["consumer"])
                if listener is not None:
                    listener(message)
                continue
            answer = self._answers.pop(message["id"])
            if "error" in message:
                answer.set_exception(ClientError(message["error"]))
            else:
                answer.set_result(message.get("result"))
        for answer in self._answers.values():
            answer.set_exception(ClientError("the driver has ended"))
