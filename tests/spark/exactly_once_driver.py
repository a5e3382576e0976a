"""A driver that copies one topic into another, and into a Delta table, for test_exactly_once.py to kill.

    exactly_once_driver.py BOOTSTRAP SOURCE TARGET TABLE CHECKPOINT

Says `ready` when Spark is up, begins when it is told how many rows a batch may have, and says `done` when all there was
is written. Whoever starts it has the next one standing by when it kills this one: most of a driver's life is the start
of its JVM.
"""

import sys

from penstock.spark.session import build_session
from penstock.spark.tables import open_sink


def main() -> None:
    bootstrap, source, target, table, checkpoint = sys.argv[1:]
    spark = build_session("exactly-once", "local[2]")
    # Two workers up, and the classes of a Python source and sink loaded.
    spark.range(2).repartition(2).rdd.mapPartitions(lambda rows: rows).count()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    rows_per_batch = int(sys.stdin.readline())
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows_per_batch))
        .option("commit.group.id", "none")
        .load()
    )
    to_topic = (
        rows.select("key", "value")
        .writeStream.trigger(availableNow=True)
        .format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    sink = open_sink("delta", {"path": table}, "exactly-once")
    stored = rows.select("key", "value").writeStream.trigger(availableNow=True)
    to_table = stored.foreachBatch(sink.write_batch).option("checkpointLocation", f"{checkpoint}-table").start()
    to_topic.awaitTermination()
    to_table.awaitTermination()
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
