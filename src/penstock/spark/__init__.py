"""penstock on Spark: the data source `penstock`, and what is built on it (pipelines, archive, replay, SQL, reports).

    import penstock.spark

    spark = penstock.spark.build_session("orders")
    orders = spark.read.format("penstock").option("kafka.bootstrap.servers", "localhost:9092")
    orders.option("subscribe", "orders").load().show()

`build_session` registers the source. In a session made otherwise Spark finds it by itself through the module
`pyspark_penstock`; `register` is for such a session where several streams run at once (see registration.py), and where
Spark does not look (a Spark Connect client, a name taken by something else).
Nothing heavy is imported before it is used.
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
    """Make `format("penstock")` known to this session, for many streams at once; see penstock.spark.registration."""
    from penstock.spark import registration

    registration.register(spark)
