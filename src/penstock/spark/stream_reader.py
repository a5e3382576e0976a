"""A streaming read: where it starts, where the next batch ends, which tasks read it.

Called by Spark through source.py: everything but read() in one long-lived Python process on the driver, read() in the
workers, on another instance. The arithmetic is stream_planning's; here the cluster is asked and Spark answered.
Laws:
- latestOffset gives back the very text it was given where nothing is to be read, or empty batches would spin.
- An idle query polls every 11 ms or so; the cluster is asked once in latestOffsetCacheMs.
- No loss is reported on the strength of one look at the cluster: it is looked at again, fetchOffset.numRetries times,
  and for GONE_AFTER_S where a whole topic is not there.
"""

import logging
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.model import TopicPartition
from penstock.spark.bounds import EARLIEST_OFFSET, LATEST_OFFSET
from penstock.spark.connections import cluster_for, drop_cluster
from penstock.spark.data_loss import report_losses
from penstock.spark.errors import BadOption, told_plainly
from penstock.spark.group_client import LibrdkafkaGroups
from penstock.spark.offsets import Json, Position
from penstock.spark.planning import cut_ranges
from penstock.spark.progress_group import ProgressGroup
from penstock.spark.reading import ReadPartition, read_partition
from penstock.spark.stream_looking import checked_start, look, topics_of, unread, without_topic
from penstock.spark.stream_planning import Step, View, next_step, plan_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.fetching import Cluster
    from penstock.spark.options import ReadOptions

log = logging.getLogger("penstock.spark")

