"""The layout of the schemas topic, as Confluent's registry has it."""

import orjson
import pytest

from penstock.schemas.schema import Reference
from penstock.schemas.stored.records import (
    ClearSubject,
    ConfigRecord,
    ContextRecord,
    DeleteSubject,
    ModeRecord,
    Noop,
    Record,
    SchemaGone,
    SchemaRecord,
    Unreadable,
    key_of,
    read_record,
    value_of,
)

AVRO = SchemaRecord("orders-value", 2, 7, "AVRO", '"string"')
PROTOBUF = SchemaRecord(
    ":.sales:orders-value",
    1,
    8,
    "PROTOBUF",
    'syntax = "proto3";',
    (Reference("a.proto", "a", 3),),
    '{"properties":{"owner":"us"}}',
    '{"domainRules":[{"name":"r"}]}',
    True,
)

# As another registry writes them: the key, the value, what it means.
LAYOUT: list[tuple[str, str | None, Record]] = [
    (
        '{"keytype":"SCHEMA","subject":"orders-value","version":2,"magic":1}',
        '{"subject":"orders-value","version":2,"id":7,"schema":"\\"string\\"","deleted":false}',
        AVRO,
    ),
    (
        '{"keytype":"SCHEMA","subject":":.sales:orders-value","version":1,"magic":1}',
        '{"subject":":.sales:orders-value","version":1,"id":8,"schemaType":"PROTOBUF",'
        '"references":[{"name":"a.proto","subject":"a","version":3}],"metadata":{"properties":{"owner":"us"}},'
        '"ruleSet":{"domainRules":[{"name":"r"}]},"schema":"syntax = \\"proto3\\";","deleted":true}',
        PROTOBUF,
    ),
    ('{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', None, SchemaGone("a", 1)),
    (
        '{"keytype":"CONFIG","subject":null,"magic":0}',
        '{"compatibilityLevel":"FULL"}',
        ConfigRecord(None, {"compatibilityLevel": "FULL"}),
    ),
    (
        '{"keytype":"CONFIG","subject":"a","magic":0}',
        '{"subject":"a","compatibilityLevel":"NONE"}',
        ConfigRecord("a", {"compatibilityLevel": "NONE"}),
    ),
    ('{"keytype":"CONFIG","subject":"a","magic":0}', None, ConfigRecord("a", None)),
    ('{"keytype":"MODE","subject":null,"magic":0}', '{"mode":"IMPORT"}', ModeRecord(None, "IMPORT")),
    ('{"keytype":"MODE","subject":"a","magic":0}', '{"subject":"a","mode":"READONLY"}', ModeRecord("a", "READONLY")),
    ('{"keytype":"MODE","subject":"a","magic":0}', None, ModeRecord("a", None)),
    ('{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', '{"subject":"a","version":3}', DeleteSubject("a", 3)),
    ('{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}', '{"subject":"a"}', ClearSubject("a")),
    (
        '{"keytype":"CONTEXT","tenant":"default","context":".sales","magic":0}',
        '{"tenant":"default","context":".sales"}',
        ContextRecord(".sales", True),
    ),
    ('{"keytype":"NOOP","magic":0}', None, Noop({})),
]


@pytest.mark.parametrize(("key", "value", "record"), LAYOUT)
def test_what_another_registry_wrote_is_read_and_would_be_written_the_same(
    key: str, value: str | None, record: Record
) -> None:
    found = read_record(key.encode(), None if value is None else value.encode())

    assert found.record == record
    assert found.raw_key is None, "compaction compares the bytes of keys"
    assert key_of(record).decode() == key
    assert value_of(record) == (None if value is None else value.encode())


def test_a_key_in_another_spelling_is_remembered_by_its_bytes() -> None:
    key = b'{"magic": 1, "version": 2, "subject": "orders-value", "keytype": "SCHEMA"}'

    found = read_record(key, value_of(AVRO))

    assert found.record == AVRO
    assert found.raw_key == key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"\x00\x01garbage", b"x"),
        (b"[]", b"{}"),
        (b'"SCHEMA"', b"{}"),
        (b"{}", b"{}"),
        (b'{"keytype":"ASSOCIATION","magic":0}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"not json"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"[]"),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"id":-5,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":0,"magic":1}', b'{"id":5,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":true,"magic":1}', b'{"id":5,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":7,"version":1,"magic":1}', b'{"id":5,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","magic":1}', b'{"id":5,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":5,"schema":"x","references":[7]}'),
        (b'{"keytype":"SCHEMA","subject":"a","version":1}', b'{"id":5,"schema":"x","references":7}'),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b"{}"),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b'{"version":"x"}'),
        (b'{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}', None),
        (b'{"keytype":"CONTEXT","magic":0}', b"{}"),
        (b'{"keytype":' + b"[" * 5000 + b"}", b"{}"),
    ],
)
def test_bytes_that_are_no_record_are_told_and_never_raised(key: bytes | None, value: bytes | None) -> None:
    assert isinstance(read_record(key, value).record, Unreadable)


def test_the_ids_that_were_given_travel_in_a_record_whose_value_other_registries_do_not_read() -> None:
    record = Noop({".": 12, ".sales": 3})

    assert key_of(record) == b'{"keytype":"NOOP","magic":0}'
    assert read_record(key_of(record), value_of(record)).record == record
    assert read_record(key_of(record), b'{"idsGiven":7}').record == Noop({})
    assert orjson.loads(value_of(record) or b"") == {"idsGiven": {".": 12, ".sales": 3}}
