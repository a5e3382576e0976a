"""What only reading every record tells: how many keys there are, how large values are, what is null.

Called by cli.report with --deep. One pass of Spark over the topics, all together: aggregates only, nothing is collected
but one row a topic. Keys are counted by sketch (HyperLogLog, 2 % off), percentiles by sample (about 1 %).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.spark.report.facts import DeepFacts, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERCENTILES = {"p1": 0.01, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "max": 1.0}
_KEYS_ERROR = 0.02
_PERCENTILE_ACCURACY = 1000


def read_deep(spark: "SparkSession", topics: Sequence[Topic], options: Mapping[str, str]) -> dict[str, DeepFacts]:
    from pyspark.sql import functions

    filled = {topic.name: topic for topic in topics if topic.rows}
    if not filled:
        return {}
    reader = spark.read.format("penstock").options(**options).option("subscribe", ",".join(filled))
    value_bytes, key_bytes = functions.octet_length("value"), functions.octet_length("key")
    shares = functions.array(*(functions.lit(share) for share in PERCENTILES.values()))
    summed = (
        reader.load()
        .groupBy("topic")
        .agg(
            functions.count(functions.lit(1)).alias("rows"),
            functions.count_if(functions.col("key").isNull()).alias("null_keys"),
            functions.count_if(functions.col("value").isNull()).alias("null_values"),
            functions.approx_count_distinct("key", _KEYS_ERROR).alias("keys"),
            functions.avg(value_bytes).alias("mean"),
            functions.percentile_approx(value_bytes, shares, _PERCENTILE_ACCURACY).alias("percentiles"),
            functions.sum(key_bytes).alias("key_bytes"),
            functions.sum(value_bytes).alias("value_bytes"),
        )
    )
    return {row["topic"]: _facts(row, filled[row["topic"]]) for row in summed.collect()}


def _facts(row: Any, topic: Topic) -> DeepFacts:
    key_bytes, value_bytes = int(row["key_bytes"] or 0), int(row["value_bytes"] or 0)
    return DeepFacts(
        rows=int(row["rows"]),
        null_keys=int(row["null_keys"]),
        null_values=int(row["null_values"]),
        keys_about=int(row["keys"]),
        value_bytes_mean=float(row["mean"] or 0.0),
        value_bytes_percentiles=dict(zip(PERCENTILES, map(int, row["percentiles"] or ()), strict=False)),
        key_bytes=key_bytes,
        value_bytes=value_bytes,
        compression_ratio=(key_bytes + value_bytes) / topic.bytes if topic.bytes else None,
    )
