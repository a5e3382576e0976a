"""What a table sink is, and the rule by which a batch is written, left out or refused.

Used by every file of penstock.spark.tables and by whoever calls open_sink.
Laws:
- (query, batch) is written once: its rows and its number become visible in one commit of the table.
- Spark runs at most the last batch again; one that is older than that is nobody's replay (is_stored).
- The last batch itself is a replay only from the same checkpoint: a new one counts other rows from 0 (Marker).
"""

import hashlib
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from penstock.spark.tables.failures import StaleBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Kind = Literal["delta", "iceberg", "parquet", "postgres"]
Mode = Literal["append", "overwrite", "upsert"]

COMMIT_ATTEMPTS = 30
# Waits between two attempts to commit, at most: other writers need their turn.
COMMIT_WAIT_S = 0.5


class WrittenBatch(NamedTuple):
    """What became of a batch. `skipped`: it was stored before, and nothing was written."""

    rows: int
    files: int
    skipped: bool


SKIPPED = WrittenBatch(0, 0, True)


class TableSink(Protocol):
    """Called from foreachBatch, on the driver."""

    def write_batch(self, df: "DataFrame", batch_id: int) -> WrittenBatch:
        """Exactly once: the same (query, batch_id) again is a no-op."""
        ...


class WrittenFile(NamedTuple):
    """A Parquet file that a task wrote. `path` is relative to the folder given, `/` between its parts."""

    path: str
    size: int
    rows: int
    partition: dict[str, str | None]
    stats: str


class Marker(NamedTuple):
    """The last batch of a query in a table. `stream` is the id its checkpoint has; empty where nobody said one."""

    batch: int
    stream: str = ""


def is_stored(table: str, query: str, asked: Marker, stored: Marker | None, on_old_batch: str) -> bool:
    """Whether the batch is in the table; StaleBatch where that cannot be told."""
    if stored is None or asked.batch > stored.batch:
        return False
    is_same_stream = not (asked.stream and stored.stream) or asked.stream == stored.stream
    if (asked.batch == stored.batch and is_same_stream) or on_old_batch == "skip":
        return True
    raise StaleBatch(table, query, asked.batch, stored.batch)


def stream_of(df: "DataFrame") -> str:
    """The id of the streaming query that runs this batch: Spark keeps it in the checkpoint, a new one has another.

    Empty outside of streams, and where the driver has no context to ask (Spark Connect).
    """
    try:
        return df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
    except (AttributeError, NotImplementedError):
        return ""


def query_tag(query: str) -> str:
    """A query's name as part of a file's or table's: short, of letters and digits."""
    return hashlib.sha256(query.encode()).hexdigest()[:12]


def batch_prefix(query: str, batch: int) -> str:
    """How the names of all files of a batch begin, whichever attempt wrote them."""
    return f"{query_tag(query)}-{batch:010d}-"
