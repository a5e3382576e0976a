"""A table back as a DataFrame, by Spark's own Parquet reader and without jars.

Called by users, by replay and by tests. The files are those of the moment of the call: rows committed later are not in
the DataFrame, and files that a vacuum takes away meanwhile fail the read, never shorten it.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.spark.errors import BadOption
from penstock.spark.tables.durability import file_system
from penstock.spark.tables.files import TableFiles, Wanted, list_files
from penstock.spark.tables.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB = re.compile(r"[{}\[\]*?\\]")
_SCHEME = r"^[A-Za-z][A-Za-z0-9+.-]*:/+"


def read_table(
    spark: "SparkSession",
    kind: str,
    path: str = "",
    options: Mapping[str, Any] | None = None,
    *,
    wanted: Wanted | None = None,
) -> "DataFrame":
    """Delta, Iceberg or a Parquet folder. `wanted` leaves out files by their partition values before they are read."""
    chosen = sink_options(kind, {**({"path": path} if path else {}), **(options or {})})
    if kind == "postgres":
        raise BadOption("read_table reads delta, iceberg and parquet; a pipeline's postgres source reads PostgreSQL")
    found = list_files(chosen, wanted)
    schema = spark_schema(found.schema)
    if not found.files:
        return spark.createDataFrame([], schema)
    inside = schema.__class__([field for field in schema.fields if field.name not in found.outside])
    paths = [_for_spark(file.path) for file in found.files]
    rows = spark.read.schema(inside).option("recursiveFileLookup", "true").parquet(*paths)
    return _with_values(spark, rows, schema, found) if found.outside else rows


def _with_values(spark: "SparkSession", rows: "DataFrame", schema: "StructType", found: TableFiles) -> "DataFrame":
    """Columns that stand in the table's log only, joined by the file a row came from."""
    from pyspark.sql import functions as F

    names = list(found.outside)
    values = [(_key(file.path), *(file.partition[name] for name in names)) for file in found.files]
    columns = ", ".join(["__penstock_file string", *(f"`__penstock_{slot}` string" for slot in range(len(names)))])
    lookup = spark.createDataFrame(values, columns)
    place = F.regexp_replace(F.regexp_replace(F.col("_metadata.file_path"), _SCHEME, "/"), r"\+", "%2B")
    joined = rows.withColumn("__penstock_file", F.url_decode(place)).join(F.broadcast(lookup), "__penstock_file")
    typed = {
        name: F.col(f"__penstock_{slot}").cast(schema[name].dataType).alias(name) for slot, name in enumerate(names)
    }
    return joined.select(*(typed.get(field.name, F.col(f"`{field.name}`")) for field in schema.fields))


def spark_schema(schema: pa.Schema) -> "StructType":
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([pa.field(field.name, field.type) for field in schema]))


def _for_spark(path: str) -> str:
    """As Spark wants it: with a scheme, or it would look in the cluster's default file system; glob signs escaped."""
    system, plain = file_system(path)
    full = f"file://{plain}" if system.type_name == "local" else path
    return _GLOB.sub(r"\\\g<0>", full)


def _key(path: str) -> str:
    system, plain = file_system(path)
    return plain if system.type_name == "local" else unquote("/" + path.partition("://")[2])
