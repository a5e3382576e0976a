"""The Python data source `penstock`: what Spark calls when somebody says format("penstock").

Found by Spark through the module pyspark_penstock, or registered by penstock.spark.register. Rows and options are
those of Spark's own `kafka` source (option_table.py says which there are).
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import BadOption, SparkFailure, told_plainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

    from penstock.spark.formats import FormatOptions
    from penstock.spark.options import ReadOptions

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def raw_schema(has_headers: bool) -> StructType:
    """The rows of Spark's `kafka` source."""
    schema = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
        ]
    )
    return schema.add(StructField("headers", ArrayType(_HEADER))) if has_headers else schema


def _shape(schema: StructType) -> list[tuple[str, str]]:
    # What may be null is not compared: Spark says of everything it reads that it may.
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


class PenstockDataSource(DataSource):
    _resolved: "FormatOptions | None" = None

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @told_plainly()
    def schema(self) -> StructType:
        """Spark asks this first, and keeps the instance: schemas of a registry are looked up here, once."""
        from penstock.spark.formats import open_decoder
        from penstock.spark.options import check_read_options

        # A mistake is told at load(), not when the query starts.
        check_read_options(self.options)
        raw = raw_schema(self.options.get("includeHeaders", "false").strip().lower() == "true")
        decoder = open_decoder(self._formats())
        return raw if decoder is None else decoder.row_schema(raw)

    @told_plainly()
    def reader(self, schema: StructType) -> "DataSourceReader":
        from penstock.spark.batch_reader import BatchReader

        return BatchReader(self._read_options(schema, is_streaming=False))

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":
        from penstock.spark.failed_reader import FailedReader
        from penstock.spark.stream_reader import StreamReader

        try:
            return StreamReader(self._read_options(schema, is_streaming=True))
        except SparkFailure as failure:
            return FailedReader(failure)

    @told_plainly()
    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        from penstock.spark.options import write_options
        from penstock.spark.sink.writers import BatchWriter

        if overwrite:
            raise BadOption("a topic cannot be overwritten: write with mode append")
        return BatchWriter(write_options(self.options), schema)

    @told_plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "DataSourceStreamWriter":
        from penstock.spark.options import write_options
        from penstock.spark.sink.writers import StreamWriter

        return StreamWriter(write_options(self.options), schema)

    def _read_options(self, schema: StructType, *, is_streaming: bool) -> "ReadOptions":
        from dataclasses import replace

        from penstock.spark.options import read_options

        options = replace(read_options(self.options, is_streaming=is_streaming), formats=self._formats())
        if _shape(schema) != _shape(self.schema()):
            raise BadOption("the source has a schema of its own: leave out .schema(…), and select what is wanted")
        return options

    def _formats(self) -> "FormatOptions":
        from penstock.spark.formats import format_options, resolve

        if self._resolved is None:
            self._resolved = resolve(format_options(self.options))
        return self._resolved
