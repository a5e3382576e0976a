"""One task: a range of one partition, fetched, decoded into Arrow, handed to Spark.

Called by batch_reader.py and stream_reader.py, in Spark's Python workers.
Retention goes on while a query runs: records that were there when the batch was planned may be gone when it is read.
That is told apart from records that should be there and are not, and treated as failOnDataLoss says.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from penstock.spark.connections import cluster_for, drop_cluster
from penstock.spark.data_loss import report_losses
from penstock.spark.errors import told_plainly
from penstock.spark.group_client import LibrdkafkaGroups
from penstock.spark.planning import OffsetRange
from penstock.spark.progress_group import announce
from penstock.spark.query_name import label_of_this_task

if TYPE_CHECKING:
    from threading import Thread

    import pyarrow as pa

    from penstock.spark.fetching import OffsetGone
    from penstock.spark.options import ReadOptions

ANNOUNCE_DEADLINE_S = 5.0


class ReadPartition(InputPartition):
    """A range, and the query's token where the task is to announce it; without a range, there is nothing to read."""

    def __init__(self, range_: OffsetRange | None, token: str | None = None) -> None:
        super().__init__(None)
        self.range = range_
        self.token = token

    def __repr__(self) -> str:
        return f"ReadPartition({self.range})"


def read_partition(options: "ReadOptions", partition: InputPartition) -> "Iterator[pa.RecordBatch]":
    """The rows of a partition, as Arrow batches of the source's schema."""
    assert isinstance(partition, ReadPartition)
    if partition.range is None:
        return
    announcing = _announce(options, partition) if partition.token else None
    with told_plainly():
        try:
            yield from _decoded(options, partition.range)
        except Exception:
            # Whatever state it is in, the next task of this worker shall not inherit it.
            drop_cluster(options.connection)
            raise
    if announcing is not None:
        announcing.join(ANNOUNCE_DEADLINE_S)


def _decoded(options: "ReadOptions", wanted: OffsetRange) -> "Iterator[pa.RecordBatch]":
    from penstock.spark.formats import open_decoder

    decoder = open_decoder(options.formats)
    if decoder is None:
        yield from _raw(options, wanted, options.include_headers)
        return
    # A dead letter keeps the record's headers, so they may be read without becoming a column.
    for batch in _raw(options, wanted, options.formats.needs_headers):
        typed = decoder.decode(batch)
        if typed.num_rows:
            yield typed
    # Dead letters are safe before the task counts as done.
    decoder.flush()


def _raw(options: "ReadOptions", wanted: OffsetRange, has_headers: bool) -> "Iterator[pa.RecordBatch]":
    from penstock.spark.arrow import ArrowDecoder
    from penstock.spark.fetching import OffsetGone, PartitionFetcher, TopicGone

    cluster = cluster_for(options.connection)
    position = wanted.start
    while position < wanted.end:
        decoder = ArrowDecoder(
            wanted.at.topic, wanted.at.partition, position, wanted.end, options.isolation, has_headers=has_headers
        )
        fetcher = PartitionFetcher(
            cluster,
            wanted.at,
            wanted.topic_id,
            position,
            wanted.end,
            options.isolation,
            max_bytes=options.fetch_bytes,
            deadline_s=options.poll_timeout_s,
        )
        with closing(fetcher):
            try:
                for chunk in fetcher:
                    yield from decoder.feed(chunk)
                yield from decoder.finish()
                return
            except OffsetGone as gone:
                yield from decoder.finish()
                position = _behind_the_gap(options, wanted, gone)
            except TopicGone:
                yield from decoder.finish()
                report_losses([f"the topic of {wanted} was deleted while it was read"], options.fail_on_data_loss)
                return


def _behind_the_gap(options: "ReadOptions", wanted: OffsetRange, gone: "OffsetGone") -> int:
    """Where to go on when the broker no longer, or never, had the offset that was asked for."""
    if gone.wanted < gone.log_start:
        first = min(gone.log_start, wanted.end)
        report_losses(
            [
                f"{wanted.at} begins at offset {gone.log_start} now: of offsets {wanted.start} to {wanted.end - 1}, "
                f"{gone.wanted} to {first - 1} ({first - gone.wanted}) were removed before they were read"
            ],
            options.fail_on_data_loss,
        )
        return first
    # Not retention: what was there when the batch was planned has vanished from the end, and no wait brings it back.
    report_losses(
        [
            f"{wanted.at} ends at offset {gone.end}, but offsets up to {wanted.end - 1} were planned to be read: the "
            "partition lost records that were there"
        ],
        options.fail_on_data_loss,
    )
    return wanted.end


def _announce(options: "ReadOptions", partition: ReadPartition) -> "Thread | None":
    label = label_of_this_task()
    if label is None or partition.range is None or partition.token is None:
        return None
    return announce(
        LibrdkafkaGroups(options.librdkafka), label, partition.range.at, partition.range.start, partition.token
    )
