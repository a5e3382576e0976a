"""W3C Trace Context as it comes in record headers: `traceparent`, and `tracestate` beside it.

Called by tracing.first_record. What a client wrote is not believed before it is looked at: anything that is not spelled
as the standard has it is no context, never an error.
"""

import re
from typing import NamedTuple

TRACEPARENT = b"traceparent"
TRACESTATE = b"tracestate"
STATE_BYTES_MAX = 512  # what the standard asks everyone to pass on
STATE_MEMBERS_MAX = 32
PARENT_BYTES_MAX = 256  # later versions may be longer than ours, but not by much

_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
# A list of key=value; vendors with tenants write the key as tenant@vendor.
_MEMBER = re.compile(
    rb"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    rb"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_SAMPLED = 1


class TraceContext(NamedTuple):
    """A span of somebody's, which ours may be a child of or linked to."""

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""


def read_context(parent: bytes, state: bytes = b"") -> TraceContext | None:
    """The context that these two values spell; without a good `parent` there is none, a bad `state` is left out."""
    if len(parent) > PARENT_BYTES_MAX:
        return None
    found = _PARENT.fullmatch(parent)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    # Version 0 has nothing behind its flags; what later versions add is passed over, as the standard asks.
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), _read_state(state))


def _read_state(state: bytes) -> str:
    """As it is, or nothing: who reads it later would put what is wrong with it into a log."""
    if not state or len(state) > STATE_BYTES_MAX:
        return ""
    members = [member.strip(b" \t") for member in state.split(b",")]
    members = [member for member in members if member]
    if len(members) > STATE_MEMBERS_MAX or not all(_MEMBER.fullmatch(member) for member in members):
        return ""
    return b",".join(members).decode("ascii")
