"""Rows as the source reads them, and columns out of a decoder, for the tests of formats."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.spark.arrow.schema import RAW_SCHEMA, RAW_SCHEMA_WITH_HEADERS
from penstock.spark.formats import Decoder, format_options, open_decoder, resolve

AT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def raw_batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[tuple[str, bytes | None]] | None = None,
) -> pa.RecordBatch:
    rows = [
        {
            "key": keys[row] if keys else None,
            "value": value,
            "topic": "orders",
            "partition": 3,
            "offset": 100 + row,
            "timestamp": AT,
            "timestampType": 0,
            **({} if headers is None else {"headers": [{"key": name, "value": text} for name, text in headers]}),
        }
        for row, value in enumerate(values)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA if headers is None else RAW_SCHEMA_WITH_HEADERS)


def decoder(**options: str) -> Decoder:
    """Option names with underscores for dots; one topic is subscribed to."""
    named = {"subscribe": "orders"} | {name.replace("_", "."): text for name, text in options.items()}
    found = open_decoder(resolve(format_options(named)))
    assert found is not None
    return found


def values_of(values: Sequence[bytes | None], **options: str) -> list[Any]:
    """Decoded values, null for bad records."""
    return decoder(on_bad_record="null", **options).decode(raw_batch(values)).column("value").to_pylist()