# How often a topic that is not there is looked for before it counts as deleted.
DOUBTS = 10


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: "ReadOptions") -> None:
        # Plain data only: Spark pickles the instance that reads.
        self._options = options
        self._view: View | None = None
        self._missing: tuple[str, ...] = ()
        self._seen_at = 0.0
        self._is_frozen = False
        # Until a batch was planned, no task can have announced the query.
        self._is_new = False
        self._last_batch_at = float("-inf")
        self._progress: ProgressGroup | None = None
        self._token = uuid4().hex
        self._reported: set[str] = set()

    @told_plainly()
    def initialOffset(self) -> Json:
        options = self._options
        view = self._view if self._is_frozen and self._view is not None else self._look()
        if self._missing:
            raise BadOption(f"{', '.join(self._missing)} is not there: nothing of {options.subscription} was read")
        cluster = self._cluster()
        offsets = options.start.resolve(cluster, sorted(view.latest), options.isolation, options.unmatched)
        each = options.start.each if options.start.each is not None and not options.start.is_time else {}
        # What the cluster was asked for is right as it is, and ends of a busy topic have moved since the look.
        written = {at: offset for at, offset in each.items() if offset >= 0}
        written = checked_start(cluster, written, options.fail_on_data_loss)
        # Records that came since the look are for the batches: under AvailableNow none may lie behind its end.
        offsets = {at: min(offset, view.latest[at]) for at, offset in offsets.items()} | written
        self._is_new = True
        return Position(offsets, view.topic_ids, query=self._token).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @told_plainly()
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        position = Position.from_json(start)
        step = self._step(position, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        self._tell_progress(position)
        if step.position is not position and self._must_wait(step, limit):
            return start
        if step.position is position:
            if self._is_frozen:
                # The query ends here, and this process with it.
                self._progress_group().settle()
            return start
        self._last_batch_at = time.monotonic()
        # A checkpoint of Spark's own source has no token yet.
        return replace(step.position, query=step.position.query or self._token).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        with told_plainly():
            self._look()
            self._is_frozen = True

    def reportLatestOffset(self) -> Json | None:
        return None if self._view is None else Position(self._view.latest).to_json()

    @told_plainly()
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        options = self._options
        ranges = plan_ranges(Position.from_json(start), Position.from_json(end))
        pieces = cut_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        if not pieces:
            return []
        progress = self._progress_group()
        token = self._token if progress.must_announce else None
        if token is not None:
            progress.announced(token)
        self._is_new = False
        # Whoever announces must read from where its partition stood.
        begins = {(one.at, one.start) for one in ranges}
        herald = next(index for index, piece in enumerate(pieces) if (piece.at, piece.start) in begins)
        return [ReadPartition(piece, token if index == herald else None) for index, piece in enumerate(pieces)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, partition)

    def commit(self, end: Json) -> None:
        """Comes late, and not for the last batch: latestOffset has told all that it could."""

    def stop(self) -> None:
        """Spark ends the process instead; nothing here needs more than that."""
        drop_cluster(self._options.connection)

    def _step(self, position: Position, most: int | None) -> Step:
        """The next step; with losses only where they were seen again and again."""
        from penstock.spark.fetching import GONE_AFTER_S, TopicGone

        options = self._options
        attempts = options.retries
        began = time.monotonic()
        self._look_if_old()
        self._warn_of_missing(position)
        while True:
            try:
                view = self._without_open_transactions(position)
                step = next_step(position, view, self._earliest, options.subscription.covers, most)
            except TopicGone as gone:
                # Deleted since the look. Planned again without it, it is a loss like any other.
                assert self._view is not None
                self._view = without_topic(self._view, gone.at.topic)
                continue
            news = [loss for loss in step.losses if loss not in self._reported]
            if not news:
                return step
            # A topic that is not there may be one that brokers which have just started do not know of yet.
            doubt_s = GONE_AFTER_S if topics_of(position.offsets) - topics_of(view.latest) else 0.0
            is_believed = attempts <= 0 and time.monotonic() - began >= doubt_s
            if self._is_frozen or is_believed:
                report_losses(news, options.fail_on_data_loss)
                self._reported.update(news)
                return step
            attempts -= 1
            time.sleep(max(options.retry_interval_s, doubt_s / DOUBTS))
            self._look()

    def _warn_of_missing(self, position: Position) -> None:
        """Topics that were never read: of a restarted query nobody else says that one is misspelt."""
        for name in unread(self._missing, position.offsets):
            if name not in self._reported:
                log.warning("%s is not there; it will be read from its beginning when it is", name)
                self._reported.add(name)

    def _must_wait(self, step: Step, limit: ReadLimit) -> bool:
        """Whether minOffsetsPerTrigger holds the batch back."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._is_frozen or isinstance(limit, ReadAllAvailable):
            return False
        is_overdue = time.monotonic() - self._last_batch_at >= self._options.max_trigger_delay_s
        return step.waiting < least and not is_overdue

    def _look_if_old(self) -> None:
        if self._view is None or (not self._is_frozen and time.monotonic() - self._seen_at >= self._options.cache_s):
            self._look()

    def _look(self) -> View:
        """Ask the cluster which partitions there are, and where they end."""
        options = self._options
        try:
            self._view, self._missing = look(self._cluster(), options.subscription, options.isolation)
        except Exception:
            drop_cluster(options.connection)
            raise
        self._seen_at = time.monotonic()
        return self._view

    def _without_open_transactions(self, position: Position) -> View:
        """A query may stand behind the last stable offset, or behind ends that were frozen: that is no loss."""
        assert self._view is not None
        view = self._view
        behind = {at: offset for at, offset in position.offsets.items() if offset > view.latest.get(at, offset)}
        if not behind:
            return view
        ends = self._cluster().list_offsets(dict.fromkeys(behind, LATEST_OFFSET), "read_uncommitted")
        stays = {at: offset for at, offset in behind.items() if offset <= ends[at][0]}
        return View(view.latest | stays, view.topic_ids)

    def _earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._cluster().list_offsets(dict.fromkeys(partitions, EARLIEST_OFFSET), self._options.isolation)
        return {at: offset for at, (offset, _) in answers.items()}

    def _cluster(self) -> "Cluster":
        return cluster_for(self._options.connection)

    def _tell_progress(self, position: Position) -> None:
        """Spark asks for the next batch when the one before is done, sink and all: what lies before is done."""
        assert self._view is not None
        latest = self._view.latest
        # Not of partitions that are gone or were made anew: a group would show nonsense for them.
        there = {at: offset for at, offset in position.offsets.items() if offset <= latest.get(at, -1)}
        progress = self._progress_group()
        if not self._is_new:
            progress.may_search()
        progress.told(Position(there, query=position.query))

    def _progress_group(self) -> ProgressGroup:
        if self._progress is None:
            options = self._options
            self._progress = ProgressGroup(lambda: LibrdkafkaGroups(options.librdkafka), options.commit_group)
        return self._progress
