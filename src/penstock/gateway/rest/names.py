"""Names as they come in a path: checked before anything is asked, because librdkafka takes not every text.

Called by all handlers of rest. What cannot be a name is answered as a name that does not exist.
"""

import re

from starlette.requests import HTTPConnection

from penstock.gateway.errors import HttpProblem
from penstock.gateway.settings import GatewaySettings

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,300}")
NAME_MAX = 249


def topic_in(connection: HTTPConnection, missing: HttpProblem, name: str = "topic") -> str:
    return topic_name(connection.path_params[name], missing)


def topic_name(text: str, missing: HttpProblem) -> str:
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise missing
    return text


def plain_name(text: str, missing: HttpProblem) -> str:
    """A group's, an instance's, a member's: anything that can be printed, not too long."""
    if not 1 <= len(text) <= NAME_MAX or not text.isprintable():
        raise missing
    return text


def base_url(connection: HTTPConnection, settings: GatewaySettings) -> str:
    """Where the caller reached us, for links. Only what is a host and a port is repeated, nothing else he may send."""
    host = connection.headers.get("host", "")
    if not _HOST.fullmatch(host):
        host = str(settings.listen)
    return f"http://{host}"
