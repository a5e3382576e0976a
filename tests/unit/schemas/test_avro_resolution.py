"""Avro's schema resolution: the cases that Avro's own library is tested with, and those that broke others."""

import json
from typing import Any

import pytest

from penstock.schemas import ParsedSchema, avro_resolution, parse


def avro(value: Any) -> ParsedSchema:
    return parse("AVRO", json.dumps(value))


def record(*fields: Any, name: str = "Record1", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, name: str = "Enum1", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "Fixed", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def map_of(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int = 0) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


A, A_LONG, A_0 = field("a", "int"), field("a", "long"), field("a", "int", default=0)
B, B_0 = field("b", "int"), field("b", "int", default=0)
INT_LIST = record(field("head", "int"), field("tail", ["null", "List"]), name="List")
LONG_LIST = record(field("head", "long"), field("tail", ["null", "List"]), name="List")
INNER_1 = record(field("f", ["null", array(record(A, name="Inner", namespace="ns1"))]))
INNER_2 = record(field("f", ["null", array(record(A, name="Inner", namespace="ns2"))]))

# reader, writer
COMPATIBLE: list[tuple[Any, Any]] = [
    *((name, name) for name in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")),
    *(("long", "int"), ("float", "int"), ("float", "long"), ("double", "int"), ("double", "long"), ("double", "float")),
    *(("string", "bytes"), ("bytes", "string")),
    *((array("int"), array("int")), (array("long"), array("int")), (map_of("int"), map_of("int"))),
    (map_of("long"), map_of("int")),
    (enum("A", "B"), enum("A", "B")),
    (enum("A", "B", "C"), enum("A", "B")),
    (enum("A", "B", default="A"), enum("A", "B", "C")),
    (fixed(4), fixed(4)),
    # Unions on either side, and on both.
    *(([], []), (["float"], []), (["int"], ["int"]), (["int", "string"], ["string", "int"])),
    *((["long"], ["int"]), (["float"], ["int", "long"]), (["double"], ["int", "float"])),
    *((["string"], ["bytes"]), (["bytes"], ["string"])),
    *(("float", ["int", "float"]), ("long", ["int", "long"]), ("double", ["int", "long", "float", "double"])),
    *(("float", ["float"]), (["int"], "int"), ("int", ["int"]), (["null", "long"], "int")),
    # Records.
    *((record(), record()), (record(), record(A)), (record(A), record(A)), (record(A_0), record(A))),
    *((record(A), record(A_0)), (record(A_LONG), record(A)), (record(A), record(A, B))),
    *((record(A, B_0), record(A)), (record(A_0, B_0), record()), (record(A, B), record(A_0, B_0))),
    (record(B, A), record(A, B)),
    # Recursive ones.
    *((INT_LIST, INT_LIST), (LONG_LIST, INT_LIST)),
    # Names match by their last part, and by the reader's aliases.
    *((INNER_1, INNER_2), (record(A, name="n.R"), record(A, name="R"))),
    (record(A, name="New", aliases=["Old"]), record(A, name="Old")),
    (record(A, name="n.New", aliases=["m.Old"]), record(A, name="m.Old")),
    (record(field("new", "int", aliases=["a"])), record(A)),
    (fixed(4, name="New", aliases=["Old"]), fixed(4, name="Old")),
    (enum("A", name="New", aliases=["Old"]), enum("A", name="Old")),
    ([record(A, name="New", aliases=["Old"])], record(A, name="Old")),
    # A decimal may get room for more digits.
    *((decimal(6, 2), decimal(4, 2)), (decimal(4, 2), "bytes"), ("bytes", decimal(4, 2))),
    # A logical type that does not fit is none.
    (decimal(2, 3), decimal(4, 2)),
    (fixed(1, logicalType="decimal", precision=3, scale=1), fixed(1, logicalType="decimal", precision=2)),
]


@pytest.mark.parametrize(("reader", "writer"), COMPATIBLE, ids=lambda value: json.dumps(value)[:50])
def test_data_of_a_compatible_writer_can_be_read(reader: Any, writer: Any) -> None:
    assert avro(reader).differences(avro(writer)) == []


TYPE, NAME, BRANCH = "TYPE_MISMATCH", "NAME_MISMATCH", "MISSING_UNION_BRANCH"
SIZE, SYMBOLS, MISSING = "FIXED_SIZE_MISMATCH", "MISSING_ENUM_SYMBOLS", "READER_FIELD_MISSING_DEFAULT_VALUE"
DECIMAL = "DECIMAL_SCALE_OR_PRECISION_MISMATCH"

# reader, writer, and every difference with its path
INCOMPATIBLE: list[tuple[Any, Any, list[str]]] = [
    *((reader, writer, [f"{TYPE} /"]) for reader, writer in (
        ("null", "int"), ("null", "long"), ("boolean", "int"), ("int", "null"), ("int", "boolean"), ("int", "long"),
        ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
        ("double", "string"), ("string", "boolean"), ("string", "int"), ("bytes", "null"), ("bytes", "int"),
        (fixed(4), "string"), (record(A), "int"), ("int", enum("A")), (enum("A"), "int"), (map_of("int"), array("int")),
        (array("int"), map_of("int")), (fixed(1), enum("A")), (record(name="X"), enum("A", name="X")),
    )),
    (array("int"), array("long"), [f"{TYPE} /items"]),
    (map_of("int"), map_of("long"), [f"{TYPE} /values"]),
    ("float", ["int", "long", "float", "double"], [f"{TYPE} /3"]),
    ("int", ["int", "float"], [f"{TYPE} /1"]),
    (INT_LIST, LONG_LIST, [f"{TYPE} /fields/0/type"]),
    # Every branch that is missing, not only the first.
    (["int"], ["int", "string"], [f"{BRANCH} /1"]),
    (["string"], ["int", "string"], [f"{BRANCH} /0"]),
    (["int"], ["int", "long", "float", "double"], [f"{BRANCH} /1", f"{BRANCH} /2", f"{BRANCH} /3"]),
    (["null", "int"], "string", [f"{BRANCH} /"]),
    ([], "int", [f"{BRANCH} /"]),
    *((["int"], ["int", other], [f"{BRANCH} /1"]) for other in (
        record(A), enum("A"), fixed(4), "boolean", array("int"), map_of("int"), "null",
    )),
    (["int", record(A, name="X")], ["int", record(A, name="Y")], [f"{BRANCH} /1"]),
    (record(A_0, field("b", ["int"])), record(A_0, field("b", ["int", "string"])), [f"{BRANCH} /fields/1/type/1"]),
    # Enums, fixed, names.
    (enum("A", "B"), enum("A", "B", "C"), [f"{SYMBOLS} /symbols"]),
    (enum("B", "C"), enum("A", "B"), [f"{SYMBOLS} /symbols"]),
    (record(field("e", enum("A"))), record(field("e", enum("A", "B"))), [f"{SYMBOLS} /fields/0/type/symbols"]),
    (enum("A", name="X"), enum("A", "B", name="Y"), [f"{NAME} /name", f"{SYMBOLS} /symbols"]),
    (fixed(8), fixed(4), [f"{SIZE} /size"]),
    (fixed(4, name="X"), fixed(4, name="Y"), [f"{NAME} /name"]),
    (record(A, name="X"), record(A, name="Y"), [f"{NAME} /name"]),
    # An alias of the writer helps no reader.
    (record(A, name="Old"), record(A, name="New", aliases=["Old"]), [f"{NAME} /name"]),
    # Fields without a default.
    (record(A, B), record(A), [f"{MISSING} /fields/1"]),
    (record(A, B), record(), [f"{MISSING} /fields/0", f"{MISSING} /fields/1"]),
    (record(field("e", enum("A", default="A"))), record(), [f"{MISSING} /fields/0"]),
    # An alias that stands for a field which is there under its own name too: which one is meant?
    (record(field("a", "int", aliases=["b"])), record(A, B), [f"{NAME} /fields/0"]),
    # Numbers that would be read as other numbers.
    (decimal(4, 1), decimal(4, 2), [f"{DECIMAL} /logicalType"]),
    (decimal(3, 2), decimal(4, 2), [f"{DECIMAL} /logicalType"]),
    (
        fixed(4, logicalType="decimal", precision=4, scale=1), fixed(4, logicalType="decimal", precision=4),
        [f"{DECIMAL} /logicalType"],
    ),
    # All at once.
    (
        record(field("f", fixed(2)), field("e", enum("A")), B, field("u", ["int", "null"]), name="New"),
        record(field("f", fixed(3)), field("e", enum("B")), field("u", ["long", "null"]), name="Old"),
        [
            f"{NAME} /name", f"{MISSING} /fields/2", f"{SIZE} /fields/0/type/size", f"{SYMBOLS} /fields/1/type/symbols",
            f"{BRANCH} /fields/3/type/0",
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "expected"), INCOMPATIBLE, ids=lambda value: json.dumps(value)[:50])
def test_every_difference_is_told_with_its_kind_and_place(reader: Any, writer: Any, expected: list[str]) -> None:
    found = avro(reader).differences(avro(writer))
    assert [f"{each.kind} {each.path}" for each in found] == expected
    assert all(each.message for each in found)


def test_a_recursive_branch_that_fails_late_is_not_taken_for_fine_elsewhere() -> None:
    """While A is tried against A, B within it looks fine; once A has failed, B has failed too, wherever it stands."""
    reader_a = record(field("b", record(field("a", ["null", "A"]), name="B")), field("z", "int"), name="A")
    writer_a = record(field("b", record(field("a", ["null", "A"]), name="B")), field("z", "string"), name="A")
    reader = record(field("x", ["null", reader_a]), field("y", "B"), name="R")
    writer = record(field("x", ["null", writer_a]), field("y", "B"), name="R")
    paths = [each.path for each in avro(reader).differences(avro(writer))]
    assert paths == ["/fields/0/type/1", "/fields/1/type/fields/0/type/1"]


def test_a_chain_of_types_longer_than_the_stack_is_compared() -> None:
    def chain(end: str) -> ParsedSchema:
        links = [field("f0", record(field("x", end), name="R0"))]
        links += [field(f"f{n}", record(field("x", f"R{n - 1}"), name=f"R{n}")) for n in range(1, 1500)]
        return avro(record(field("last", "null"), *links, name="W"))

    assert chain("long").differences(chain("int")) == []
    assert [each.kind for each in chain("int").differences(chain("long"))] == [TYPE]


def test_unions_that_would_need_too_many_comparisons_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(last: str) -> ParsedSchema:
        return avro([record(field("x", last), name=f"n{number}.R") for number in range(40)])

    assert many("long").differences(many("int")) == []
    monkeypatch.setattr(avro_resolution, "WORK_MAX", 1000)
    assert [each.kind for each in many("long").differences(many("int"))] == ["COMPARISON_TOO_LARGE"]
