"""What is to be written when somebody changes something: decided from the state, done by registry.py.

Plain functions of the state; none waits or writes. Laws:
- A decision is a list of records that are written together or not at all, and the answer for when they are.
- A version number is one more than the highest that the subject has, deleted ones counted; an id, one more than the
  highest its context ever had.
- What other schemas refer to cannot be deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from penstock.gateway.registry.questions import LATEST, find_version, has_subject
from penstock.gateway.registry.refusals import (
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from penstock.gateway.registry.scope import LEVEL, Mode, mode_in_scope, settings_key
from penstock.schemas.stored.content import Version
from penstock.schemas.stored.names import context_of
from penstock.schemas.stored.records import (
    ClearSubject,
    ConfigRecord,
    DeleteSubject,
    ModeRecord,
    Noop,
    Record,
    SchemaGone,
    SchemaRecord,
    key_of,
    value_of,
)
from penstock.schemas.stored.state import State, is_covered

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    records: tuple[Record, ...]
    answer: T


class Written(NamedTuple):
    key: bytes
    value: bytes | None


def encode(state: State, records: Iterable[Record]) -> list[Written]:
    """As they go to the topic. A key that lies there in another spelling is deleted first: compaction would keep it."""
    written: list[Written] = []
    for record in records:
        key = key_of(record)
        spare = state.spare_keys.get(key)
        if spare is not None:
            written.append(Written(spare, None))
        written.append(Written(key, value_of(record)))
    return written


def delete_subject(state: State, subject: str, *, permanent: bool) -> Decision[list[int]]:
    _check_writable(state, subject)
    held = state.subjects.get(subject)
    if held is None:
        raise subject_not_found(subject)
    versions = [one for one in held.ordered() if permanent or not one.deleted]
    if not versions:
        raise subject_soft_deleted(subject)
    for version in versions:
        _check_unreferenced(state, version)
        if permanent and not version.deleted:
            raise subject_not_soft_deleted(subject)
    numbers = [version.version for version in versions]
    if permanent:
        return Decision(_gone(state, versions), numbers)
    return Decision((DeleteSubject(subject, numbers[-1]), *_settings_gone(state, subject)), numbers)


def delete_version(state: State, subject: str, number: int, *, permanent: bool) -> Decision[int]:
    _check_writable(state, subject)
    if number == LATEST:
        # The newest that is left; of a subject that is all deleted, the newest of those.
        found = find_version(state, subject, LATEST, deleted=permanent)
    else:
        found = state.version(subject, number)
    if found is None:
        if has_subject(state, subject, deleted=True):
            raise version_not_found("latest" if number == LATEST else number)
        raise subject_not_found(subject)
    if permanent and not found.deleted:
        raise version_not_soft_deleted(subject, found.version)
    if not permanent and found.deleted:
        raise version_soft_deleted(subject, found.version)
    _check_unreferenced(state, found)
    if permanent:
        return Decision(_gone(state, [found]), found.version)
    records: list[Record] = [found.record(deleted=True)]
    if all(one is found or one.deleted for one in state.subjects[subject].versions.values()):
        records += _settings_gone(state, subject)
    return Decision(tuple(records), found.version)


def set_config(state: State, subject: str | None, changes: dict[str, Any]) -> Decision[dict[str, Any]]:
    _check_writable(state, subject)
    key = settings_key(subject)
    config = {**state.configs.get(key, {}), **changes}
    config = {name: value for name, value in config.items() if value is not None}
    told = {("compatibility" if name == LEVEL else name): value for name, value in changes.items() if value is not None}
    return Decision((ConfigRecord(key, config or None),), told)


def delete_config(state: State, subject: str | None) -> Decision[dict[str, Any]]:
    _check_writable(state, subject)
    key = settings_key(subject)
    config = state.configs.get(key)
    if config is None:
        if key is not None:
            raise subject_not_found(key)
        return Decision((), {})
    return Decision((ConfigRecord(key, None),), config)


def set_mode(state: State, subject: str | None, mode: Mode, *, force: bool) -> Decision[Mode]:
    key = settings_key(subject)
    records: list[Record] = []
    if mode is Mode.IMPORT and mode_in_scope(state, subject) is not Mode.IMPORT and not force:
        covered = [name for name in state.subjects if is_covered(name, key)]
        if any(state.subjects[name].latest is not None for name in covered):
            raise not_permitted(
                "IMPORT needs a place without schemas, because ids come from elsewhere; delete the subjects or use "
                "force=true."
            )
        remains = [version for name in covered for version in state.subjects[name].ordered()]
        for version in remains:
            _check_unreferenced(state, version)
        if remains:
            records += [*_gone(state, remains), ClearSubject(key)]
    return Decision((*records, ModeRecord(key, mode.value)), mode)


def delete_mode(state: State, subject: str | None) -> Decision[str]:
    key = settings_key(subject)
    mode = state.modes.get(key)
    if mode is None:
        if key is not None:
            raise subject_not_found(key)
        return Decision((), Mode.READWRITE.value)
    return Decision((ModeRecord(key, None),), mode)


def check_writable(state: State, subject: str, *, with_id: bool) -> Mode:
    """Whether a schema may be registered here, with an id from elsewhere or without one."""
    mode = _check_writable(state, subject)
    if with_id and not mode.takes_ids:
        raise not_permitted(f"Subject '{subject}' is not in IMPORT mode, so a schema cannot bring its id along.")
    if not with_id and mode is not Mode.READWRITE:
        raise not_permitted(f"Subject '{subject}' is in {mode} mode, where a schema must bring its id along.")
    return mode


def next_version(state: State, subject: str) -> int:
    held = state.subjects.get(subject)
    return max(held.versions) + 1 if held is not None else 1


def forgotten_before(state: State, record: SchemaRecord) -> list[Record]:
    """Soft-deleted versions with the same schema make room for the new one, as in other registries."""
    held = state.subjects.get(record.subject)
    if held is None:
        return []
    return [
        SchemaGone(one.subject, one.version)
        for one in held.ordered()
        if one.deleted and one.content.id == record.id and one.version < record.version
    ]


def contract_text(contract: dict[str, Any] | None) -> str | None:
    return None if contract is None else orjson.dumps(contract).decode()


def contract_of(text: str | None) -> dict[str, Any] | None:
    return None if text is None else orjson.loads(text)


def _check_writable(state: State, subject: str | None) -> Mode:
    mode = mode_in_scope(state, subject)
    if mode.is_readonly:
        what = "The registry" if subject is None else f"Subject '{subject}'"
        raise not_permitted(f"{what} is in {mode} mode: nothing can be changed.")
    return mode


def _check_unreferenced(state: State, version: Version) -> None:
    if state.referrers.get((version.subject, version.version)):
        raise reference_exists(version.subject, version.version)


def _settings_gone(state: State, subject: str) -> list[Record]:
    records: list[Record] = []
    if subject in state.modes:
        records.append(ModeRecord(subject, None))
    if subject in state.configs:
        records.append(ConfigRecord(subject, None))
    return records


def _gone(state: State, versions: list[Version]) -> tuple[Record, ...]:
    """Deleted for good. The topic then no longer shows that their ids were ever given, so that is written down."""
    given = dict(state.ids_given)
    for version in versions:
        context = context_of(version.subject)
        given[context] = max(given.get(context, 0), state.next_id(context) - 1)
    records: list[Record] = [SchemaGone(version.subject, version.version) for version in versions]
    return (*records, Noop(given))
