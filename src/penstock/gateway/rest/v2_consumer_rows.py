"""REST v2, consuming: the rows of v2_consumers and v2_consumer_records, apart from what they do.

Called by gateway.rest.
"""

from typing import Literal

from penstock.gateway.rest.shapes import (
    ANYTHING,
    BOOLEAN,
    INTEGER,
    NAME,
    OFFSET,
    PARTITION,
    STRING,
    TOPIC_NAME,
    Schema,
    list_of,
    strict,
    structure,
)
from penstock.gateway.rest.table import Answer, Body, Handler, Operation, Parameter, Row, path_parameters
from penstock.gateway.rest.v2_consumer_records import BYTES_MAX, V2ConsumerRecords
from penstock.gateway.rest.v2_consumer_requests import (
    FETCH_BYTES_MAX,
    ISOLATION_LEVELS,
    OFFSET_RESETS,
    TIMEOUT_MS_MAX,
)
from penstock.gateway.rest.v2_consumers import V2Consumers
from penstock.gateway.rest.v2_media import ANSWERS, EVERY_BODY, FORMATS, V2

TAG = "Consumers (v2)"

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
        "name": NAME,
        "format": {"type": "string", "enum": list(FORMATS)},
        "auto.offset.reset": {"type": "string", "enum": list(OFFSET_RESETS)},
        "auto.commit.enable": {"anyOf": [BOOLEAN, {"type": "string", "enum": ["true", "false"]}]},
        "fetch.min.bytes": {"type": "integer", "minimum": 0, "maximum": FETCH_BYTES_MAX},
        "fetch.max.wait.ms": {"type": "integer", "minimum": 0, "maximum": TIMEOUT_MS_MAX},
        "consumer.request.timeout.ms": {"type": "integer", "minimum": 0, "maximum": TIMEOUT_MS_MAX},
        "isolation.level": {"type": "string", "enum": list(ISOLATION_LEVELS)},
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


def consumer_rows(consumers: V2Consumers, records: V2ConsumerRecords) -> list[Row]:
    group = path_parameters(group=NAME)
    instance = path_parameters(group=NAME, instance=NAME)
    done = (Answer(204, "Done."),)

    def row(
        method: Literal["GET", "POST", "DELETE"],
        path: str,
        handler: Handler,
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
    own, every_type = consumers, (*_RECORD_TYPES, *ANSWERS)
    return [
        row("GET", f"{at}/records", records.read, "Read.", ok(_RECORDS, every_type), parameters=instance + _READING),
        row("POST", f"{at}/offsets", records.commit, "Commit.", ok(list_of(ANYTHING)), _OFFSETS, is_required=False),
        row("GET", f"{at}/offsets", records.committed, "What is committed. Has a body.", ok(given), _PLACES),
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
