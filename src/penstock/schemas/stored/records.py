"""The records of the schemas topic, in the layout of Confluent's registry: JSON keys and JSON values.

Called by whoever reads the topic (the gateway, the brokers) and by the gateway, which alone writes it. Laws:
- What another registry has written is read; what is written here another registry can read.
- Bytes that are no record of this layout become Unreadable: they are counted and passed over, never raised, since one
  bad record must not take the registry down.
- Keys are written in one spelling, because compaction compares their bytes. A key that somebody spelled otherwise is
  remembered by its own bytes (`raw_key`), so that it can be overwritten and deleted at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import orjson

from penstock.schemas.schema import Reference

Json = dict[str, Any]

TENANT = "default"
ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One version of a subject. `metadata` and `rule_set` are JSON text, as it was given."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    deleted: bool = False


class SchemaGone(NamedTuple):
    subject: str
    version: int


class ConfigRecord(NamedTuple):
    """Settings of a subject, a context or, with no subject, of all; None deletes them."""

    subject: str | None
    config: Mapping[str, Any] | None


class ModeRecord(NamedTuple):
    subject: str | None
    mode: str | None


class DeleteSubject(NamedTuple):
    """All versions up to this one are soft-deleted."""

    subject: str
    version: int


class ClearSubject(NamedTuple):
    """Forget what is soft-deleted: of one subject, of a context, of all."""

    subject: str | None


class ContextRecord(NamedTuple):
    context: str
    is_there: bool


class Noop(NamedTuple):
    """Other registries find the end of the topic with it. We keep in it the ids that must never be given again."""

    ids_given: Mapping[str, int]


class Unreadable(NamedTuple):
    reason: str


Record = (
    SchemaRecord
    | SchemaGone
    | ConfigRecord
    | ModeRecord
    | DeleteSubject
    | ClearSubject
    | ContextRecord
    | Noop
    | Unreadable
)


class Read(NamedTuple):
    record: Record
    raw_key: bytes | None
    """The key's own bytes, where they are not those we would write."""


def read_record(key: bytes | None, value: bytes | None) -> Read:
    try:
        record = _record(_object(key), None if value is None else value)
    except (ValueError, TypeError, KeyError) as error:
        # A record that names an unknown thing or lacks something; what exactly is for the log.
        return Read(Unreadable(f"{type(error).__name__}: {error}"), None)
    spelled = None if isinstance(record, Unreadable) else key_of(record)
    return Read(record, key if spelled is not None and key != spelled else None)


def key_of(record: Record) -> bytes:
    match record:
        case SchemaRecord() | SchemaGone():
            key: Json = {"keytype": "SCHEMA", "subject": record.subject, "version": record.version, "magic": 1}
        case ConfigRecord():
            key = {"keytype": "CONFIG", "subject": record.subject, "magic": 0}
        case ModeRecord():
            key = {"keytype": "MODE", "subject": record.subject, "magic": 0}
        case DeleteSubject():
            key = {"keytype": "DELETE_SUBJECT", "subject": record.subject, "magic": 0}
        case ClearSubject():
            key = {"keytype": "CLEAR_SUBJECT", "subject": record.subject, "magic": 0}
        case ContextRecord():
            key = {"keytype": "CONTEXT", "tenant": TENANT, "context": record.context, "magic": 0}
        case Noop():
            key = {"keytype": "NOOP", "magic": 0}
        case Unreadable():
            raise AssertionError("nothing writes what cannot be read")
    return orjson.dumps(key)


def value_of(record: Record) -> bytes | None:
    match record:
        case SchemaRecord():
            return _schema_value(record)
        case ConfigRecord(subject, config):
            return None if config is None else orjson.dumps({**_named(subject), **config})
        case ModeRecord(subject, mode):
            return None if mode is None else orjson.dumps({**_named(subject), "mode": mode})
        case DeleteSubject():
            return orjson.dumps({"subject": record.subject, "version": record.version})
        case ClearSubject(subject):
            return orjson.dumps(_named(subject))
        case ContextRecord(context, is_there):
            return orjson.dumps({"tenant": TENANT, "context": context}) if is_there else None
        case Noop(ids_given):
            return orjson.dumps({"idsGiven": dict(ids_given)}) if ids_given else None
        case SchemaGone() | Unreadable():
            return None


