"""value.format=json: columns as Spark's from_json would make them, and no record that spoils another."""

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from raw_rows import decoder, raw_batch, values_of

from penstock.spark.errors import BadOption, DecodeFailed
from penstock.spark.formats import json_decoder
from penstock.spark.formats.columns import BadRecord
from penstock.spark.formats.json_decoder import JsonDecoder
from penstock.spark.formats.json_schema import parse_json_type
from penstock.spark.formats.json_values import parse, reader_of

WIDE = (
    "a BIGINT, s STRING, f DOUBLE, b BOOLEAN, i INT, day DATE, at TIMESTAMP, loc TIMESTAMP_NTZ, d DECIMAL(6,2), "
    "raw BINARY, n STRUCT<x: INT, tags: ARRAY<STRING>>, list ARRAY<STRUCT<k: STRING>>"
)


def test_every_type_is_read_missing_fields_are_null_and_unnamed_ones_ignored() -> None:
    full = {
        "a": 1,
        "s": "héllo\n",
        "f": 2,
        "b": True,
        "i": -5,
        "day": "2024-02-29",
        "at": "2024-01-01T02:00:00+02:00",
        "loc": "2024-01-01 10:00:00.5",
        "d": 12.5,
        "raw": "aGk=",
        "n": {"x": 7, "tags": ["p", None], "more": [{}]},
        "list": [{"k": "v"}, {}],
        "unnamed": {"deep": [1]},
    }
    rows = values_of([json.dumps(full).encode(), b"{}", None, b"null"], value_format="json", value_schema=WIDE)
    assert rows[0] == {
        "a": 1,
        "s": "héllo\n",
        "f": 2.0,
        "b": True,
        "i": -5,
        "day": date(2024, 2, 29),
        "at": datetime(2024, 1, 1, tzinfo=UTC),
        "loc": datetime(2024, 1, 1, 10, 0, 0, 500000),
        "d": Decimal("12.50"),
        "raw": b"hi",
        "n": {"x": 7, "tags": ["p", None]},
        "list": [{"k": "v"}, {"k": None}],
    }
    assert set(rows[1].values()) == {None}
    assert rows[2] is None
    assert rows[3] is None


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ("x MAP<STRING, INT>", '{"x":{"a":1,"b":null}}', [("a", 1), ("b", None)]),
        ("x TIMESTAMP", '{"x":1700000000}', datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ("x TIMESTAMP", '{"x":"2024-01-01 00:00:00.123456789Z"}', datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)),
        ("x TIMESTAMP", '{"x":"2024-01-01"}', datetime(2024, 1, 1, tzinfo=UTC)),
        ("x DATE", '{"x":"2024-01-02T10:00:00"}', date(2024, 1, 2)),
        ("x DOUBLE", '{"x":"Infinity"}', float("inf")),
        ("x DECIMAL(4,2)", '{"x":1.005}', Decimal("1.01")),
        ("x DECIMAL(4,2)", '{"x":"7"}', Decimal("7.00")),
        ("x INT", '{"x":1,"x":2}', 2),
    ],
)
def test_what_arrow_refuses_is_read_as_spark_reads_it(schema: str, text: str, expected: Any) -> None:
    assert values_of([text.encode()], value_format="json", value_schema=schema) == [{"x": expected}]


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        ("x BIGINT", '{"x":"1"}', "x should be a whole number and is text"),
        ("x BIGINT", '{"x":1.0}', "x should be a whole number and is a number"),
        ("x STRING", '{"x":1}', "x should be text and is a number"),
        ("x TINYINT", '{"x":128}', "x does not fit into 8 bits"),
        ("x DECIMAL(4,2)", '{"x":155.5}', "x does not fit into decimal"),
        ("x DECIMAL(4,2)", '{"x":1e999999999}', "x is no number"),
        ("x DATE", '{"x":"tomorrow"}', "x is no date"),
        ("x TIMESTAMP", '{"x":"now"}', "x is no time"),
        ("x TIMESTAMP_NTZ", '{"x":"2024-01-01T00:00:00Z"}', "names a time zone"),
        ("x BINARY", '{"x":"?"}', "must be base64"),
        ("x STRUCT<y: INT>", '{"x":[]}', "x should be an object and is an array"),
        ("x STRUCT<y: BOOLEAN>", '{"x":{"y":0}}', "x.y should be true or false"),
        ("x INT", "[1]", "it should be an object"),
        ("x INT", "", "it is no JSON"),
        ("x INT", '{"x":1', "it is no JSON"),
        ("x INT", '{"x":1}{"x":2}', "it is no JSON"),
        ("x INT", '{"x":1},"y":2', "it is no JSON"),
        ("x STRING", '{"x":"\\ud800"}', "surrogates not allowed"),
        ("x INT", "[" * 100_000, "nested too deeply"),
        ("x INT", '{"x":' + "9" * 5000 + "}", "it is no JSON"),
    ],
)
def test_a_bad_record_says_why(schema: str, text: str, reason: str) -> None:
    with pytest.raises(DecodeFailed, match=r"orders-3 at offset 101: the value does not decode as json") as caught:
        decoder(value_format="json", value_schema=schema).decode(raw_batch([b"{}", text.encode(), b"{}"]))
    assert reason in str(caught.value)


