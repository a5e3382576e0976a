"""Rows into one of librdkafka's producers, fast, and the first thing that went wrong.

Called by exactly_once.py and at_least_once.py, in Spark's Python workers.
Laws:
- No Python is run for a row that was delivered: reports come for failures only.
- A callback stores and calls nothing: the client calls it with an exception pending once it is fenced, and whatever is
  called then fails for that reason.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.spark.errors import BadOption, SparkFailure
from penstock.spark.sink.columns import RowLists
from penstock.spark.sink.failures import WriteFailed, failure, refusal
from penstock.spark.sink.producer_config import delivery_timeout_ms, producer_config

if TYPE_CHECKING:
    from penstock.spark.options import WriteOptions

log = logging.getLogger(__name__)

T = TypeVar("T")
_Failed = tuple[tuple[KafkaError, Message], "_Failed | None"]
_GIVEN_UP = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})

# How long a call into the client waits before we look again at what has failed meanwhile.
STEP_S = 1.0


class RowProducer:
    def __init__(self, options: "WriteOptions", transactional_id: str | None = None) -> None:
        self.brokers = options.librdkafka["bootstrap.servers"]
        self.timeout_s = delivery_timeout_ms(options) / 1000
        # A list in the form of pairs, the last first: putting one more before it calls nothing.
        self._failed: _Failed | None = None
        # The commit of a transaction fails if rows were given up, and says why.
        self._is_transactional = transactional_id is not None
        self._last_words: KafkaError | None = None
        config: dict[str, Any] = dict(producer_config(options, transactional_id))
        config |= {"on_delivery": self._on_delivery, "error_cb": self._on_error, "delivery.report.only.error": True}
        config["logger"] = log
        try:
            self.client = Producer(config)
        except (KafkaException, TypeError, ValueError) as refused:
            raise BadOption(f"the producer refuses its settings: {_sentence(refused)}") from None

    def send(self, rows: RowLists) -> None:
        """Queue a batch of rows. Where the queue is full, wait for room."""
        topic, produce = rows.topic, self.client.produce
        keys = repeat(None) if rows.keys is None else rows.keys
        if topic is not None and rows.partitions is rows.timestamps_ms is rows.headers is None:
            # Nothing more than this for each row: the loop is most of what a row costs.
            for value, key in zip(rows.values, keys, strict=False):
                try:
                    produce(topic, value, key)
                except BufferError:
                    self._wait_and_send(topic, value, key)
                except KafkaException as refused:
                    raise self._refused(refused, topic, None, value, key) from None
        else:
            self._send_with_all(rows)
        self.serve(0)

    def serve(self, timeout_s: float) -> None:
        """Let the client tell what has failed."""
        self.guarded(lambda: self.client.poll(timeout_s))
        self.raise_failed()

    def flush(self) -> None:
        """Wait until all that was queued is acknowledged. Ends: a record that is too late fails by itself."""
        while self.guarded(lambda: self.client.flush(STEP_S)):
            self.raise_failed()
        self.raise_failed()

    def raise_failed(self) -> None:
        """A row that was refused. Rows that were given up because of it say nothing, but must not be lost."""
        given_up = None
        failed = self._failed
        while failed is not None:
            (error, message), failed = failed
            if error.name() in _GIVEN_UP:
                given_up = error
                continue
            size = len(message.value() or b"") + len(message.key() or b"")
            raise refusal(
                error, message.topic() or "", message.partition(), size, self.brokers, self.timeout_s, self.last_words
            )
        if given_up is not None and not self._is_transactional:
            raise self.failure(given_up, "writing")

    def hear(self) -> None:
        """Let the client say what it knows of its brokers: it does so only while it is waited for."""
        with suppress(KafkaException, SystemError):
            self.client.poll(0)

    @property
    def last_words(self) -> str | None:
        return None if self._last_words is None else self._last_words.str()

    @property
    def is_shut_out(self) -> bool:
        """Whether the last that was heard is that a name or a password is wrong."""
        return self._last_words is not None and self._last_words.name() == "_AUTHENTICATION"

    def guarded(self, call: Callable[[], T], doing: str = "writing") -> T:
        """What librdkafka raises, as one of ours."""
        try:
            return call()
        except KafkaException as raised:
            raise self.failure(raised.args[0], doing) from None
        except SystemError as confused:
            raise self.lost(confused, doing) from None

    def failure(self, error: KafkaError, doing: str) -> SparkFailure:
        return failure(error, doing, self.brokers, self.timeout_s, self.last_words)

    def lost(self, confused: SystemError, doing: str) -> SparkFailure:
        """See the second law: the reason was in the exception that was pending, which Python may have dropped."""
        pending = confused.__cause__
        if isinstance(pending, KafkaException):
            return self.failure(pending.args[0], doing)
        return WriteFailed(f"{doing} failed: the client is beyond repair, and does not say why")

    def drop(self) -> None:
        """Forget what is queued and end the client. Its callbacks lead back to us: without this it would live on."""
        self.client.purge()
        del self.client

    def _send_with_all(self, rows: RowLists) -> None:
        count = len(rows.values)
        topics = repeat(rows.topic, count) if rows.topics is None else rows.topics
        keys = repeat(None, count) if rows.keys is None else rows.keys
        partitions = repeat(-1, count) if rows.partitions is None else rows.partitions
        timestamps = repeat(0, count) if rows.timestamps_ms is None else rows.timestamps_ms
        headers = repeat(None, count) if rows.headers is None else rows.headers
        produce = self.client.produce
        for topic, value, key, partition, timestamp, named in zip(
            topics, rows.values, keys, partitions, timestamps, headers, strict=False
        ):
            assert topic is not None
            try:
                produce(topic, value, key, partition, timestamp=timestamp, headers=named)
            except BufferError:
                self._wait_and_send(topic, value, key, partition, timestamp=timestamp, headers=named)
            except KafkaException as refused:
                raise self._refused(refused, topic, partition, value, key) from None

    def _wait_and_send(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int = -1, **rest: Any
    ) -> None:
        """Room comes by delivery or by records that are given up, so this ends."""
        while True:
            self.serve(0.1)
            try:
                self.client.produce(topic, value, key, partition, **rest)
                return
            except BufferError:
                continue
            except KafkaException as refused:
                raise self._refused(refused, topic, partition, value, key) from None

    def _refused(
        self, raised: KafkaException, topic: str, partition: int | None, value: bytes | None, key: bytes | None
    ) -> SparkFailure:
        size = len(value or b"") + len(key or b"")
        return refusal(raised.args[0], topic, partition, size, self.brokers, self.timeout_s, self.last_words)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = ((error, message), self._failed)

    def _on_error(self, error: KafkaError) -> None:
        self._last_words = error


def _sentence(raised: Exception) -> str:
    first = raised.args[0] if raised.args else raised
    return first.str() if isinstance(first, KafkaError) else str(first)
