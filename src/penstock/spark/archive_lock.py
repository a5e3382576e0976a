"""One run at a time for a topic's archive: two would read the same records and store them twice.

Called by archive. The lock is the kernel's: it goes with the process that holds it. Where neither the table nor the
checkpoint is a local folder there is none.
"""

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkFailure

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# A query that has just ended lets go a moment after those who wait for it hear of it.
PATIENCE_S = 5.0
_LOOK_EVERY_S = 0.05


class ArchiveRunning(SparkFailure):
    def __init__(self, path: Path) -> None:
        super().__init__(f"another archive of the same topic is running and holds {path}: stop it first")


class ArchiveLock:
    """Taken when made; given back by release."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._handles: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        try:
            # All runs take them in one order, so that no two wait for each other.
            for path in sorted(set(paths)):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._handles.append(os.open(path, os.O_RDWR | os.O_CREAT))
                _take(self._handles[-1], path, deadline)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()

    def release_after(self, query: "StreamingQuery") -> None:
        def wait() -> None:
            # Why it ended is told to whoever started it.
            with contextlib.suppress(Exception):
                query.awaitTermination()
            self.release()

        threading.Thread(target=wait, name="archive-lock", daemon=True).start()


def _take(handle: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ArchiveRunning(path) from None
            time.sleep(_LOOK_EVERY_S)
        else:
            return
