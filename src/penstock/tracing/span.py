"""A span that ended, as the broker's loop leaves it for the thread that sends it; and the names spans go by.

Made by tracing.tracer and tracing.produce_trace, read by tracing.exporting. Plain values: what OpenTelemetry makes of
them is made elsewhere, off the loop.

Names follow OpenTelemetry's conventions for messaging: `{operation} {topic}` and messaging.* attributes. Those
conventions describe clients; what a broker does for one of them is SERVER by the general rule, and what it does on its
own INTERNAL.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from penstock.tracing.trace_context import TraceContext

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
PARTITION = "messaging.destination.partition.id"
OFFSET = "messaging.kafka.offset"
MESSAGE_COUNT = "messaging.batch.message_count"
CLIENT_ID = "messaging.client.id"
ERROR_TYPE = "error.type"
LEADER = "penstock.leader.id"

CLIENT_ID_CHARACTERS_MAX = 100  # the wire lets it have 32,767

Attributes = Mapping[str, str | int]


class Kind(Enum):
    """Named as OpenTelemetry names them."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"


class Own(NamedTuple):
    """Which span it is; its children and its own record need no more."""

    trace_id: int
    span_id: int
    state: str = ""


class Span(NamedTuple):
    name: str
    kind: Kind
    own: Own
    parent: TraceContext | Own | None  # a TraceContext is somebody else's
    start_ns: int  # since 1970
    end_ns: int
    attributes: Attributes
    links: tuple[TraceContext, ...] = ()
    error: str | None = None
    events: tuple[tuple[str, int], ...] = ()  # name, and when


def span_name(operation: str, topics: set[str]) -> str:
    """With the topic where there is one; with all of several, names would be without end."""
    return f"{operation} {next(iter(topics))}" if len(topics) == 1 else operation


def attributes_of(operation: str, more: Mapping[str, str | int | None]) -> Attributes:
    """What all spans say, and of `more` what is known."""
    known = {name: value for name, value in more.items() if value is not None}
    return {SYSTEM: "kafka", OPERATION_NAME: operation, **known}


def shown_client(client_id: str | None) -> str | None:
    return client_id[:CLIENT_ID_CHARACTERS_MAX] if client_id else None
