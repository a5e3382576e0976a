"""What Spark looks for when somebody says format("penstock"): a module `pyspark_<name>` with a `DefaultSource`.

Nothing has to be registered, wherever penstock is installed.
"""

from penstock.spark.source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
