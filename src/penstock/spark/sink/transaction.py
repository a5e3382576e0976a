"""One task's transactional producer: initialised, begun, committed or aborted, and kept for the task's next batch.

Called by exactly_once.py. What librdkafka says about a transaction is of three kinds: retriable (the same call again),
abortable (this transaction is lost), fatal (this producer is lost). Init and commit are retried until the deadline; the
rest fails the task, and the next attempt finds out what became of it.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaException

from penstock.spark.errors import SparkFailure
from penstock.spark.sink.failures import Fenced, WriteFailed, is_fatal
from penstock.spark.sink.marker import Marker, MarkerTopic, partition_of
from penstock.spark.sink.producing import RowProducer

if TYPE_CHECKING:
    from penstock.spark.options import WriteOptions

T = TypeVar("T")

KEPT_MAX = 16
ABORT_S = 10.0
# One call's wait, so that a deadline is met and failures of rows are seen in between.
_CALL_S = 5.0


class TransactionalProducer(RowProducer):
    def __init__(self, options: "WriteOptions", transactional_id: str) -> None:
        super().__init__(options, transactional_id)
        self.transactional_id = transactional_id
        self.last: Marker | None = None
        # Whether another life of the query had written parts of the batch of `last`.
        self.is_replay = False

    def init(self) -> None:
        """Shut out whoever had the id before, and wait until their transaction is decided."""
        self._until(self.client.init_transactions, "taking over the task's transactional id", self.timeout_s)

    def begin(self) -> None:
        self.guarded(self.client.begin_transaction, "beginning a transaction")

    def commit(self, topic: MarkerTopic, marker: Marker, since_ms: int | None = None) -> None:
        """The marker with the rows, all or nothing. A failure may mean that the outcome is not known here.

        `since_ms` becomes the marker's time: whoever looks for it from then on finds it, whatever this clock says.
        """
        partition, timestamp = partition_of(marker.query), since_ms or 0
        try:
            self.guarded(
                lambda: self.client.produce(topic.name, marker.value, marker.key, partition, timestamp=timestamp)
            )
        except BufferError:
            self._wait_and_send(topic.name, marker.value, marker.key, partition, timestamp=timestamp)
        # By itself, so that what is long is the writing and not the commit, whose deadline is for silence.
        self.flush()
        self._until(self.client.commit_transaction, "committing", self.timeout_s)

    def guarded(self, call: Callable[[], T], doing: str = "writing") -> T:
        try:
            return super().guarded(call, doing)
        except WriteFailed as failed:
            raise self.told_why(failed) from None

    def abandon(self) -> None:
        """End the transaction now if that can be had: readers need not wait for its time-out then."""
        with suppress(KafkaException, SystemError):
            self.client.abort_transaction(ABORT_S)
        self.drop()

    def told_why(self, failed: SparkFailure) -> SparkFailure:
        """A producer beyond repair only says so when it is given rows; why, it says when it is to abort."""
        if not isinstance(failed, WriteFailed):
            return failed
        try:
            self.client.abort_transaction(ABORT_S)
        except KafkaException as raised:
            return self.failure(raised.args[0], "writing") if is_fatal(raised.args[0]) else failed
        except SystemError:
            return failed
        return failed

    def _until(self, call: Callable[[float], object], doing: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                call(max(0.1, min(_CALL_S, deadline - time.monotonic())))
                return
            except KafkaException as raised:
                error = raised.args[0]
                self.hear()
                # A row that was refused says more than the transaction that cannot be committed for it.
                if not is_fatal(error):
                    self.raise_failed()
                if self.last is None and self.is_shut_out:
                    # Whoever was never let in need not wait to be.
                    raise WriteFailed(
                        f"the brokers at {self.brokers} did not admit us while {doing}: {self.last_words}"
                    ) from None
                if not error.retriable() or time.monotonic() >= deadline:
                    raise self.failure(error, doing) from None
            except SystemError as confused:
                raise self.told_why(self.lost(confused, doing)) from None


# Workers live on between batches. By process too: a client that a fork brought along has no threads.
_kept: OrderedDict[tuple[int, str, frozenset[tuple[str, str]]], TransactionalProducer] = OrderedDict()


def take_kept(options: "WriteOptions", transactional_id: str) -> TransactionalProducer | None:
    """The producer that this worker kept of the task, if any; it is no longer kept."""
    return _kept.pop(_key(options, transactional_id), None)


def keep(options: "WriteOptions", producer: TransactionalProducer, last: Marker, is_replay: bool) -> None:
    """For the task's next batch, or for this one again. Only with nothing open; `last` is what stands."""
    producer.last, producer.is_replay = last, is_replay
    _kept[_key(options, producer.transactional_id)] = producer
    while len(_kept) > KEPT_MAX:
        _kept.popitem(last=False)[1].drop()


def open_producer(options: "WriteOptions", transactional_id: str) -> TransactionalProducer:
    producer = TransactionalProducer(options, transactional_id)
    try:
        producer.init()
    except Fenced:
        # Two attempts at the task start together: the other was later, so it goes on.
        producer.drop()
        raise
    return producer


def _key(options: "WriteOptions", transactional_id: str) -> tuple[int, str, frozenset[tuple[str, str]]]:
    return os.getpid(), transactional_id, frozenset(options.librdkafka.items())