def test_bytes_that_are_no_utf8_are_bad() -> None:
    rows = values_of([b'{"x":"\xff\xfe"}', b'{"x":"y"}'], value_format="json", value_schema="x STRING")
    assert rows == [None, {"x": "y"}]


def test_deep_nesting_under_unnamed_fields_neither_crashes_nor_spoils_others() -> None:
    deep = b'{"a":1,"q":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    rows = values_of([b'{"a":0}', deep, b'{"a":2}'], value_format="json", value_schema="a INT")
    assert (rows[0], rows[2]) == ({"a": 0}, {"a": 2})


PIECES = [
    b'{"a":1}', b'{"a":2,"s":"x"}', b'{"a":3,"z":{"q":[1,{"r":"}"}]}}', b'{"a":', b'{"s":"', b'"}', b",", b"}", b"]",
    b"[", b"{", b"null", b"", b" ", b"\n", b'{"a":1}\n{"a":9}', b'{"a":1}}{"v":{"a":9}', b',"z":1', b'"a":5',
    b'{"a":"no"}', b'{"s":"\xff"}', b"5", b" null ", b'{"a":1}}null{"v":{}', b'{"a":1,"a":2}',
    b'{\n"a":\n7}', b"\x00", b'{"v":{"a":1}}',
    b'{"at":"2024-01-01T02:00:00+02:00"}', b'{"day":"2024-01-31"}', b'{"loc":"2024-01-31 10:00:00"}',
    b'{"at":"0000-01-01"}', b'{"day":"0000-01-01"}', b'{"loc":"0000-01-01"}', b'{"loc":"9999-12-31T23:59:59"}',
    b'{"at":"0001-01-01T00:00:00+02:00"}', b'{"at":"9999-12-31T23:59:59-02:00"}',
]  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.none(), st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join)), max_size=8))
@example([b'{"at":"0000-01-01"}', b'{"a":1}'])
@example([b'{"a":1}', b'{"day":"0000-01-01"}'])
@example([b'{"loc":"0000-01-01"}', b'{"a":1,"z":1}'])
@example([b'{"at":"9999-12-31T23:59:59-02:00"}', b'{"a":1}'])
def test_a_record_is_decoded_the_same_whoever_its_neighbours_are(values: list[bytes | None]) -> None:
    kind = parse_json_type("a BIGINT, s STRING, at TIMESTAMP, day DATE, loc TIMESTAMP_NTZ")
    read_one = reader_of(kind)
    expected: list[Any] = []
    bad: set[int] = set()
    for row, raw in enumerate(values):
        try:
            one = None if raw is None else read_one(parse(raw))
            expected.append(one)
        except (BadRecord, OverflowError):
            expected.append(None)
            bad.add(row)
    decoded = JsonDecoder(kind, is_framed=False).decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == expected
    assert set(decoded.bad) == bad


def test_one_bad_record_among_thousands_is_the_only_one_lost() -> None:
    values: list[bytes | None] = [b'{"a":%d,"more":1}' % row for row in range(5000)]
    values[1234] = b'{"a":"x"}'
    values[4999] = b'{"a":1}{"a":2}'
    decoded = JsonDecoder(parse_json_type("a INT"), is_framed=False).decode(pa.array(values, pa.binary()))
    assert sorted(decoded.bad) == [1234, 4999]
    assert [row["a"] for row in decoded.column.to_pylist() if row] == [r for r in range(4999) if r != 1234]


def test_arrow_never_sees_a_null_outside_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read memory that is not its own there: a crash when it comes first, luck when it comes later."""
    read: list[bytes] = []

    def watched(source: Any, **options: Any) -> Any:
        read.append(source.read())
        return read_json(pa.BufferReader(read[-1]), **options)

    read_json = json_decoder.pj.read_json
    monkeypatch.setattr(json_decoder.pj, "read_json", watched)
    values = [b"null", b'{"a":1}}null{"v":{}', b'{"a":1,"z":null}', b' null {"a":2}', b'{"a":1} \n null']
    rows = values_of(values, value_format="json", value_schema="a INT")
    assert rows == [None, None, {"a": 1}, None, None]
    assert values_of(values[2:3], value_format="json", value_schema="a INT") == [{"a": 1}]
    assert read
    assert not [text for text in read if re.search(rb"}\s*null", text) or text.lstrip().startswith(b"null")]


def test_the_arrow_type_is_sparks_own_both_ways() -> None:
    for schema in (WIDE, f"{WIDE}, m MAP<STRING, ARRAY<DATE>>"):
        opened = decoder(value_format="json", value_schema=schema, on_bad_record="null")
        expected = to_arrow_schema(opened.schema(), timezone="UTC").field("value").type
        for values in ([b'{"a":1,"list":[{"k":"v"}]}'], [b'{"a":1,"z":2}'], [b"no"], [b"{}", b"no", None], []):
            column = opened.decode(raw_batch(values)).column("value")
            assert column.type == expected
            assert str(column.type) == str(expected)
            column.validate(full=True)


def test_a_type_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(BadOption, match="keys are no strings"):
        decoder(value_format="json", value_schema="x MAP<INT, INT>")
