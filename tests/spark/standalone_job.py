"""The job that test_standalone submits: rows of a topic, counted per key, into another topic.

    spark-submit --master … standalone_job.py BOOTSTRAP FROM TO

It is what a user would write: nothing here knows about a master or about PYTHONPATH.
"""

import sys

from pyspark.sql import functions as f

from penstock.spark import build_session


def main(bootstrap: str, source: str, target: str) -> None:
    spark = build_session("standalone-batch", None, {"spark.sql.shuffle.partitions": "2"})
    servers = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.read.format("penstock").options(**servers, subscribe=source).load()
    counts = rows.groupBy("key").agg(f.count("*").cast("string").cast("binary").alias("value"))
    counts.write.format("penstock").options(**servers, topic=target).mode("append").save()
    sys.stdout.write(f"ran on {spark.sparkContext.master}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
