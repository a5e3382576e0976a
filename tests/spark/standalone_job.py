"""The job of test_standalone: rows of a topic, counted per key, into another topic; as a batch or as a stream.

    standalone_job.py batch|stream BOOTSTRAP FROM TO CHECKPOINT [MASTER]

Without a master, spark-submit says which. It is what a user would write: nothing here knows about PYTHONPATH.
"""

import sys

from pyspark.sql import functions as f

from penstock.spark import build_session


def main(how: str, bootstrap: str, source: str, target: str, checkpoint: str, master: str | None = None) -> None:
    spark = build_session(f"standalone-{how}", master, {"spark.sql.shuffle.partitions": "2"})
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream if how == "stream" else spark.read
    rows = reader.format("penstock").options(**servers, subscribe=source, startingOffsets="earliest").load()
    counts = rows.groupBy("key").agg(f.count("*").cast("string").cast("binary").alias("value"))
    if how == "stream":
        writer = counts.writeStream.format("penstock").options(**servers, topic=target, checkpointLocation=checkpoint)
        writer.outputMode("complete").trigger(availableNow=True).start().awaitTermination()
    else:
        counts.write.format("penstock").options(**servers, topic=target).mode("append").save()
    hosts = spark.range(4, numPartitions=4).mapInArrow(_worker_paths, "path string").distinct().collect()
    sys.stdout.write(f"ran on {spark.sparkContext.master} {[row.path for row in hosts]}\n")
    spark.stop()


def _worker_paths(batches):
    import os

    import pyarrow

    import penstock

    for _ in batches:
        path = f"{penstock.__file__} {os.getcwd()}"
        yield pyarrow.RecordBatch.from_pydict({"path": [path]})


if __name__ == "__main__":
    main(*sys.argv[1:])
