"""REST v2, consuming: the rows of v2_consumers, apart from what they do.

Called by gateway.rest.
"""

from typing import Any

from penstock.gateway.rest.table import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    OFFSET,
    PARTITION,
    STRING,
    Answer,
    Body,
    Operation,
    Parameter,
    Row,
    Schema,
    list_of,
    path_parameters,
    strict,
    structure,
)
from penstock.gateway.rest.v2_consumers import BYTES_MAX, TIMEOUT_MS_MAX, V2Consumers
from penstock.gateway.rest.v2_media import ANSWERS, EVERY_BODY, FORMATS, V2
from penstock.gateway.rest.v2_topics import TOPIC_NAME

TAG = "Consumers (v2)"

_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 249}
_PLACE = strict(("topic", "partition"), topic=TOPIC_NAME, partition=PARTITION)
_PLACES = strict(("partitions",), partitions=list_of(_PLACE))
_OFFSETS = strict(
    ("offsets",),
    offsets=list_of(
        strict(("topic", "partition", "offset"), topic=TOPIC_NAME, partition=PARTITION, offset=OFFSET, metadata=STRING)
    ),
)
_CONFIG: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": _NAME,
        "format": {"type": "string", "enum": list(FORMATS)},
        "auto.offset.reset": {"type": "string", "enum": ["earliest", "latest", "none"]},
        "auto.commit.enable": {"anyOf": [BOOLEAN, {"type": "string", "enum": ["true", "false"]}]},
        "fetch.min.bytes": {"type": "integer", "minimum": 0, "maximum": 10_000_000},
        "fetch.max.wait.ms": {"type": "integer", "minimum": 0, "maximum": TIMEOUT_MS_MAX},
        "consumer.request.timeout.ms": {"type": "integer", "minimum": 0, "maximum": TIMEOUT_MS_MAX},
        "isolation.level": {"type": "string", "enum": ["read_committed", "read_uncommitted"]},
    },
}
_SUBSCRIPTION = strict((), topics=list_of(TOPIC_NAME, minItems=1), topic_pattern={"type": "string", "minLength": 1})
_CREATED = structure(("instance_id", "base_uri"), instance_id=STRING, base_uri=STRING)
_RECORDS = list_of(
    structure(
        ("topic", "key", "value", "partition", "offset"),
        topic=STRING,
        key=ANYTHING,
        value=ANYTHING,
        partition=INTEGER,
        offset=INTEGER,
    )
)
_RECORD_TYPES = tuple(f"application/vnd.kafka.{name}.v2+json" for name in FORMATS)
_READING = (
    Parameter(
        "timeout", "query", {"type": "integer", "minimum": -1, "maximum": TIMEOUT_MS_MAX}, "Milliseconds to wait."
    ),
    Parameter("max_bytes", "query", {"type": "integer", "minimum": -1, "maximum": BYTES_MAX}, "Of keys and values."),
)


def consumer_rows(consumers: V2Consumers) -> list[Row]:
    group = path_parameters(group=_NAME)
    instance = path_parameters(group=_NAME, instance=_NAME)
    done = (Answer(204, "Done."),)

    def row(
        method: Any,
        path: str,
        handler: Any,
        summary: str,
        answers: tuple[Answer, ...] = done,
        body: Schema | None = None,
        *,
        parameters: tuple[Parameter, ...] = instance,
        is_required: bool = True,
    ) -> Operation:
        taken = None if body is None else Body(body, EVERY_BODY, is_required)
        problems = (404, 406, 408, 409, 413, 415, 422, 429)
        return Operation(method, path, handler, summary, TAG, answers, parameters, taken, problems, V2)

    def ok(schema: Schema, media_types: tuple[str, ...] = ANSWERS) -> tuple[Answer, ...]:
        return (Answer(200, "What was asked for.", schema, media_types),)

    at = "/consumers/{group}/instances/{instance}"
    given = structure(("offsets",), offsets=list_of(structure(("topic", "partition", "offset"), offset=INTEGER)))
    held = structure(("partitions",), partitions=list_of(structure(("topic", "partition"), partition=INTEGER)))
    listed = structure(("topics",), topics=list_of(STRING))
    own = consumers
    return [
        row(
            "GET",
            f"{at}/records",
            own.records,
            "Read.",
            ok(_RECORDS, (*_RECORD_TYPES, *ANSWERS)),
            parameters=instance + _READING,
        ),
        row("POST", f"{at}/offsets", own.commit, "Commit.", ok(list_of(ANYTHING)), _OFFSETS, is_required=False),
        row("GET", f"{at}/offsets", own.committed, "What is committed. Has a body.", ok(given), _PLACES),
        row(
            "POST",
            "/consumers/{group}",
            own.create,
            "Make an instance.",
            ok(_CREATED),
            _CONFIG,
            parameters=group,
            is_required=False,
        ),
        row("DELETE", at, own.delete, "Close an instance."),
        row("POST", f"{at}/subscription", own.subscribe, "Read topics as a member.", body=_SUBSCRIPTION),
        row("GET", f"{at}/subscription", own.subscription, "What it is subscribed to.", ok(listed)),
        row("DELETE", f"{at}/subscription", own.unsubscribe, "Leave the group."),
        row("POST", f"{at}/assignments", own.assign, "Read these partitions.", body=_PLACES),
        row("GET", f"{at}/assignments", own.assignment, "Which partitions it reads.", ok(held)),
        row("POST", f"{at}/positions", own.seek, "Go on from offsets.", body=_OFFSETS),
        row("POST", f"{at}/positions/beginning", own.seek_to_beginning, "Go on from the beginning.", body=_PLACES),
        row("POST", f"{at}/positions/end", own.seek_to_end, "Go on from the end.", body=_PLACES),
    ]
