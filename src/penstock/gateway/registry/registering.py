"""A schema on its way into a subject: found there already, or compared with what is there and given an id.

Called by registry.py on the event loop. What takes time (parsing, comparing) waits for the Parser's threads; each step
after such a wait reads the state anew. That the state has not changed in between is not this file's care: the writer's
transaction fails if it has, and the whole decision is made again.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from penstock.gateway.registry import deciding
from penstock.gateway.registry.closure import closure_of, closure_of_content
from penstock.gateway.registry.contracts import (
    VERSION_PROPERTY,
    merged_metadata,
    merged_rule_set,
    properties_of,
    with_version,
)
from penstock.gateway.registry.deciding import Decision, contract_of, contract_text
from penstock.gateway.registry.finding import Candidate, canonical_of, find_canonical, with_numbers
from penstock.gateway.registry.parsing import Parser
from penstock.gateway.registry.questions import LATEST, find_version, has_subject, versions
from penstock.gateway.registry.refusals import (
    incompatible,
    invalid_schema,
    not_permitted,
    schema_too_large,
    subject_not_found,
)
from penstock.gateway.registry.scope import Mode, config_in_scope, level_in_scope
from penstock.schemas.schema import Incompatible, SchemaError
from penstock.schemas.stored.closure import Closure
from penstock.schemas.stored.content import Content, Holders, Version, digest_of
from penstock.schemas.stored.names import DEFAULT_CONTEXT, context_of
from penstock.schemas.stored.records import ContextRecord, Record, SchemaRecord, value_of
from penstock.schemas.stored.state import State

RECORD_BYTES_MAX = 4 << 20
CONTEXTS_MAX = 1000
MESSAGES_MAX = 20
"""How many incompatibilities the sentence of a refusal tells."""


class Registered(NamedTuple):
    id: int
    version: int
    content: Content
    is_changed: bool
    """Whether what is kept is more than the caller gave: contracts were filled in."""


async def register(state: State, parser: Parser, given: Candidate) -> Decision[Registered]:
    subject = given.subject
    mode = deciding.check_writable(state, subject, with_id=given.id is not None)
    candidate, is_changed = (given, False) if mode is Mode.IMPORT else _filled_in(state, given)
    if not candidate.text.strip():
        raise invalid_schema("it is empty")
    candidate = with_numbers(state, candidate)
    normalize = candidate.normalize or bool(config_in_scope(state, subject).get("normalize"))
    closure = closure_of(
        state, subject, candidate.kind, candidate.text, candidate.references, is_new=not mode.takes_ids
    )
    canonical = await canonical_of(parser, closure, normalize)
    if candidate.version == 0:
        found = await find_canonical(state, parser, candidate, canonical, normalize, False)
        if found is not None and given.id in (None, found.content.id):
            return Decision((), Registered(found.content.id, found.version, found.content, is_changed))
    if not mode.takes_ids:
        messages = await compare(state, parser, candidate, closure, normalize=normalize)
        if messages:
            raise incompatible(subject, "; ".join(_sentence(one) for one in messages[:MESSAGES_MAX]))
    return _decide(state, replace(candidate, text=canonical.text), mode, is_changed)


async def compare(
    state: State,
    parser: Parser,
    candidate: Candidate,
    closure: Closure,
    *,
    normalize: bool,
    only: Version | None = None,
) -> list[Incompatible]:
    """Why a schema may not follow the subject's versions, or the `only` one, at the level that applies."""
    subject = candidate.subject
    config = config_in_scope(state, subject)
    if only is not None:
        older = [only]
    else:
        older = versions(state, subject) if has_subject(state, subject, deleted=False) else []
        group = config.get("compatibilityGroup")
        if isinstance(group, str):
            wanted = properties_of(contract_text(candidate.metadata)).get(group)
            older = [one for one in older if properties_of(one.content.metadata).get(group) == wanted]
    level = level_in_scope(state, subject)
    compared: list[tuple[str, Closure]] = []
    for version in older if level.is_transitive else older[-1:]:
        name = f"version {version.version} of {version.subject}"
        compared.append((name, closure_of_content(state, version.subject, version.content)))
    try:
        return await parser.differences(level, closure, compared, normalize=normalize)
    except SchemaError as error:
        raise invalid_schema(str(error)) from None


