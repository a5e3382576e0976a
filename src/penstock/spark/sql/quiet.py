"""Spark without its noise: what it writes while it starts and runs goes into a file that is shown when it fails.

Called by cli.sql and cli.report. A JVM inherits our stdout and stderr when it is started, so that these two point
elsewhere just for that moment; afterwards ours are ours again, and the JVM's stay where they were.
"""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Generator
from typing import TYPE_CHECKING

from penstock.spark.errors import SparkFailure, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TAIL_BYTES = 2000


@contextlib.contextmanager
def quiet_session(name: str, master: str | None, *, is_verbose: bool = False) -> Generator["SparkSession"]:
    """A session that ends with the block; one that was there before is joined and stays."""
    from pyspark.sql import SparkSession

    from penstock.spark.session import build_session

    is_ours = SparkSession.getActiveSession() is None

    # Spark's Python side logs every analysis error a second time, as JSON with its stack trace.
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    with tempfile.TemporaryFile() as noise:
        try:
            with contextlib.nullcontext() if is_verbose else _outputs_into(noise.fileno()):
                spark = build_session(name, master)
        except SparkFailure:
            raise
        except Exception as error:
            raise SparkFailure(f"Spark did not start: {reason(error)}{_tail(noise.fileno())}") from None
        try:
            yield spark
        finally:
            # A second Ctrl-C during the farewell would only leave the JVM behind.
            with contextlib.suppress(Exception):
                if is_ours:
                    spark.stop()


@contextlib.contextmanager
def _outputs_into(file: int) -> Generator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    try:
        for number in (1, 2):
            os.dup2(file, number)
        yield
    finally:
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)


def _tail(file: int) -> str:
    size = os.fstat(file).st_size
    text = os.pread(file, _TAIL_BYTES, max(0, size - _TAIL_BYTES)).decode(errors="replace").strip()
    return f"; it said:\n{text}" if text else ""
