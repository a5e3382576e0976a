"""A JSON Schema: read, checked, compared, and used to check values.

Called by schema.parse(). The parts: json_documents (drafts and references), json_checks (does a value fit?),
json_differences with json_changes (what changed, and does it break readers?), json_fields (for people). Laws:
- Draft by `$schema`: 4, 6, 7, 2019-09, 2020-12; draft 7 where nothing known is named.
- Nothing is fetched, whatever a `$ref` says.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson

from penstock.schemas.json_changes import COMPATIBLE, explained
from penstock.schemas.json_checks import Checks
from penstock.schemas.json_differences import all_changes
from penstock.schemas.json_documents import (
    Document,
    Draft,
    SchemaNode,
    draft_of,
    make_document,
    metaschema_of,
    open_document,
)
from penstock.schemas.json_fields import fields_of
from penstock.schemas.json_text import dump, load
from penstock.schemas.json_values import Run, TooMuchWork
from penstock.schemas.schema import DIFFERENCES_MAX, Field, Incompatible, Kind, ParsedSchema, SchemaError, kind_changed

SCHEMA_WORK_MAX = 5_000_000
"""Steps that holding a schema against its metaschema may take: about three for each of its bytes."""


def parse_json(text: str, references: Sequence[tuple[str, ParsedSchema]]) -> "JsonSchema":
    value = load(text)
    if not isinstance(value, (dict, bool)):
        raise SchemaError("a JSON Schema is an object, or true or false")
    draft = draft_of(value)
    _check_against_metaschema(value, draft)
    documents: dict[str, Document] = {}
    for name, schema in references:
        assert isinstance(schema, JsonSchema)
        documents[name] = schema.document
    document = make_document(value, draft, documents)
    root = open_document(document)
    return JsonSchema(document, root, Checks(root))


class JsonSchema:
    """Immutable."""

    kind: Kind = "JSON"

    def __init__(self, document: Document, root: SchemaNode, checks: Checks, *, is_normalized: bool = False) -> None:
        self.document = document
        self._root = root
        self._checks = checks
        self._is_normalized = is_normalized
        self._canonical = dump(document.json, is_sorted=is_normalized)

    @property
    def canonical(self) -> str:
        return self._canonical

    @property
    def unchecked_patterns(self) -> tuple[str, ...]:
        """The patterns that the engine cannot match; validate() takes every text for them."""
        return tuple(source for source, pattern in self._checks.patterns.items() if not pattern.is_checked)

    def normalized(self) -> "JsonSchema":
        return self if self._is_normalized else JsonSchema(self.document, self._root, self._checks, is_normalized=True)

    def differences(self, older: ParsedSchema) -> list[Incompatible]:
        if not isinstance(older, JsonSchema):
            return kind_changed(self, older)
        # A schema reads what it wrote, however large it is.
        if self.document.digest == older.document.digest:
            return []
        changes = dict.fromkeys(all_changes(older._root, self._root))
        return [explained(change) for change in changes if change.kind not in COMPATIBLE][:DIFFERENCES_MAX]

    def validate(self, payload: memoryview) -> str | None:
        try:
            value: Any = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            return f"the value is no JSON: {error.msg} at byte {error.pos}"
        try:
            fault = self._checks.fault(value, Run())
        except TooMuchWork as given_up:
            return str(given_up)
        return None if fault is None else str(fault)

    def fields(self) -> list[Field]:
        return fields_of(self._root)


def _check_against_metaschema(value: Any, draft: Draft) -> None:
    try:
        fault = _metaschema_checks(draft).fault(value, Run(SCHEMA_WORK_MAX))
    except TooMuchWork as given_up:
        raise SchemaError(f"the schema cannot be checked: {given_up}") from given_up
    if fault is not None:
        raise SchemaError(f"the schema is not one of draft {draft.number}: {fault}")


@cache
def _metaschema_checks(draft: Draft) -> Checks:
    return Checks(open_document(metaschema_of(draft)))
