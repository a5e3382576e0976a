"""A stream that cannot start: whatever Spark asks it, it says why.

Made by source.py. If making the reader fails, PySpark 4.3 covers the reason up: python_streaming_source_runner ends by
stopping the reader that it does not have, and the user is shown an UnboundLocalError. So the failure comes later.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from penstock.spark.errors import SparkFailure, told_plainly


class FailedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, failure: SparkFailure) -> None:
        self._failure = failure

    def initialOffset(self) -> dict[str, Any]:
        self._fail()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._fail()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._fail()

    def prepareForTriggerAvailableNow(self) -> None:
        self._fail()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._fail()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._fail()

    @told_plainly()
    def _fail(self) -> NoReturn:
        raise self._failure