def _schema_value(record: SchemaRecord) -> bytes:
    value: Json = {"subject": record.subject, "version": record.version, "id": record.id}
    if record.kind != "AVRO":
        value["schemaType"] = record.kind
    if record.references:
        value["references"] = [reference._asdict() for reference in record.references]
    if record.metadata is not None:
        value["metadata"] = orjson.Fragment(record.metadata)
    if record.rule_set is not None:
        value["ruleSet"] = orjson.Fragment(record.rule_set)
    value["schema"] = record.text
    value["deleted"] = record.deleted
    return orjson.dumps(value)


def _named(subject: str | None) -> Json:
    return {} if subject is None else {"subject": subject}


def _record(key: Json, value: bytes | None) -> Record:
    match key.get("keytype"):
        case "SCHEMA":
            subject, version = _text(key, "subject"), _number(key, "version")
            return SchemaGone(subject, version) if value is None else _schema(subject, version, _object(value))
        case "CONFIG":
            subject = _subject(key)
            config = None if value is None else _object(value)
            # Older registries wrote the name of the field otherwise.
            if config is not None:
                config = {name: held for name, held in config.items() if name != "subject" and held is not None}
            return ConfigRecord(subject, config)
        case "MODE":
            return ModeRecord(_subject(key), None if value is None else _text(_object(value), "mode"))
        case "DELETE_SUBJECT":
            if value is None:
                return DeleteSubject(_text(key, "subject"), 0)
            return DeleteSubject(_text(key, "subject"), _number(_object(value), "version"))
        case "CLEAR_SUBJECT":
            return ClearSubject(_subject(key)) if value is not None else Unreadable("a CLEAR_SUBJECT without a value")
        case "CONTEXT":
            return ContextRecord(_text(key, "context"), value is not None)
        case "NOOP":
            return _noop(value)
        case other:
            return Unreadable(f"the key type {str(other)[:100]!r} is unknown")


def _schema(subject: str, version: int, value: Json) -> SchemaRecord:
    identifier = _number(value, "id")
    if not 0 <= identifier <= ID_MAX or not 1 <= version <= ID_MAX:
        raise ValueError(f"id {identifier} or version {version} is out of range")
    references = tuple(
        Reference(_text(one, "name"), _text(one, "subject"), _number(one, "version"))
        for one in cast("list[Json]", value.get("references") or [])
    )
    metadata, rule_set = value.get("metadata"), value.get("ruleSet")
    return SchemaRecord(
        subject,
        version,
        identifier,
        str(value.get("schemaType") or "AVRO"),
        _text(value, "schema"),
        references,
        None if metadata is None else orjson.dumps(metadata).decode(),
        None if rule_set is None else orjson.dumps(rule_set).decode(),
        value.get("deleted") is True,
    )


def _noop(value: bytes | None) -> Noop:
    ids: dict[str, int] = {}
    if value is not None:
        given: object = _object(value).get("idsGiven")
        if isinstance(given, dict):
            ids = {str(name): held for name, held in cast("Json", given).items() if isinstance(held, int)}
    return Noop(ids)


def _object(text: bytes | None) -> Json:
    if text is None:
        raise ValueError("the key is missing")
    found: object = orjson.loads(text)
    if not isinstance(found, dict):
        raise TypeError("no JSON object")
    return cast("Json", found)


def _subject(key: Json) -> str | None:
    # Records of whole registries have null there, or nothing at all.
    return None if key.get("subject") is None else _text(key, "subject")


def _text(held: Json, name: str) -> str:
    found: object = held[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} is no text")
    return found


def _number(held: Json, name: str) -> int:
    found: object = held[name]
    if not isinstance(found, int) or isinstance(found, bool):
        raise TypeError(f"{name} is no number")
    return found
