"""A driver that copies one topic into another, for test_exactly_once.py to kill.

    exactly_once_driver.py BOOTSTRAP SOURCE TARGET CHECKPOINT

Says `ready` when Spark is up, begins when it is told `go`, and says `done` when all there was is written. Whoever
starts it has the next one standing by when it kills this one: most of a driver's life is the start of its JVM.
"""

import sys

from penstock.spark.session import build_session

ROWS_PER_BATCH = 3000


def main() -> None:
    bootstrap, source, target, checkpoint = sys.argv[1:]
    spark = build_session("exactly-once", "local[2]")
    # Two workers up, and the classes of a Python source and sink loaded.
    spark.range(2).repartition(2).rdd.mapPartitions(lambda rows: rows).count()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    assert sys.stdin.readline() == "go\n"
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        .option("commit.group.id", "none")
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
