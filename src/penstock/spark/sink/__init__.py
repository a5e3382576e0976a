"""The sink: rows of a DataFrame or of a streaming query into topics, each row once.

Called by source.py, which hands the BatchWriter and StreamWriter of sink.writers to Spark. How it keeps its promise is
told in docs/decisions/spark-exactly-once.md. Nothing is imported here: `pipeline validate` asks producer_config without
Spark.
"""
