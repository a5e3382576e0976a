"""A DataFrame as far as the file sinks need one: a schema, and mapInArrow run right here, task by task."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import Row


class LocalFrame:
    def __init__(self, *tasks: pa.Table) -> None:
        self._tasks = tasks
        self.schema = from_arrow_schema(tasks[0].schema)
        self.columns = self.schema.names
        self.writes: list[str] = []

    @property
    def write(self) -> "_FrameWriter":
        return _FrameWriter(self.writes)

    def mapInArrow(self, write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> "LocalFrame":
        return LocalFrame(*(pa.Table.from_batches(write(iter(task.to_batches()))) for task in self._tasks))

    def collect(self) -> list[Row]:
        return [Row(**row) for task in self._tasks for row in task.to_pylist()]


class _FrameWriter:
    """Notes in which formats its frame was saved."""

    def __init__(self, writes: list[str]) -> None:
        self._writes = writes
        self._format = ""

    def format(self, name: str) -> "_FrameWriter":
        self._format = name
        return self

    def mode(self, _: str) -> "_FrameWriter":
        return self

    def save(self) -> None:
        self._writes.append(self._format)


def frame(first: int, count: int, tasks: int = 2, **more: Any) -> LocalFrame:
    """Rows with ids from `first` on, spread over tasks; further columns as keywords, name = value of all rows."""
    columns = {"id": pa.array(range(first, first + count), pa.int64()), "shop": pa.array(_shops(first, count))}
    table = pa.table({**columns, **{name: pa.array([value] * count) for name, value in more.items()}})
    size = -(-count // tasks)
    return LocalFrame(*(table.slice(start, size) for start in range(0, max(count, 1), size or 1)))


def _shops(first: int, count: int) -> list[str | None]:
    return [[None, "a b", "", "c:d/e"][number % 4] for number in range(first, first + count)]
