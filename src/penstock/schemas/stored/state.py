"""Everything a registry knows, in memory: records in, answers out.

`apply` is called on the event loop, by the gateway's registry and by the brokers' validation, and is the only way the
state changes; whoever has a question answers it from what lies here. Laws:
- Applying the same records in the same order gives the same state, whoever wrote them.
- Within a context an id stands for one schema (kind, text, references). A record that says otherwise is passed over.
- An id that was ever seen is not given again, even when nothing holds it any more.
- The text of a schema lies in memory once per context, however many subjects hold it.
"""

import logging
from collections.abc import Iterator
from typing import Any

from penstock.schemas.stored.content import Content, Context, Holders, Subject, Version, place_of
from penstock.schemas.stored.names import DEFAULT_CONTEXT, context_of, in_context_of, qualified
from penstock.schemas.stored.records import (
    ClearSubject,
    ConfigRecord,
    ContextRecord,
    DeleteSubject,
    ModeRecord,
    Noop,
    Read,
    SchemaGone,
    SchemaRecord,
    Unreadable,
    key_of,
)

log = logging.getLogger(__name__)

SPARE_KEYS_MAX = 100_000
"""How many keys in a foreign spelling are remembered."""


class State:
    def __init__(self) -> None:
        self.subjects: dict[str, Subject] = {}
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        # Which versions, not deleted ones, refer to a version.
        self.referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self.named_contexts: set[str] = set()
        self.ids_given: dict[str, int] = {}
        # Keys that somebody spelled otherwise than we do, by our spelling.
        self.spare_keys: dict[bytes, bytes] = {}
        self.epoch = 0
        """Grows with every record: whoever made an answer from the state knows by it whether it still holds."""
        self.unreadable = 0
        self.conflicts = 0
        self.versions_held = 0
        self._sorted: tuple[int, list[str]] = (-1, [])
        self._subjects_epoch = 0

    def apply(self, read: Read) -> None:
        self.epoch += 1
        record = read.record
        if isinstance(record, Unreadable):
            self.unreadable += 1
            log.warning("a record of the schemas topic was passed over: %s", record.reason)
            return
        self._remember_key(read)
        match record:
            case SchemaRecord():
                self._hold(record)
            case SchemaGone(subject, version):
                self._let_go(subject, version)
            case ConfigRecord(subject, config):
                _put(self.configs, subject, None if config is None else dict(config))
            case ModeRecord(subject, mode):
                _put(self.modes, subject, mode)
            case DeleteSubject(subject, until):
                self._delete_subject(subject, until)
            case ClearSubject(subject):
                self._clear(subject)
            case ContextRecord(context, is_there):
                (self.named_contexts.add if is_there else self.named_contexts.discard)(context)
            case Noop(ids_given):
                for context, given in ids_given.items():
                    self.ids_given[context] = max(given, self.ids_given.get(context, 0))

    def next_id(self, context: str) -> int:
        held = self.contexts.get(context)
        return max(held.max_id if held is not None else 0, self.ids_given.get(context, 0)) + 1

    def holders(self, context: str, identifier: int) -> Holders | None:
        held = self.contexts.get(context)
        return None if held is None else held.ids.get(identifier)

    def version(self, subject: str, version: int) -> Version | None:
        held = self.subjects.get(subject)
        return None if held is None else held.versions.get(version)

    def context_names(self) -> list[str]:
        held = {name for name, context in self.contexts.items() if context.ids}
        return [DEFAULT_CONTEXT, *sorted((held | self.named_contexts) - {DEFAULT_CONTEXT})]

    def sorted_subjects(self) -> list[str]:
        """Every subject, deleted ones too; sorted anew only when some came or went."""
        if self._sorted[0] != self._subjects_epoch:
            self._sorted = (self._subjects_epoch, sorted(self.subjects))
        return self._sorted[1]

    def _remember_key(self, read: Read) -> None:
        if read.raw_key is None:
            return
        spelled = key_of(read.record)
        if _is_tombstone(read):
            self.spare_keys.pop(spelled, None)
        elif len(self.spare_keys) < SPARE_KEYS_MAX:
            self.spare_keys[spelled] = read.raw_key

    def _hold(self, record: SchemaRecord) -> None:
        subject = record.subject
        context = self.contexts.setdefault(context_of(subject), Context())
        context.max_id = max(context.max_id, record.id)
        holders = context.ids.get(record.id)
        place = (subject, record.version)
        if holders is not None and not holders.content.is_same(record.kind, record.text, record.references):
            if set(holders.versions) != {place}:
                self.conflicts += 1
                log.error(
                    "the schemas topic gives id %d to two schemas; version %d of %s was passed over",
                    record.id,
                    record.version,
                    subject,
                )
                return
            self._let_go(subject, record.version)
            holders = None
        content = Content(record)
        if holders is not None and holders.content.digest == content.digest:
            content = holders.content
        self._let_go(subject, record.version)
        # Letting go may have taken the last holder of the id, and the id with it.
        holders = context.ids.get(record.id)
        if holders is None:
            holders = context.ids[record.id] = Holders(content)
            context.by_digest.setdefault(place_of(content), holders)
        version = Version(subject, record.version, content, record.deleted)
        holders.versions[place] = version
        held = self.subjects.get(subject)
        if held is None:
            held = self.subjects[subject] = Subject()
            self._subjects_epoch += 1
        held.versions[record.version] = version
        self.versions_held += 1
        if record.deleted:
            return
        self._refer(version)
        if held.latest is None or held.latest.version < record.version:
            held.latest = version

    def _let_go(self, subject: str, version: int) -> None:
        held = self.subjects.get(subject)
        gone = None if held is None else held.versions.pop(version, None)
        if held is None or gone is None:
            return
        self.versions_held -= 1
        self._unrefer(gone)
        if held.latest is gone:
            held.find_latest()
        if not held.versions:
            del self.subjects[subject]
            self._subjects_epoch += 1
        context = self.contexts[context_of(subject)]
        holders = context.ids[gone.content.id]
        del holders.versions[subject, version]
        if not holders.versions:
            del context.ids[gone.content.id]
            if context.by_digest.get(place_of(holders.content)) is holders:
                del context.by_digest[place_of(holders.content)]

    def _delete_subject(self, subject: str, until: int) -> None:
        held = self.subjects.get(subject)
        if held is None:
            return
        for number, version in held.versions.items():
            if number <= until and not version.deleted:
                version.deleted = True
                self._unrefer(version)
        held.find_latest()

    def _clear(self, subject: str | None) -> None:
        for name in [name for name in self.subjects if is_covered(name, subject)]:
            for version in list(self.subjects[name].versions.values()):
                if version.deleted:
                    self._let_go(name, version.version)

    def _refer(self, version: Version) -> None:
        for place in references_of(version):
            self.referrers.setdefault(place, set()).add((version.subject, version.version))

    def _unrefer(self, version: Version) -> None:
        for place in references_of(version):
            referrers = self.referrers.get(place)
            if referrers is not None:
                referrers.discard((version.subject, version.version))
                if not referrers:
                    del self.referrers[place]


def references_of(version: Version) -> Iterator[tuple[str, int]]:
    """The versions a version refers to, by full name."""
    for reference in version.content.references:
        yield in_context_of(version.subject, reference.subject), reference.version


def is_covered(subject: str, by: str | None) -> bool:
    """Whether a name given for a subject, a context or (None) everything covers this subject."""
    if by is None or by == subject:
        return True
    wanted = qualified(by)
    return not wanted.name and wanted.context == context_of(subject)


def _is_tombstone(read: Read) -> bool:
    match read.record:
        case SchemaGone() | ConfigRecord(_, None) | ModeRecord(_, None) | DeleteSubject(_, 0) | ContextRecord(_, False):
            return True
        case _:
            return False


def _put(held: dict[Any, Any], name: str | None, value: Any) -> None:
    if value is None:
        held.pop(name, None)
    else:
        held[name] = value
