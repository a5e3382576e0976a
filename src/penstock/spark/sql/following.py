"""A query that goes on: each batch of new rows is handed over as it comes.

Called by cli.sql. Where it stands is kept in a folder that is removed at the end: whoever asks again begins anew.
Laws:
- Rows are handed over on the caller's thread, so that writing them and Ctrl-C meet in one place.
- Whatever ends it (enough rows, Ctrl-C, a failure), the query is stopped and the folder is gone.
"""

import contextlib
import queue
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OutputMode = Literal["append", "update", "complete"]

# At most so many batches wait for whoever prints: Spark waits with them.
_BATCHES_AHEAD = 2
_POLL_S = 0.2
_CHUNK_ROWS = 1000


class Piece(NamedTuple):
    """Some rows of a batch, and whether they are its last."""

    rows: list[Any]
    ends_batch: bool


def output_mode(table: "DataFrame") -> OutputMode:
    """Rows as they come; sums each time they change; the whole of a sorted or cut aggregate each time."""
    kinds = set(_node_kinds(table))
    if not kinds & {"Aggregate", "Distinct"}:
        return "append"
    return "complete" if kinds & {"Sort", "GlobalLimit", "LocalLimit"} else "update"


@contextlib.contextmanager
def follow(table: "DataFrame", mode: OutputMode, interval: str | None = None) -> Generator[Iterator[Piece]]:
    """The rows, some at a time; batches without any are left out. Ends by being left, or by the query's failure."""
    folder = tempfile.mkdtemp(prefix="penstock-sql-")
    batches: queue.Queue[Piece] = queue.Queue(_BATCHES_AHEAD)
    is_left = [False]

    def hand_over(batch: "DataFrame", _: int) -> None:
        rows: list[Any] = []
        for row in batch.toLocalIterator():
            if len(rows) == _CHUNK_ROWS:
                _put(batches, Piece(rows, ends_batch=False), is_left)
                rows = []
            rows.append(row)
        if rows:
            _put(batches, Piece(rows, ends_batch=True), is_left)

    query: Any = None
    try:
        writer = table.writeStream.outputMode(mode).foreachBatch(hand_over).option("checkpointLocation", folder)
        query = (writer.trigger(processingTime=interval) if interval else writer).start()
        yield _rows(query, batches)
    finally:
        is_left[0] = True
        with contextlib.suppress(Exception):
            if query is not None:
                query.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _put(batches: "queue.Queue[Piece]", piece: Piece, is_left: Sequence[bool]) -> None:
    while not is_left[0]:
        with contextlib.suppress(queue.Full):
            batches.put(piece, timeout=_POLL_S)
            return


def _rows(query: Any, batches: "queue.Queue[Piece]") -> Iterator[Piece]:
    while True:
        with contextlib.suppress(queue.Empty):
            yield batches.get(timeout=_POLL_S)
            continue
        if not query.isActive:
            error = query.exception()
            if error is not None:
                raise error
            return


def _node_kinds(table: "DataFrame") -> Iterator[str]:
    frame: Any = table
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        yield str(node.getClass().getSimpleName())
        children = node.children()
        waiting += [children.apply(slot) for slot in range(children.size())]
