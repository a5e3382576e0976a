"""What is asked of the registry: subjects, versions, ids, schemas, looked up in memory.

Called by registry.py and the routes. Plain functions of the state; none waits, none changes anything.
Laws:
- Soft-deleted versions are found only where the caller asks for them, except by id: data written with them must stay
  readable.
- A subject of the default context that is not found there is looked for in the other contexts, by name, as clients that
  know nothing of contexts expect.
"""

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum
from itertools import islice

from penstock.gateway.registry.contracts import properties_of
from penstock.gateway.registry.refusals import (
    invalid_version,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from penstock.gateway.registry.scope import aliased
from penstock.schemas.stored.content import Content, Version
from penstock.schemas.stored.names import DEFAULT_CONTEXT, EVERY_CONTEXT, Qualified, qualified
from penstock.schemas.stored.state import State

SUBJECTS_MAX = 20_000
SCHEMAS_MAX = 1000
LATEST = -1
VERSION_MAX = 2**31 - 1


class Deleted(Enum):
    HIDDEN = 0
    SHOWN = 1
    ONLY = 2

    def shows(self, deleted: bool) -> bool:
        return self is Deleted.SHOWN or deleted == (self is Deleted.ONLY)


def parse_version(text: str) -> int:
    if text == "latest" or text == "-1":
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:11]) <= VERSION_MAX:
        raise invalid_version(text[:50])
    return int(text)


def page(offset: int, limit: int, limit_max: int) -> slice:
    """Which part of a list; a limit below 1, or too large a one, is the largest."""
    size = limit if 1 <= limit <= limit_max else limit_max
    return slice(max(0, offset), max(0, offset) + size)


def subjects(state: State, prefix: str = EVERY_CONTEXT, deleted: Deleted = Deleted.HIDDEN) -> Iterator[str]:
    """By name. `:*:` before a prefix means that of every context."""
    if prefix.startswith(EVERY_CONTEXT):
        bare = prefix[len(EVERY_CONTEXT) :]
        names: Iterator[str] = iter(state.sorted_subjects())
        if bare:
            names = (name for name in names if qualified(name).name.startswith(bare))
    else:
        names = _starting(state, qualified(prefix).full)
    for name in names:
        held = state.subjects[name]
        # A subject is deleted when all of it is.
        if deleted.shows(held.latest is None):
            yield name


def _starting(state: State, prefix: str) -> Iterator[str]:
    names = state.sorted_subjects()
    for name in islice(names, bisect_left(names, prefix), None):
        if not name.startswith(prefix):
            return
        # "" is the default context, not all of them.
        if prefix or not name.startswith(":."):
            yield name


def has_subject(state: State, subject: str, *, deleted: bool) -> bool:
    held = state.subjects.get(subject)
    return held is not None and (deleted or held.latest is not None)


def versions(state: State, subject: str, deleted: Deleted = Deleted.HIDDEN) -> list[Version]:
    subject = aliased(state, subject)
    if not has_subject(state, subject, deleted=deleted is not Deleted.HIDDEN):
        raise subject_not_found(subject)
    return [held for held in state.subjects[subject].ordered() if deleted.shows(held.deleted)]


def find_version(state: State, subject: str, version: int, *, deleted: bool = False) -> Version | None:
    held = state.subjects.get(subject)
    if held is None:
        return None
    if version == LATEST:
        # Asked for with deleted ones, the newest of a subject that is deleted as a whole is still its newest.
        return held.latest if held.latest is not None or not deleted else held.ordered()[-1]
    found = held.versions.get(version)
    return found if found is not None and (deleted or not found.deleted) else None


def version(state: State, subject: str, wanted: int, *, deleted: bool = False) -> Version:
    """In the subject's context or, for a bare name, in any."""
    name = aliased(state, subject)
    for candidate in _in_any_context(state, name):
        found = find_version(state, candidate, wanted, deleted=deleted)
        if found is not None:
            return found
    if not has_subject(state, name, deleted=deleted):
        raise subject_not_found(name)
    raise version_not_found("latest" if wanted == LATEST else wanted)


def latest_with(state: State, subject: str, properties: dict[str, str], *, deleted: bool) -> Version:
    """The newest version whose metadata has all of these properties."""
    for held in reversed(versions(state, subject, Deleted.SHOWN if deleted else Deleted.HIDDEN)):
        found = properties_of(held.content.metadata)
        if held.content.metadata is not None and all(found.get(name) == value for name, value in properties.items()):
            return held
    raise schema_not_found()


def content_by_id(state: State, identifier: int, subject: str = "") -> tuple[str, Content] | None:
    """The schema of an id and the context it was found in: of the subject where that has it, else of its context."""
    wanted = qualified(subject)
    if wanted.name:
        for name in _in_any_context(state, wanted.full):
            context = qualified(name).context
            holders = state.holders(context, identifier)
            for held in () if holders is None else holders.versions.values():
                if held.subject == name:
                    return context, held.content
    holders = state.holders(wanted.context, identifier)
    return None if holders is None else (wanted.context, holders.content)


def holders_of(state: State, identifier: int, subject: str = "", *, deleted: bool = False) -> list[Version]:
    found = content_by_id(state, identifier, subject)
    if found is None:
        raise schema_not_found(identifier)
    holders = state.holders(found[0], identifier)
    assert holders is not None
    held = sorted(holders.versions.items())
    wanted = qualified(subject)
    return [
        version
        for _, version in held
        if (deleted or not version.deleted) and (not wanted.name or qualified(version.subject).name == wanted.name)
    ]


def content_by_guid(state: State, guid: str) -> list[tuple[str, Content]]:
    """With the contexts that know it, the default one first."""
    try:
        digest = bytes.fromhex(guid.replace("-", ""))
    except ValueError:
        return []
    found: list[tuple[str, Content]] = []
    for name in state.context_names():
        context = state.contexts.get(name)
        for kind in (b"AVRO", b"JSON", b"PROTOBUF") if context is not None else ():
            holders = context.by_digest.get(kind + digest) if context is not None else None
            if holders is not None:
                found.append((name, holders.content))
    return found


def referrer_ids(state: State, subject: str, wanted: int) -> list[int]:
    found: set[int] = set()
    for name, number in state.referrers.get((subject, wanted), ()):
        held = state.version(name, number)
        if held is not None:
            found.add(held.content.id)
    return sorted(found)


def schemas(state: State, prefix: str, deleted: Deleted, *, latest_only: bool) -> Iterator[Version]:
    for name in subjects(state, prefix, Deleted.SHOWN):
        held = state.subjects[name]
        shown = [one for one in held.ordered() if deleted.shows(one.deleted)]
        yield from shown[-1:] if latest_only else shown


def _in_any_context(state: State, subject: str) -> Iterator[str]:
    yield subject
    wanted = qualified(subject)
    if wanted.context == DEFAULT_CONTEXT and wanted.name and len(state.contexts) > 1:
        for context in state.context_names()[1:]:
            yield Qualified(context, wanted.name).full
