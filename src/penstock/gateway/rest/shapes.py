"""The words in which a row of the table says what a request or an answer looks like: JSON Schema, in short.

Called by every module of rest that gives rows. What a handler then reads of a request is rest.reading's.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
BOOLEAN: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
PARTITION: Schema = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": INT64_MAX}
BROKER_ID = PARTITION
TOPIC_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 249, "pattern": r"^[a-zA-Z0-9._-]+$"}
# Of a group, a member, an instance.
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 249}
SETTING_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200}


def structure(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object's schema; what is not named in it may be there all the same, as Confluent adds fields too."""
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "required": list(required)} if required else found


def strict(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """The same of a request, where a field nobody knows is refused."""
    return {**structure(required, **properties), "additionalProperties": False}


def list_of(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def nullable(schema: Schema) -> Schema:
    kinds = schema["type"]
    return {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
