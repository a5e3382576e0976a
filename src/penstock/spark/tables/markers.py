"""Which query wrote to a table last, and how many of its batches are in it.

Called by archive_checkpoint, without Spark. The sinks wrote it into the table in the commits of the rows themselves.
"""

from typing import NamedTuple

from penstock.spark.tables.failures import NoSuchTable
from penstock.spark.tables.options import SinkOptions

# Commits of compaction and of other programs may lie above that of the last batch.
_COMMITS_READ = 50


class Writers(NamedTuple):
    """`last` is None where the newest commits name no query; `stored` is the last batch of the query asked for."""

    last: str | None
    stored: int | None


def read_writers(options: SinkOptions, query: str) -> Writers:
    try:
        return _iceberg(options, query) if options.kind == "iceberg" else _delta(options, query)
    except NoSuchTable:
        return Writers(None, None)


def _delta(options: SinkOptions, query: str) -> Writers:
    from deltalake.exceptions import TableNotFoundError

    from penstock.spark.tables.delta import open_delta

    try:
        table = open_delta(options)
    except TableNotFoundError:
        return Writers(None, None)
    named = (commit.get("penstock.query") for commit in table.history(_COMMITS_READ))
    return Writers(next((name for name in named if name), None), table.transaction_version(query))


def _iceberg(options: SinkOptions, query: str) -> Writers:
    from penstock.spark.tables.iceberg import marker_of
    from penstock.spark.tables.iceberg_catalog import open_iceberg

    table = open_iceberg(options)
    newest = sorted(table.snapshots(), key=lambda one: (one.sequence_number or 0, one.timestamp_ms), reverse=True)
    named = (one.summary.additional_properties.get("penstock.query") for one in newest if one.summary)
    marker = marker_of(table, query)
    return Writers(next((name for name in named if name), None), None if marker is None else marker.batch)
