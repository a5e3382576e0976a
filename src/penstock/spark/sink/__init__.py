"""The sink: rows of a DataFrame or of a streaming query into topics, each row once.

Called by source.py, which hands BatchWriter and StreamWriter to Spark. How it keeps its promise is told in
docs/decisions/spark-exactly-once.md.
"""

from penstock.spark.sink.writers import BatchWriter, StreamWriter

__all__ = ["BatchWriter", "StreamWriter"]
