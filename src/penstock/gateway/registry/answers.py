"""The registry's answers, as JSON.

Called by the handlers. Law: a field that says nothing is left out (no references, the type AVRO), since older clients
fail on fields they do not know.
"""

from typing import Any

import orjson
from starlette.responses import Response

from penstock.gateway.registry.refusals import MEDIA_TYPE
from penstock.schemas.stored.content import Content, Version

Json = dict[str, Any]


def answer(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type=MEDIA_TYPE)


def raw_schema(text: str) -> Response:
    """Only the schema, not as text within JSON."""
    return Response(text.encode(errors="replace"), media_type=MEDIA_TYPE)


def content_fields(content: Content, text: str | None = None) -> Json:
    """What a schema is, without where it lies. `text`: the schema in another format."""
    found: Json = {"guid": content.guid}
    if content.kind != "AVRO":
        found["schemaType"] = content.kind
    if content.references:
        found["references"] = [reference._asdict() for reference in content.references]
    if content.metadata is not None:
        found["metadata"] = orjson.Fragment(content.metadata)
    if content.rule_set is not None:
        found["ruleSet"] = orjson.Fragment(content.rule_set)
    found["schema"] = content.text if text is None else text
    return found


def version_fields(version: Version, text: str | None = None) -> Json:
    found: Json = {"subject": version.subject, "version": version.version, "id": version.content.id}
    found.update(content_fields(version.content, text))
    if version.deleted:
        found["deleted"] = True
    return found