async def test_compatibility(
    state: State, parser: Parser, candidate: Candidate, wanted: int | None
) -> list[Incompatible]:
    """Against one version (None: against all that the level names), without writing anything."""
    subject = candidate.subject
    candidate = with_numbers(state, candidate)
    closure = closure_of(state, subject, candidate.kind, candidate.text, candidate.references, is_new=True)
    only = None
    if wanted is not None:
        only = find_version(state, subject, wanted)
        if only is None and wanted != LATEST:
            if not has_subject(state, subject, deleted=False):
                raise subject_not_found(subject)
            raise deciding.version_not_found(wanted)
    normalize = candidate.normalize or bool(config_in_scope(state, subject).get("normalize"))
    if only is None:
        # Also where there is nothing to compare with: an invalid schema is told as such.
        await canonical_of(parser, closure, normalize)
    return await compare(state, parser, candidate, closure, normalize=normalize, only=only)


def _decide(state: State, candidate: Candidate, mode: Mode, is_changed: bool) -> Decision[Registered]:
    subject = candidate.subject
    context = context_of(subject)
    metadata, rule_set = contract_text(candidate.metadata), contract_text(candidate.rule_set)
    following = deciding.next_version(state, subject)
    number = candidate.version if candidate.version > 0 else following
    if number != following and mode is not Mode.IMPORT:
        raise invalid_schema(f"the next version of subject '{subject}' is {following}, not {number}")
    identifier = candidate.id
    if identifier is None:
        holders = _holders(state, context, candidate, metadata, rule_set)
        identifier = state.next_id(context) if holders is None else holders.content.id
    else:
        _check_id(state, context, candidate, identifier)
        replaced = state.version(subject, number)
        if replaced is not None and not replaced.content.is_same(candidate.kind, candidate.text, candidate.references):
            raise not_permitted(f"Version {number} of subject '{subject}' holds another schema already.")
    record = SchemaRecord(
        subject, number, identifier, candidate.kind, candidate.text, candidate.references, metadata, rule_set
    )
    size = len(value_of(record) or b"")
    if size > RECORD_BYTES_MAX:
        raise schema_too_large(size, RECORD_BYTES_MAX)
    records: list[Record] = [*deciding.forgotten_before(state, record)]
    if context != DEFAULT_CONTEXT and context not in state.named_contexts:
        if len(state.contexts) > CONTEXTS_MAX:
            raise not_permitted(f"There are {CONTEXTS_MAX} contexts already, as many as there may be.")
        records.append(ContextRecord(context, True))
    records.append(record)
    return Decision(tuple(records), Registered(identifier, number, Content(record), is_changed))


def _filled_in(state: State, given: Candidate) -> tuple[Candidate, bool]:
    """With the schema of the version before, where none is given, and the contracts that apply."""
    latest = find_version(state, given.subject, LATEST)
    candidate = given
    if not given.text.strip() and latest is not None:
        content = latest.content
        candidate = replace(given, text=content.text, kind=content.kind, references=content.references)
    config = config_in_scope(state, given.subject)
    metadata = candidate.metadata
    rule_set = candidate.rule_set
    if latest is not None:
        metadata = metadata if metadata is not None else contract_of(latest.content.metadata)
        rule_set = rule_set if rule_set is not None else contract_of(latest.content.rule_set)
    metadata = merged_metadata(config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))
    rule_set = merged_rule_set(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet"))
    properties: dict[str, Any] = (metadata or {}).get("properties") or {}
    if candidate.version != 0 or VERSION_PROPERTY in properties:
        metadata = with_version(metadata, deciding.next_version(state, given.subject))
    candidate = replace(candidate, metadata=metadata, rule_set=rule_set)
    return candidate, candidate != given


def _holders(
    state: State, context: str, candidate: Candidate, metadata: str | None, rule_set: str | None
) -> Holders | None:
    held = state.contexts.get(context)
    digest = digest_of(candidate.text, candidate.references, metadata, rule_set)
    found = None if held is None else held.by_digest.get(candidate.kind.encode() + digest)
    # Digests can be made to collide; texts cannot.
    if found is None or not found.content.is_same(candidate.kind, candidate.text, candidate.references):
        return None
    return found


def _check_id(state: State, context: str, candidate: Candidate, identifier: int) -> None:
    holders = state.holders(context, identifier)
    if holders is not None and not holders.content.is_same(candidate.kind, candidate.text, candidate.references):
        raise not_permitted(f"Id {identifier} stands for another schema already and is not given twice.")


def _sentence(difference: Incompatible) -> str:
    return f"{difference.kind} at {difference.path or '/'}: {difference.message}"
