"""Records that cannot be decoded, sent to another topic as they were, with the reason in their headers.

Called by row_decoder. Laws:
- Nothing is lost: a task ends only after `flush` saw every dead letter acknowledged by all in-sync replicas; otherwise
  it fails, and its retry sends them again.
- So a dead letter may arrive twice. The headers penstock.dead.topic, .partition and .offset name the record it is.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.spark.errors import SparkFailure

FLUSH_S = 120.0
_REASON = "penstock.dead.reason"


class DeadLetterFailed(SparkFailure):
    """A dead letter that no broker acknowledged."""


class DeadRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class DeadLetters:
    """Opened by the first bad record: most tasks never have one."""

    def __init__(self, topic: str, librdkafka: Mapping[str, str], flush_s: float = FLUSH_S) -> None:
        self._topic = topic
        self._flush_s = flush_s
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                # A record the broker once took must not be refused here for its added headers.
                "message.max.bytes": 1_000_000_000,
                "linger.ms": 20,
                **librdkafka,
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": int(flush_s * 1000),
            }
        )

    def send(self, record: DeadRecord, reason: str, kind: str) -> None:
        timestamp_ms = record.timestamp_ms or 0
        headers: list[tuple[str, bytes | None]] = [
            *record.headers,
            (_REASON, reason.encode(errors="replace")),
            ("penstock.dead.topic", record.topic.encode()),
            ("penstock.dead.partition", str(record.partition).encode()),
            ("penstock.dead.offset", str(record.offset).encode()),
            ("penstock.dead.timestamp", str(timestamp_ms).encode()),
            ("penstock.dead.format", kind.encode()),
        ]
        arguments: dict[str, Any] = {
            "key": record.key,
            "value": record.value,
            "headers": headers,
            "on_delivery": self._delivered,
        }
        # Brokers refuse a time too far ahead of theirs (message.timestamp.after.max.ms), and the letter would never be
        # taken: such a one stands in the header only.
        if 0 < timestamp_ms <= time.time() * 1000:
            arguments["timestamp"] = timestamp_ms
        while True:
            try:
                self._producer.produce(self._topic, **arguments)
                break
            except BufferError:
                # The queue is full: wait for acknowledgements, not for memory. A dead broker ends it by time-out.
                self._producer.poll(0.1)
                self._check()
            except KafkaException as error:
                raise self._failure(error.args[0]) from error
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(self._flush_s + 5)
        self._check()
        if left:
            raise DeadLetterFailed(
                f"{left} dead letters were not acknowledged by {self._topic} in {self._flush_s:.0f} s"
            )

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failure(self._failed)

    def _failure(self, error: Any) -> DeadLetterFailed:
        why = error.str() if isinstance(error, KafkaError) else str(error)
        return DeadLetterFailed(
            f"a dead letter could not be written to {self._topic}: {why}; the records stay unread until it can"
        )
