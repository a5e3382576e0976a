"""How the broker's log lines look on stderr: plain text for people, one JSON object a line for machines.

Called by cli.serve.
"""

import json
import logging
import sys

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")


class PlainLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr(level: str, layout: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if layout == "json" else PlainLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
