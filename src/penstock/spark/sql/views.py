"""Topics as tables: each named in a query becomes a view of the `penstock` source with readable columns.

Called by cli.sql.

    key        STRING, or BINARY where keys are not UTF-8
    value      a STRUCT of what JSON values hold (value.amount), STRING for other text, BINARY else; or as asked for
    topic, partition, offset, timestamp, timestampType, headers    as Spark's kafka source has them

JSON is parsed by Spark, after the source: a column or a row nobody asks for is then not parsed at all. A record that is
no JSON has nulls in all of value's fields; so a query never fails for one record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.model import TopicPartition
from penstock.spark.errors import reason
from penstock.spark.sql.inference import Look, look_at
from penstock.spark.sql.naming import BadQuery, nearest_names, quote
from penstock.spark.sql.ranges import END, Edge, Isolation, Span, as_option, resolve
from penstock.spark.sql.rendering import column_names
from penstock.spark.sql.sampling import sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.fetching import Cluster

_PLAIN_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "headers")


@dataclass(frozen=True, slots=True)
class Reading:
    """How topics are to be read. `options` go to the source: addresses, security, formats."""

    options: Mapping[str, str]
    begin: Edge
    until: Edge
    isolation: Isolation
    is_following: bool
    # auto, json, string and bytes are made here; others are the source's own value.format.
    value_format: str = "auto"
    schema: str | None = None
    watermark: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A topic as it was found, and how its columns are read."""

    topic: str
    spans: Mapping[TopicPartition, Span]
    key_is_text: bool
    value: Look

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.spans.values())


def find_views(cluster: "Cluster", topics: Iterable[str], reading: Reading) -> list[View]:
    """What there is of each topic. Raises BadQuery for one that is not there."""
    names = list(topics)
    found = cluster.topics(names) if names else {}
    views: list[View] = []
    for name in names:
        facts = found.get(name)
        if facts is None:
            near = nearest_names(name, cluster.topics(None))
            hint = f"did you mean {' or '.join(near)}?" if near else "`penstock topics list` shows which there are."
            raise BadQuery(f"there is no topic {name}; {hint}")
        partitions = [TopicPartition(name, partition) for partition in sorted(facts.leaders)]
        spans = resolve(cluster, partitions, reading.begin, reading.until, reading.isolation)
        # A stream that begins at the end has nothing to look at there: what came before tells as much.
        seen = (
            resolve(cluster, partitions, Edge("back", 100), END, reading.isolation) if reading.is_following else spans
        )
        taken = sample(cluster, facts, seen, reading.isolation)
        keys = look_at(taken.keys)
        views.append(View(name, spans, keys.kind != "bytes", _value_look(taken.values, reading)))
    return views


def _value_look(values: list[bytes | None], reading: Reading) -> Look:
    if reading.value_format == "json" and reading.schema is not None:
        return Look("json", reading.schema, 0)
    if reading.value_format in ("string", "bytes"):
        return Look("string" if reading.value_format == "string" else "bytes", None, 0)
    look = look_at(values)
    if reading.value_format == "json" and look.kind != "json":
        raise BadQuery("no JSON object was found to learn the fields from: name them with --schema, as 'id BIGINT'")
    return look


def create_view(spark: "SparkSession", view: View, reading: Reading) -> "DataFrame":
    """The view, registered under the topic's name."""
    if reading.value_format == "json" and reading.schema is not None:
        _check_schema(reading.schema)
    reader: Any = spark.readStream if reading.is_following else spark.read
    options = {
        **reading.options,
        "subscribe": view.topic,
        "includeHeaders": "true",
        "isolation.level": reading.isolation,
        "startingOffsets": as_option(view.spans, "start"),
    }
    if reading.is_following:
        # Looking must not leave a trace: no group for a query that ends with Ctrl-C.
        options["commit.group.id"] = "none"
    else:
        options["endingOffsets"] = as_option(view.spans, "end")
    is_ours = reading.value_format in ("auto", "json", "string", "bytes")
    if not is_ours:
        options |= {"value.format": reading.value_format, "on.bad.record": "null"}
        options |= {"value.schema": reading.schema} if reading.schema is not None else {}
    table = reader.format("penstock").options(**options).load()
    table = table.select(_key(view), _value(view) if is_ours else "value", *_PLAIN_COLUMNS)
    if reading.watermark is not None and reading.is_following:
        table = table.withWatermark("timestamp", reading.watermark)
    table.createOrReplaceTempView(quote(view.topic))
    return table


def readable(table: "DataFrame") -> "DataFrame":
    """Columns of different names, and times as ISO text in UTC, down to the digits that are there.

    Spark would hand times over as this machine's local ones without a zone, of which one hour a year means two.
    """
    from pyspark.sql.functions import col, date_format, regexp_replace
    from pyspark.sql.types import TimestampNTZType, TimestampType

    table = table.toDF(*column_names(table.columns))
    chosen: list[Any] = []
    for field in table.schema.fields:
        column = col(quote(field.name))
        if isinstance(field.dataType, TimestampType):
            # In the zone of the session, which penstock sets to UTC.
            text = date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
            column = regexp_replace(text, r"(\.\d{3})000(?=Z|[+-])", "$1").alias(field.name)
        elif isinstance(field.dataType, TimestampNTZType):
            column = column.cast("string").alias(field.name)
        chosen.append(column)
    return table.select(*chosen)


def _check_schema(schema: str) -> None:
    """Apart from the query, so that a fault in it is not looked for there."""
    from pyspark.sql.types import StructType

    from penstock.spark.sql.faults import plain_sentence

    try:
        StructType.fromDDL(schema)
    except Exception as error:
        told = plain_sentence(reason(error))
        raise BadQuery(f"--schema must be columns as 'id BIGINT, amount DOUBLE': {told}") from None


def _key(view: View) -> Any:
    from pyspark.sql.functions import col

    return col("key").cast("string").alias("key") if view.key_is_text else col("key")


def _value(view: View) -> Any:
    from pyspark.sql.functions import col, from_json

    if view.value.kind == "bytes":
        return col("value")
    text = col("value").cast("string")
    if view.value.kind == "json" and view.value.schema is not None:
        return from_json(text, view.value.schema).alias("value")
    return text.alias("value")
