"""A schema in another format than the one it is kept in: protobuf as a serialized descriptor.

Called by the handlers. A format that a kind does not have is not an error: the schema is told as it is kept, which is
what other registries do.
"""

from starlette.requests import Request

from penstock.gateway.registry.closure import closure_of_content
from penstock.gateway.registry.refusals import invalid_schema
from penstock.gateway.registry.registry import Registry
from penstock.schemas.schema import SchemaError
from penstock.schemas.stored.content import Content

SERIALIZED = "serialized"


async def text_in(registry: Registry, subject: str, content: Content, request: Request) -> str | None:
    """The schema in the format that is asked for; None where that is the one it is kept in."""
    if content.kind != "PROTOBUF" or request.query_params.get("format") != SERIALIZED:
        return None
    from penstock.schemas.protobuf import serialized

    try:
        return serialized(await registry.parser.parsed(closure_of_content(registry.state, subject, content)))
    except SchemaError as error:
        raise invalid_schema(str(error)) from None
