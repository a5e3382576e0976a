"""The sources of a pipeline as DataFrames.

Called by pipeline.building, once per sink: each query has its own progress, and shows its own lag. Topics come through
`format("penstock")`, files through Spark's own readers, PostgreSQL through ADBC, read once on the driver.
"""

from typing import TYPE_CHECKING, Any

from penstock.spark.errors import BadOption, BadPipeline
from penstock.spark.pipeline.durations import interval
from penstock.spark.pipeline.failures import CannotStart
from penstock.spark.pipeline.loading import LoadedPipeline
from penstock.spark.pipeline.model_sources import Files, PostgresTable, Watermark
from penstock.spark.pipeline.topic_options import option_text, topic_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_source(session: "SparkSession", loaded: LoadedPipeline, name: str, query: str) -> "DataFrame":
    source = loaded.pipeline.sources[name]
    if source.files is not None:
        opened = _open_files(session, loaded, source.files)
    elif source.postgres is not None:
        try:
            opened = _open_postgres(session, source.postgres)
        except Exception as fault:
            where = loaded.document.where(("sources", name, "postgres"))
            # A database that is down is nobody's mistake in the file.
            kind = BadPipeline if _is_mistake(fault) else CannotStart
            raise kind(f"{where}: source `{name}`: {_first_line(fault)}") from fault
    else:
        options = topic_options(loaded, source, query)
        reader = session.readStream if source.is_streaming else session.read
        opened = reader.format("penstock").options(**options).load()
    return with_watermark(opened, source.watermark)


def with_watermark(df: "DataFrame", watermark: Watermark | None) -> "DataFrame":
    return df if watermark is None else df.withWatermark(watermark.column, interval(watermark.delay))


def _open_files(session: "SparkSession", loaded: LoadedPipeline, files: Files) -> "DataFrame":
    reader: Any = session.readStream if files.stream else session.read
    reader = reader.format(files.format)
    if files.schema_ is not None:
        reader = reader.schema(files.schema_)
    if files.format == "csv":
        reader = reader.option("header", "true")
    return reader.options(**{key: option_text(value) for key, value in files.options.items()}).load(
        loaded.resolve(files.path)
    )


def _open_postgres(session: "SparkSession", table: PostgresTable) -> "DataFrame":
    from penstock.spark.tables.postgres import connect

    # One read by one connection: what is joined to a stream is small.
    query = table.query or "SELECT * FROM " + ".".join(
        '"' + part.replace('"', '""') + '"' for part in (table.table or "").split(".")
    )
    with connect(table.url) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        rows = cursor.fetch_arrow_table()
    return session.createDataFrame(rows)


def _is_mistake(fault: Exception) -> bool:
    """A URL that is none, a table that is not there, SQL that is none."""
    from adbc_driver_manager.dbapi import ProgrammingError

    return isinstance(fault, BadOption | ProgrammingError)


def _first_line(fault: Exception) -> str:
    return next((line for line in str(fault).splitlines() if line.strip()), type(fault).__name__)
