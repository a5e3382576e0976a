"""Rows as JSON, CSV and table cells."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from penstock.spark.sql.rendering import cell, column_names, csv_lines, json_lines, plain


def test_columns_of_one_name_all_stay() -> None:
    assert column_names(["key", "value", "KEY", "key", "key_2"]) == ["key", "value", "KEY_2", "key_3", "key_2_2"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (b"text", "text"),
        (b"\xff\x00", "/wA="),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (Decimal("12.50"), "12.50"),
        (date(2024, 5, 17), "2024-05-17"),
        (datetime(2024, 5, 17, 8, 30, tzinfo=UTC), "2024-05-17T08:30:00.000Z"),
        (Row(id=1, lines=[Row(sku=b"a")]), {"id": 1, "lines": [{"sku": "a"}]}),
        ({"a": [b"x"]}, {"a": ["x"]}),
        ([(1, 2)], [[1, 2]]),
    ],
)
def test_every_value_becomes_json(value: object, expected: object) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


def test_a_row_is_an_object_a_line() -> None:
    assert list(json_lines(["id", "id_2"], [(1, "ä\n")])) == ['{"id": 1, "id_2": "ä\\n"}']


def test_csv_quotes_what_needs_it_and_writes_its_header_once() -> None:
    rows = [(1, 'a "b", c', None, True), (2, "x\ny", Row(k=1), False)]
    assert list(csv_lines(["id", "text", "more", "is"], rows)) == [
        "id,text,more,is",
        '1,"a ""b"", c",,true',
        '2,"x\ny","{""k"": 1}",false',
    ]
    assert list(csv_lines(["id"], [(3,)], has_header=False)) == ["3"]


def test_a_cell_is_a_number_or_text() -> None:
    assert cell(3) == 3
    assert cell(2.5) == 2.5
    assert cell([1, {"a": None}]) == '[1, {"a": null}]'
