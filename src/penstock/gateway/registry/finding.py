"""A schema as a caller gives it, found among those that a subject holds.

Called by registering.py and the routes. Laws:
- A schema is found by its text, else by what that means to our parser: another registry prints schemas otherwise.
- Who gives no contract means the schema, whatever contract it has.
"""

from dataclasses import dataclass, replace
from typing import Any

from penstock.gateway.registry.closure import closure_of, closure_of_content
from penstock.gateway.registry.deciding import contract_text
from penstock.gateway.registry.parsing import Canonical, Parser
from penstock.gateway.registry.questions import LATEST, find_version, has_subject
from penstock.gateway.registry.refusals import Refusal, invalid_schema, schema_not_found, subject_not_found
from penstock.gateway.registry.scope import config_in_scope
from penstock.schemas.schema import Reference, SchemaError
from penstock.schemas.stored.closure import Closure
from penstock.schemas.stored.content import Content, Version, digest_of
from penstock.schemas.stored.names import in_context_of
from penstock.schemas.stored.state import State

BY_MEANING_MAX = 200
"""How many versions, the newest, are parsed to find a schema that none holds by its text."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schema as a caller gives it."""

    subject: str
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int = 0
    """0: whichever is next; -1: the same, told in the metadata; else the one that must be next."""
    normalize: bool = False


async def find(state: State, parser: Parser, candidate: Candidate, *, deleted: bool = False) -> Version | None:
    """The newest version of the subject that holds this schema."""
    if not has_subject(state, candidate.subject, deleted=deleted):
        return None
    exact = _find_exact(state, candidate, candidate.text, deleted)
    if exact is not None:
        return exact
    normalize = candidate.normalize or bool(config_in_scope(state, candidate.subject).get("normalize"))
    candidate = with_numbers(state, candidate)
    closure = closure_of(state, candidate.subject, candidate.kind, candidate.text, candidate.references, is_new=False)
    canonical = await canonical_of(parser, closure, normalize)
    return await find_canonical(state, parser, candidate, canonical, normalize, deleted)


async def look_up(state: State, parser: Parser, candidate: Candidate, *, deleted: bool) -> Version:
    found = await find(state, parser, candidate, deleted=deleted)
    if found is not None:
        return found
    if not has_subject(state, candidate.subject, deleted=deleted):
        raise subject_not_found(candidate.subject)
    raise schema_not_found()


def with_numbers(state: State, candidate: Candidate) -> Candidate:
    """References to the latest version, by its number: what was registered must not change with what comes later."""
    if all(reference.version > 0 for reference in candidate.references):
        return candidate
    found: list[Reference] = []
    for reference in candidate.references:
        if reference.version > 0:
            found.append(reference)
            continue
        latest = find_version(state, in_context_of(candidate.subject, reference.subject), LATEST)
        found.append(reference if latest is None else reference._replace(version=latest.version))
    return replace(candidate, references=tuple(found))


async def canonical_of(parser: Parser, closure: Closure, normalize: bool) -> Canonical:
    try:
        return await parser.canonical(closure, normalize=normalize)
    except SchemaError as error:
        raise invalid_schema(str(error)) from None


async def find_canonical(
    state: State, parser: Parser, candidate: Candidate, canonical: Canonical, normalize: bool, deleted: bool
) -> Version | None:
    found = _find_exact(state, candidate, canonical.text, deleted)
    if found is not None:
        return found
    # Another registry prints schemas otherwise than ours: what it wrote is compared by what it means to our parser.
    held = state.subjects.get(candidate.subject)
    for version in reversed(held.ordered()[-BY_MEANING_MAX:] if held is not None else []):
        content = version.content
        if (version.deleted and not deleted) or content.kind != candidate.kind:
            continue
        if content.references != candidate.references or not _has_contract_of(content, candidate):
            continue
        if content.canonical is None:
            content.canonical = await _digests(state, parser, version)
        wanted = canonical.normalized if normalize else canonical.plain
        if content.canonical[normalize] == wanted:
            return version
    return None


def _find_exact(state: State, candidate: Candidate, text: str, deleted: bool) -> Version | None:
    """By its very text: what clients that have asked before send, so it is worth not parsing."""
    held = state.subjects.get(candidate.subject)
    for version in reversed(held.ordered() if held is not None else []):
        if (version.deleted and not deleted) or not _has_contract_of(version.content, candidate):
            continue
        if version.content.is_same(candidate.kind, text, candidate.references):
            return version
    return None


async def _digests(state: State, parser: Parser, version: Version) -> tuple[bytes, bytes]:
    try:
        closure = closure_of_content(state, version.subject, version.content)
        canonical = await parser.canonical(closure, normalize=False)
    except (SchemaError, Refusal):
        return b"", b""
    return canonical.plain, canonical.normalized


def _has_contract_of(content: Content, candidate: Candidate) -> bool:
    """Who gives no contract means the schema, whatever contract it has."""
    if candidate.metadata is None and candidate.rule_set is None:
        return True
    wanted = digest_of("", (), contract_text(candidate.metadata), contract_text(candidate.rule_set))
    return digest_of("", (), content.metadata, content.rule_set) == wanted
