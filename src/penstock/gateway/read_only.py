"""A gateway that shows and changes nothing: which requests it still answers.

Called by gateway.limits, before any route is looked for. A list of what may pass, not of what may not: a route that
somebody adds is refused until it is known to change nothing.
Laws:
- Nothing is written to a topic, no offset is committed, no setting, schema or group is changed.
- Who asks a question with a POST is answered: schema look-ups, compatibility checks, the doctor.
"""

import re
from typing import Any

from penstock.gateway.errors import HttpProblem

READ_ONLY = 40303
READING = frozenset({"GET", "HEAD", "OPTIONS"})
_SUBJECT = r"(?:/contexts/[^/]+)?(?:/subjects/[^/]+|/compatibility/subjects/[^/]+/versions(?:/[^/]+)?)"
_ASKING = re.compile(rf"(?:{_SUBJECT}|/api/(?:doctor/run|subject/check))".encode())


def refusal(scope: Any) -> HttpProblem | None:
    if scope["type"] == "websocket":
        # It takes records to write from whoever reads, and the stream of events shows the same.
        return HttpProblem(403, READ_ONLY, "This gateway changes nothing (--read-only): read records:stream instead.")
    # As it was sent: in a name, a slash that was written %2F is none.
    if scope["method"] in READING or (scope["method"] == "POST" and _ASKING.fullmatch(scope["raw_path"])):
        return None
    return HttpProblem(403, READ_ONLY, "This gateway shows everything and changes nothing: it runs with --read-only.")
