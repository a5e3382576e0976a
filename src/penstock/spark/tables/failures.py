"""What can go wrong between a batch and a table, each as one sentence that says what to do.

Raised by the sinks and the readers of penstock.spark.tables, on the driver and in Spark's Python workers.
"""

from collections.abc import Sequence

from penstock.spark.errors import SparkFailure


class SchemaMismatch(SparkFailure):
    """The columns of a batch do not fit those of the table; the sentence names them."""


class StaleBatch(SparkFailure):
    """A batch older than the last one stored: to skip it could lose rows, to write it could double them."""

    def __init__(self, table: str, query: str, batch: int, stored: int) -> None:
        super().__init__(
            f"{table} holds batch {stored} of query {query} already, and now batch {batch} came: the checkpoint was "
            "reset, or the query runs twice; give the query a new name to write its rows again, or set "
            "on_old_batch=skip to leave out what is stored"
        )
        self.table, self.query, self.batch, self.stored = table, query, batch, stored

    def __reduce__(self) -> tuple[type["StaleBatch"], tuple[str, str, int, int]]:
        return type(self), (self.table, self.query, self.batch, self.stored)


class CommitConflict(SparkFailure):
    """Other writers were faster at every attempt."""

    def __init__(self, table: str, attempts: int) -> None:
        super().__init__(
            f"{table} was changed by other writers at each of {attempts} attempts to commit; nothing of this batch is "
            "in it, run the query again"
        )
        self.table, self.attempts = table, attempts

    def __reduce__(self) -> tuple[type["CommitConflict"], tuple[str, int]]:
        return type(self), (self.table, self.attempts)


class FilesNotShared(SparkFailure):
    """Tasks have written where the driver does not see it."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"a task has written {path}, and the driver does not have it, or not the same: the table's folder must be "
            "one that driver and executors share; nothing of this batch is in the table"
        )
        self.path = path

    def __reduce__(self) -> tuple[type["FilesNotShared"], tuple[str]]:
        return type(self), (self.path,)


class NotReadable(SparkFailure):
    """A table with something in it that plain Parquet reading would get wrong."""


class NoSuchTable(SparkFailure):
    """Nothing of the kind lies there."""


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
