"""penstock on Spark: the data source `penstock`, and what is built on it (pipelines, archive, replay, SQL, reports).

    import penstock.spark

    spark = penstock.spark.build_session("orders")
    orders = spark.read.format("penstock").option("kafka.bootstrap.servers", "localhost:9092")
    orders.option("subscribe", "orders").load().show()

Spark finds the source by itself through the module `pyspark_penstock`; `register` is for sessions where it does not
(a Spark Connect client, a name taken by something else). Nothing heavy is imported before it is used.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def build_session(
    name: str, master: str | None = None, conf: Mapping[str, str] = {}, *, is_quick: bool = True
) -> "SparkSession":
    """A Spark session that is ready for penstock; see penstock.spark.session."""
    from penstock.spark import session

    return session.build_session(name, master, conf, is_quick=is_quick)


def register(spark: "SparkSession") -> None:
    """Make `format("penstock")` known to this session."""
    from penstock.spark.source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)
