"""How the broker's log lines look on stderr: plain text for people, one JSON object a line for machines.

Called by cli.serve.
"""

import json
import logging
import sys

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")


class PlainLines(logging.Formatter):
    """`node`: whose lines they are, where several brokers share a stderr."""

    def __init__(self, node: int | None = None) -> None:
        whose = "" if node is None else f"broker {node} "
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname)-7s {whose}%(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


class JsonLines(logging.Formatter):
    def __init__(self, node: int | None = None) -> None:
        super().__init__()
        self._whose = {} if node is None else {"node": node}

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            **self._whose,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(level: str, layout: str, node: int | None = None) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(node) if layout == "json" else PlainLines(node))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
