"""A batch read: offsets resolved once, on the driver, and cut into tasks.

Called by Spark through source.py: partitions() in the driver, read() in the workers.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.model import TopicPartition
from penstock.spark.bounds import EARLIEST_OFFSET, LATEST_OFFSET, Bound
from penstock.spark.connections import cluster_for, drop_cluster
from penstock.spark.data_loss import report_losses
from penstock.spark.errors import BadOption, told_plainly
from penstock.spark.planning import OffsetRange, cut_ranges
from penstock.spark.reading import ReadPartition, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.fetching import Cluster
    from penstock.spark.options import ReadOptions


class BatchReader(DataSourceReader):
    def __init__(self, options: "ReadOptions") -> None:
        self._options = options

    @told_plainly()
    def partitions(self) -> list[InputPartition]:
        options = self._options
        try:
            ranges = resolve_ranges(options, cluster_for(options.connection))
        except Exception:
            drop_cluster(options.connection)
            raise
        pieces = cut_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        # Of no partitions Spark would make one of its own, which says nothing of what to read.
        return [ReadPartition(piece) for piece in pieces] or [ReadPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, partition)


def resolve_ranges(options: "ReadOptions", cluster: "Cluster") -> list[OffsetRange]:
    """What is to be read of each partition; what the log no longer has, or does not have yet, is a loss."""
    found = options.subscription.find(cluster)
    if found.missing:
        raise BadOption(f"{', '.join(found.missing)} is not there: nothing of {options.subscription} was read")
    partitions = sorted(found.partitions)
    if not partitions:
        return []
    starts = options.start.resolve(cluster, partitions, options.isolation, options.unmatched)
    # An end that lies in the future is the end there is now.
    ends = options.end.resolve(cluster, partitions, options.isolation, "latest")
    if any(bound.each is not None and not bound.is_time for bound in (options.start, options.end)):
        _fit(options, cluster, starts, ends)
    for at in partitions:
        if starts[at] > ends[at]:
            raise BadOption(
                f"{at} would start at offset {starts[at]} and end at {ends[at]}: the start lies behind the end"
            )
    return [OffsetRange(at, found.topic_ids.get(at.topic), starts[at], ends[at]) for at in partitions]


def _fit(
    options: "ReadOptions", cluster: "Cluster", starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> None:
    """Offsets that somebody wrote down against those the log has."""
    first = cluster.list_offsets(dict.fromkeys(starts, EARLIEST_OFFSET), options.isolation)
    # Up to the very end: what an open transaction holds back is there, and the fetcher waits for it.
    last = cluster.list_offsets(dict.fromkeys(starts, LATEST_OFFSET), "read_uncommitted")
    losses: list[str] = []
    for at, start in starts.items():
        earliest, latest, end = first[at][0], last[at][0], ends[at]
        if _is_open(options.end, at) and end < start <= latest:
            # It starts in a transaction that is open: there is nothing to read yet.
            ends[at] = start
            continue
        if start > end >= earliest:
            # A mistake of whoever wrote it, and no loss.
            continue
        if start < earliest:
            losses.append(f"{at} begins at offset {earliest}; offsets {start} to {min(earliest, end) - 1} are gone")
        if end > latest:
            losses.append(f"{at} ends at offset {latest}; offsets {max(start, latest)} to {end - 1} are not there")
        starts[at] = max(start, earliest)
        ends[at] = max(min(end, latest), starts[at])
    report_losses(losses, options.fail_on_data_loss)


def _is_open(end: Bound, at: TopicPartition) -> bool:
    """Whether the end is whatever can be read now, and no number that somebody wrote down."""
    return not end.is_time and (end.everywhere if end.each is None else end.each[at]) == LATEST_OFFSET
