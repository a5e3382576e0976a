"""Pairs of schemas and what changed between them, by the rules of Confluent's registry: one case or more for each kind.

A case: its name; the older source; the newer one; every difference, compatible or not, as "KIND path"."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Case(NamedTuple):
    older: str
    newer: str
    changes: list[str]
    is_compatible: bool
    older_references: Mapping[str, str] = MappingProxyType({})
    newer_references: Mapping[str, str] = MappingProxyType({})
    syntax: str = "proto3"


def _m(fields: str) -> str:
    return f"message M {{ {fields} }}"


_OTHER = " message Other { int32 n = 1; }"
_HOME = 'syntax = "proto3"; package shop; message Item { int32 sku = 1; }'
_HOME_CHANGED = 'syntax = "proto3"; package shop; message Item { string sku = 1; }'
_HOME_GROWN = 'syntax = "proto3"; package shop; message Item { int32 sku = 1; string name = 2; }'
_USES_HOME = 'import "home.proto"; message M { shop.Item item = 1; }'

CASES = {
    "nothing": Case(_m("int32 a = 1;"), _m("int32 a = 1;"), [], True),
    "another package": Case("package a; message M {}", "package b; message M {}", ["PACKAGE_CHANGED #/"], True),
    "own type in another package": Case(
        "package a; message M { N n = 1; } message N {}",
        "package b; message M { N n = 1; } message N {}",
        ["PACKAGE_CHANGED #/"],
        True,
    ),
    "names written otherwise": Case(
        "package a.b; message M { In i = 1; map<string, In> m = 2; message In {} }",
        "package a.b; message M { .a.b.M.In i = 1; map<string, b.M.In> m = 2; message In {} }",
        [],
        True,
    ),
    "field added": Case(_m(""), _m("int32 a = 1;"), ["FIELD_ADDED #/M/1"], True),
    "field removed": Case(_m("int32 a = 1;"), _m(""), ["FIELD_REMOVED #/M/1"], True),
    "field renamed": Case(_m("int32 a = 1;"), _m("int32 b = 1;"), ["FIELD_NAME_CHANGED #/M/1"], True),
    "field renumbered": Case(
        _m("int32 a = 1;"), _m("int32 a = 2;"), ["FIELD_REMOVED #/M/1", "FIELD_ADDED #/M/2"], True
    ),
    "field in a nested message": Case(
        "message M { message In { } }",
        "message M { message In { string s = 7; } }",
        ["FIELD_ADDED #/M/In/7"],
        True,
    ),
    "numbers of one encoding": Case(
        _m("int32 a = 1; uint32 b = 2; bool c = 3; sint32 d = 4; fixed32 e = 5; fixed64 f = 6; string g = 7;"),
        _m("uint64 a = 1; int64 b = 2; int32 c = 3; sint64 d = 4; sfixed32 e = 5; sfixed64 f = 6; bytes g = 7;"),
        [],
        True,
    ),
    "number to enum and back": Case(
        _m("int32 a = 1; E b = 2;") + " enum E { Z = 0; }",
        _m("E a = 1; int64 b = 2;") + " enum E { Z = 0; }",
        [],
        True,
    ),
    **{
        f"{old} to {new}": Case(_m(f"{old} a = 1;"), _m(f"{new} a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"], False)
        for old, new in (
            ("int32", "sint32"),
            ("int32", "string"),
            ("int32", "fixed32"),
            ("fixed32", "fixed64"),
            ("float", "double"),
            ("float", "fixed32"),
            ("bytes", "int64"),
            ("sint64", "int64"),
        )
    },
    "scalar to message": Case(
        _m("int32 a = 1;") + _OTHER, _m("Other a = 1;") + _OTHER, ["FIELD_KIND_CHANGED #/M/1"], False
    ),
    "message to scalar": Case(
        _m("Other a = 1;") + _OTHER, _m("bytes a = 1;") + _OTHER, ["FIELD_KIND_CHANGED #/M/1"], False
    ),
    "message to map": Case(
        _m("repeated Other a = 1;") + _OTHER,
        _m("map<string, Other> a = 1;") + _OTHER,
        ["FIELD_KIND_CHANGED #/M/1"],
        False,
    ),
    "message to message": Case(
        _m("Other a = 1;") + _OTHER + "message Third {}",
        _m("Third a = 1;") + _OTHER + "message Third {}",
        ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
        False,
    ),
    "values of a map": Case(
        _m("map<string, int32> a = 1;"),
        _m("map<string, string> a = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
        False,
    ),
    "keys of a map": Case(
        _m("map<string, int32> a = 1;"),
        _m("map<int32, int32> a = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED #/M/1"],
        False,
    ),
    "messages in a map": Case(
        _m("map<string, Other> a = 1;") + _OTHER + "message Third {}",
        _m("map<string, Third> a = 1;") + _OTHER + "message Third {}",
        ["FIELD_NAMED_TYPE_CHANGED #/M/1"],
        False,
    ),
    "scalar to message in a map": Case(
        _m("map<string, int32> a = 1;") + _OTHER,
        _m("map<string, Other> a = 1;") + _OTHER,
        ["FIELD_KIND_CHANGED #/M/1"],
        False,
    ),
    "number made a list": Case(
        _m("int32 a = 1; optional int32 b = 2;"),
        _m("repeated int32 a = 1; repeated int32 b = 2;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1", "FIELD_NUMERIC_LABEL_CHANGED #/M/2"],
        False,
    ),
    "list made a number": Case(
        _m("repeated fixed64 a = 1;"), _m("fixed64 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"], False
    ),
    "string made a list": Case(
        _m("string a = 1; repeated bytes b = 2;"),
        _m("repeated string a = 1; bytes b = 2;"),
        ["FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1", "FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/2"],
        True,
    ),
    "message made a list": Case(_m("M a = 1;"), _m("repeated M a = 1;"), [], True),
    "optional said or not": Case(
        _m("int32 a = 1; string b = 2;"), _m("optional int32 a = 1; optional string b = 2;"), [], True
    ),
    "required added": Case(_m(""), _m("required int32 a = 1;"), ["REQUIRED_FIELD_ADDED #/M/1"], False, syntax="proto2"),
    "required removed": Case(
        _m("required int32 a = 1;"), _m(""), ["REQUIRED_FIELD_REMOVED #/M/1"], False, syntax="proto2"
    ),
    "number no longer required": Case(
        _m("required int32 a = 1;"),
        _m("optional int32 a = 1;"),
        ["FIELD_NUMERIC_LABEL_CHANGED #/M/1"],
        False,
        syntax="proto2",
    ),
    "string made required": Case(
        _m("optional string a = 1; optional M b = 2;"),
        _m("required string a = 1; required M b = 2;"),
        ["FIELD_STRING_OR_BYTES_LABEL_CHANGED #/M/1", "REQUIRED_FIELD_ADDED #/M/1", "REQUIRED_FIELD_ADDED #/M/2"],
        False,
        syntax="proto2",
    ),
    "group to message": Case(
        _m("optional group In = 1 {}"),
        _m("optional In in = 1; message In {}"),
        ["FIELD_KIND_CHANGED #/M/1"],
        False,
        syntax="proto2",
    ),
    "message added": Case(_m(""), _m("") + _OTHER, ["MESSAGE_ADDED #/Other"], True),
    "message removed": Case(_m("") + _OTHER, _m(""), ["MESSAGE_REMOVED #/Other"], False),
    "nested message removed": Case(
        _m("message In { message Deep {} }"), _m("message In {}"), ["MESSAGE_REMOVED #/M/In/Deep"], False
    ),
    "messages in another order": Case(
        _m("") + _OTHER, _OTHER + _m(""), ["MESSAGE_MOVED #/M", "MESSAGE_MOVED #/Other"], True
    ),
    "enum added": Case(_m(""), _m("") + "enum E { Z = 0; }", ["ENUM_ADDED #/E"], True),
    "enum removed": Case(_m("enum E { Z = 0; }"), _m(""), ["ENUM_REMOVED #/M/E"], True),
    "enum values": Case(
        "enum E { A = 0; B = 1; C = 2; }",
        "enum E { A = 0; BB = 1; D = 3; }",
        ["ENUM_CONST_CHANGED #/E/1", "ENUM_CONST_REMOVED #/E/2", "ENUM_CONST_ADDED #/E/3"],
        True,
    ),
    "one field into a new oneof": Case(
        _m("int32 a = 1; int32 b = 2;"),
        _m("int32 a = 1; oneof o { int32 b = 2; int32 c = 3; }"),
        ["ONEOF_ADDED #/M/o"],
        True,
    ),
    "two fields into a new oneof": Case(
        _m("int32 a = 1; int32 b = 2;"),
        _m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o", "ONEOF_ADDED #/M/o"],
        False,
    ),
    "a field into an old oneof": Case(
        _m("int32 a = 1; oneof o { int32 b = 2; }"),
        _m("oneof o { int32 b = 2; int32 a = 1; }"),
        ["FIELD_MOVED_TO_EXISTING_ONEOF #/M/o", "ONEOF_FIELD_ADDED #/M/o/1"],
        False,
    ),
    "two oneofs made one": Case(
        _m("oneof o { int32 a = 1; } oneof p { int32 b = 2; }"),
        _m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o", "ONEOF_FIELD_ADDED #/M/o/2", "ONEOF_REMOVED #/M/p"],
        False,
    ),
    "field added to a oneof": Case(
        _m("oneof o { int32 a = 1; }"),
        _m("oneof o { int32 a = 1; int32 b = 2; }"),
        ["ONEOF_FIELD_ADDED #/M/o/2"],
        True,
    ),
    "field removed from a oneof": Case(
        _m("oneof o { int32 a = 1; int32 b = 2; }"),
        _m("oneof o { int32 a = 1; }"),
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
        False,
    ),
    "field freed from a oneof": Case(
        _m("oneof o { int32 a = 1; int32 b = 2; }"),
        _m("oneof o { int32 a = 1; } int32 b = 2;"),
        ["FIELD_ADDED #/M/2"],
        True,
    ),
    "oneof dissolved": Case(
        _m("oneof o { int32 a = 1; }"), _m("int32 a = 1;"), ["ONEOF_REMOVED #/M/o", "FIELD_ADDED #/M/1"], True
    ),
    "oneof renamed, and a field in it changed": Case(
        _m("oneof o { int32 a = 1; string b = 2; }"),
        _m("oneof p { int32 a = 1; int32 b = 2; }"),
        ["ONEOF_REMOVED #/M/o", "ONEOF_ADDED #/M/p", "FIELD_SCALAR_KIND_CHANGED #/M/2"],
        False,
    ),
    "field in a oneof changed": Case(
        _m("oneof o { int32 a = 1; }"), _m("oneof o { string a = 1; }"), ["FIELD_SCALAR_KIND_CHANGED #/M/o/1"], False
    ),
    "imported message grows": Case(
        _USES_HOME, _USES_HOME, ["FIELD_ADDED #/Item/2"], True, {"home.proto": _HOME}, {"home.proto": _HOME_GROWN}
    ),
    "imported message changes": Case(
        _USES_HOME,
        _USES_HOME,
        ["FIELD_SCALAR_KIND_CHANGED #/Item/1", "FIELD_NAMED_TYPE_CHANGED #/M/1"],
        False,
        {"home.proto": _HOME},
        {"home.proto": _HOME_CHANGED},
    ),
    "imported from another package": Case(
        _USES_HOME,
        'import "b.proto"; message M { store.Item item = 1; }',
        [],
        True,
        {"home.proto": _HOME},
        {"b.proto": _HOME.replace("shop", "store")},
    ),
    "message moved into an import": Case(
        "message M { Item item = 1; } message Item { int32 sku = 1; }",
        _USES_HOME,
        ["MESSAGE_REMOVED #/Item"],
        False,
        {},
        {"home.proto": _HOME},
    ),
    "message taken from an import": Case(
        _USES_HOME,
        "message M { Item item = 1; } message Item { int32 sku = 1; }",
        ["MESSAGE_ADDED #/Item"],
        True,
        {"home.proto": _HOME},
    ),
    "imported message behind a map and a list": Case(
        'import "home.proto"; message M { map<string, shop.Item> a = 1; repeated shop.Item b = 2; }',
        'import "home.proto"; message M { map<string, shop.Item> a = 1; repeated shop.Item b = 2; }',
        [
            "FIELD_SCALAR_KIND_CHANGED #/Item/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/1",
            "FIELD_NAMED_TYPE_CHANGED #/M/2",
        ],
        False,
        {"home.proto": _HOME},
        {"home.proto": _HOME_CHANGED},
    ),
}
