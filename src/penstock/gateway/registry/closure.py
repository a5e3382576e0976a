"""A schema with everything it refers to, or the answer a caller gets whose schema refers to what is not there.

Called by registry.py and its kin on the event loop; the collecting itself is penstock.schemas.stored.closure.
"""

from penstock.gateway.registry.refusals import invalid_schema
from penstock.schemas.schema import Reference, SchemaError
from penstock.schemas.stored import closure
from penstock.schemas.stored.closure import Closure
from penstock.schemas.stored.content import Content
from penstock.schemas.stored.state import State


def closure_of(
    state: State, subject: str, kind: str, text: str, references: tuple[Reference, ...], *, is_new: bool
) -> Closure:
    """Of a schema as it is given. A new one may refer only to versions that are not deleted."""
    try:
        return closure.closure_of(state, subject, kind, text, references, is_new=is_new)
    except SchemaError as error:
        raise invalid_schema(str(error)) from None


def closure_of_content(state: State, subject: str, content: Content) -> Closure:
    try:
        return closure.closure_of_content(state, subject, content)
    except SchemaError as error:
        raise invalid_schema(str(error)) from None
