"""The sources of a pipeline as DataFrames.

Called by pipeline.building, once per sink: each query has its own progress, and shows its own lag. Topics come through
`format("penstock")`, files through Spark's own readers, PostgreSQL through ADBC, read once on the driver.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import BadPipeline
from penstock.spark.pipeline.durations import interval
from penstock.spark.pipeline.loading import LoadedPipeline
from penstock.spark.pipeline.model_sources import Files, PostgresTable, Scalar, Source, Watermark

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
            raise BadPipeline(f"{where}: source `{name}`: {_first_line(fault)}") from fault
    else:
        options = topic_options(loaded, source, query)
        reader = session.readStream if source.is_streaming else session.read
        opened = reader.format("penstock").options(**options).load()
    return with_watermark(opened, source.watermark)


def with_watermark(df: "DataFrame", watermark: Watermark | None) -> "DataFrame":
    return df if watermark is None else df.withWatermark(watermark.column, interval(watermark.delay))


def topic_options(loaded: LoadedPipeline, source: Source, query: str) -> dict[str, str]:
    """The source's own `options` come last, and win."""
    options = kafka_options(loaded)
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics or [source.topic or ""])
    options |= _start(source.start)
    if source.is_streaming:
        options["queryName"] = query
    named = {
        "value.format": source.format if source.format != "bytes" else None,
        "value.schema": source.schema_,
        "value.schema.file": loaded.resolve(source.schema_file) if source.schema_file is not None else None,
        "key.format": source.key_format,
        "on.bad.record": source.bad_records or ("deadletter" if source.dead_letters is not None else None),
        "deadletter.topic": source.dead_letters,
    }
    options |= {key: value for key, value in named.items() if value is not None}
    return options | {key: option_text(value) for key, value in source.options.items()}


def kafka_options(loaded: LoadedPipeline) -> dict[str, str]:
    """Of any source or sink that is a topic."""
    kafka = loaded.pipeline.kafka
    given = {f"kafka.{key}": option_text(value) for key, value in kafka.options.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap, **given}


def option_text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _start(text: str) -> dict[str, str]:
    """`earliest`, `latest`, offsets as JSON, or a date and time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return {"startingOffsets": text}
    if moment.tzinfo is None:
        raise BadPipeline(f"`start: {text}` has no time zone; write it as {text}Z or with an offset")
    return {"startingTimestamp": str(int(moment.timestamp() * 1000)), "startingOffsetsByTimestampStrategy": "latest"}


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
    from adbc_driver_postgresql import dbapi

    # One read by one connection: what is joined to a stream is small.
    query = table.query or "SELECT * FROM " + ".".join(
        '"' + part.replace('"', '""') + '"' for part in (table.table or "").split(".")
    )
    with dbapi.connect(table.url) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        rows = cursor.fetch_arrow_table()
    return session.createDataFrame(rows)


def _first_line(fault: Exception) -> str:
    return next((line for line in str(fault).splitlines() if line.strip()), type(fault).__name__)
