"""Which records of a batch are not what their topic asks for. In a thread: nothing here looks at anything shared.

Called by validation.py. Laws:
- What is unpacked is bounded by the caller's size_max, what is looked at by `deadline`, on the monotonic clock.
- No schema id is taken for wrong before the caller has looked it up: judge() gives the ids of the batch back first,
  and judges nothing. All of them, as what was known of one may have changed when the other is looked up.
"""

import time
from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import MessageTooLarge
from penstock.records.batch import BatchHeader
from penstock.records.record import Span, scan_records, unfold
from penstock.schemas.framing import split_frame
from penstock.schemas.schema import ParsedSchema, SchemaError
from penstock.schemas.stored.closure import Closure
from penstock.schemas.stored.parsed import ParsedSchemas
from penstock.validation.rules import FULL, OFF, Fault, Rule, shortened

IDS_MAX = 100
"""Schemas that the records of one batch may name; each may have to be looked up and parsed."""
RECORDS_PER_LOOK = 32
"""Between two looks at the clock."""


class Registered(NamedTuple):
    """A schema id as the registry has it: the subjects it stands under, and the schema, or why it cannot be read."""

    subjects: frozenset[str]
    schema: Closure | SchemaError


Known = Mapping[int, Registered]


class MustLookUp(NamedTuple):
    ids: frozenset[int]


class Judged(NamedTuple):
    body: bytes
    faults: list[Fault]


def judge(
    batch: memoryview,
    header: BatchHeader,
    size_max: int,
    rule: Rule,
    known: Known,
    schemas: ParsedSchemas,
    deadline: float,
    looked_up: frozenset[int] | None = None,
) -> Judged | MustLookUp:
    """`looked_up`: the ids that were given back and are known now, if they are registered at all."""
    body = bytes(unfold(batch, header, size_max))
    judge = _Judge(rule, known, schemas, memoryview(body), looked_up)
    if looked_up is None:
        named, are_fine = judge.ids(header)
        if not are_fine:
            return MustLookUp(named)
    faults: list[Fault] = []
    for count, span in enumerate(scan_records(body, header)):
        if count % RECORDS_PER_LOOK == 0 and time.monotonic() > deadline:
            raise MessageTooLarge(
                f"{count} of the batch's {header.record_count} records were validated in the time there is for all: "
                "send smaller batches"
            )
        reason = judge.reason(span)
        if reason is not None:
            faults.append(Fault(span.offset_delta, reason))
    return Judged(body, faults)


class _Judge:
    def __init__(
        self, rule: Rule, known: Known, schemas: ParsedSchemas, body: memoryview, looked_up: frozenset[int] | None
    ) -> None:
        self._rule = rule
        self._known = known
        self._schemas = schemas
        self._body = body
        self._looked_up = looked_up
        # Of this batch: most have one schema, and the shared ones stand behind a lock.
        self._parsed: dict[int, ParsedSchema | str] = {}

    def ids(self, header: BatchHeader) -> tuple[frozenset[int], bool]:
        """The ids that the batch names, as many as may be looked up for it; and whether all are accepted already."""
        rule = self._rule
        named: set[int] = set()
        seen: set[tuple[int, str | None]] = set()
        are_fine = True
        for span in scan_records(self._body, header):
            for mode, subject, part in (
                (rule.key_mode, rule.key_subject, self._key(span)),
                (rule.value_mode, rule.value_subject, self._value(span)),
            ):
                framed = None if mode == OFF or part is None else split_frame(part)
                if framed is None or (framed[0], subject) in seen:
                    continue
                schema_id = framed[0]
                if len(named) == IDS_MAX and schema_id not in named:
                    return frozenset(named), False
                named.add(schema_id)
                seen.add((schema_id, subject))
                are_fine = are_fine and self._is_fine(schema_id, subject)
        return frozenset(named), are_fine

    def reason(self, span: Span) -> str | None:
        """What is wrong with a record; None where nothing is."""
        rule = self._rule
        if rule.key_mode != OFF:
            reason = self._fault("key", self._key(span), rule.key_mode, rule.key_subject)
            if reason is not None:
                return shortened(reason)
        if rule.value_mode != OFF:
            reason = self._fault("value", self._value(span), rule.value_mode, rule.value_subject)
            if reason is not None:
                return shortened(reason)
        return None

    def _fault(self, what: str, part: memoryview | None, mode: str, subject: str | None) -> str | None:
        if part is None:
            return None  # a tombstone, or a record without a key
        framed = split_frame(part)
        if framed is None:
            return f"the {what} does not begin with a schema id: a zero byte, then four of the id"
        schema_id, payload = framed
        if self._looked_up is not None and schema_id not in self._looked_up:
            return f"the batch names more than {IDS_MAX} schemas: send smaller batches"
        registered = self._known.get(schema_id)
        if registered is None:
            return f"the {what} names schema id {schema_id}, which is not registered"
        if not self._is_fine(schema_id, subject):
            return f"the {what} names schema id {schema_id}, which is not registered under subject '{subject}'"
        if mode != FULL:
            return None
        schema = self._schema(schema_id, registered)
        if isinstance(schema, str):
            return f"schema id {schema_id} of the {what} cannot be read here: {schema}"
        wrong = schema.validate(payload)
        return None if wrong is None else f"the {what} does not fit schema id {schema_id}: {wrong}"

    def _is_fine(self, schema_id: int, subject: str | None) -> bool:
        registered = self._known.get(schema_id)
        return registered is not None and (subject is None or subject in registered.subjects)

    def _schema(self, schema_id: int, registered: Registered) -> ParsedSchema | str:
        found = self._parsed.get(schema_id)
        if found is None:
            try:
                if isinstance(registered.schema, SchemaError):
                    raise registered.schema
                found = self._schemas.parse_now(registered.schema)
            except SchemaError as error:
                found = str(error)
            self._parsed[schema_id] = found
        return found

    def _key(self, span: Span) -> memoryview | None:
        return None if span.key_length < 0 else self._body[span.key_at : span.key_at + span.key_length]

    def _value(self, span: Span) -> memoryview | None:
        return None if span.value_length < 0 else self._body[span.value_at : span.value_at + span.value_length]
