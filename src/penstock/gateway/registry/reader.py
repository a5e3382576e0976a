"""Follows the schemas topic from its beginning, in a thread of its own, and hands over what it reads in batches.

Made by registry.py, once more whenever one has ended. Laws:
- Only what is committed is handed over, each record once, in the order of the log.
- A batch is handed over only after the one before has been taken in: what waits in memory is one batch.
- A cluster that is away is waited for. A topic that is gone, or was made anew, ends the reader when look() finds it:
  its successor begins with nothing, so that nobody goes on with schemas that are no longer there.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from penstock.schemas.stored.records import Read, read_record

log = logging.getLogger(__name__)

BATCH_RECORDS = 100
POLL_S = 0.5
ASK_TIMEOUT_S = 5.0
# A partition whose leader was just lost has another one soon.
LEADER_TRIES = 20
LEADER_TRY_S = 0.1


class Found(NamedTuple):
    offset: int
    fingerprint: int
    """Of the record's bytes, to recognise it by; see fingerprint_of."""
    read: Read


class Batch(NamedTuple):
    found: list[Found]
    position: int
    """Everything before it has been handed over."""


class ReaderEnded(Exception):
    """Why it cannot go on."""


class Reader:
    def __init__(
        self, bootstrap: str, properties: Mapping[str, str], topic: str, take: Callable[[Batch], None]
    ) -> None:
        """`take` is called in the reader's thread and returns when the batch has been applied."""
        from confluent_kafka.admin import AdminClient

        self._topic = topic
        self._take = take
        self._stopping = threading.Event()
        self._settings = {
            **properties,
            "bootstrap.servers": bootstrap,
            "client.id": "penstock-registry",
            # Never joined and never committed: the position is the state itself.
            "group.id": "penstock-registry",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "check.crcs": True,
            # What was just written is to be read back soon, also where a broker does not wake us for a commit.
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 100,
            "topic.metadata.refresh.interval.ms": 10_000,
        }
        self._admin: Any = AdminClient(
            {**properties, "bootstrap.servers": bootstrap, "client.id": "penstock-registry"}, logger=log
        )
        self._identity = ""
        self._ended = ""
        self.load_until = -1
        """Where the topic ended when the reading began; known before anything is handed over."""

    def run(self) -> None:
        """Until stop(), or until it cannot go on: ReaderEnded says why."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer: Any = Consumer(self._settings, logger=log)
        try:
            self._identity = self._find_identity()
            start = self._first_offset(consumer)
            consumer.assign([TopicPartition(self._topic, 0, start)])
            while not self._stopping.is_set():
                # Asked for many, librdkafka waits until it has them: so wait for one, then take what is there.
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._hand_over([first, *consumer.consume(BATCH_RECORDS, 0)])
        except KafkaException as error:
            raise ReaderEnded(f"the topic {self._topic} cannot be read: {error.args[0].str()}") from None
        finally:
            consumer.close()
        if self._ended:
            raise ReaderEnded(self._ended)

    def look(self) -> int:
        """Where the committed part of the log ends now. Called from other threads. Raises ReaderEnded.

        Asked by an admin client: two threads in one consumer stop one another for good.
        """
        from confluent_kafka import KafkaError, KafkaException

        for tries_left in range(LEADER_TRIES, -1, -1):
            try:
                return self._look()
            except KafkaException as error:
                found = error.args[0]
                if found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._end(f"the topic {self._topic} is gone")
                if found.code() == KafkaError._TIMED_OUT or not tries_left or self._stopping.wait(LEADER_TRY_S):
                    raise ReaderEnded(f"the topic {self._topic} cannot be looked at: {found.str()}") from None
        raise AssertionError("unreachable")

    def _look(self) -> int:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec

        if self._find_identity() != self._identity:
            self._end(f"the topic {self._topic} was made anew")
        at = TopicPartition(self._topic, 0)
        asked: Any = self._admin.list_offsets(
            {at: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ASK_TIMEOUT_S
        )
        return int(asked[at].result().offset)

    def _find_identity(self) -> str:
        from confluent_kafka import TopicCollection

        asked: Any = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=ASK_TIMEOUT_S)
        return str(asked[self._topic].result().topic_id)

    def _end(self, reason: str) -> NoReturn:
        """Here, and in the reader's own thread."""
        self._ended = reason
        self._stopping.set()
        raise ReaderEnded(reason)

    def stop(self) -> None:
        self._stopping.set()

    def _first_offset(self, consumer: Any) -> int:
        from confluent_kafka import TopicPartition

        start, end = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=ASK_TIMEOUT_S)
        self.load_until = int(end)
        # An empty log has no record that would tell its position.
        self._take(Batch([], int(start)))
        return int(start)

    def _hand_over(self, messages: list[Any]) -> None:
        from confluent_kafka import KafkaError

        found: list[Found] = []
        position = -1
        for message in messages:
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                found.append(Found(message.offset(), fingerprint_of(key, value), read_record(key, value)))
                position = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                # Markers and what was aborted lie behind the last record; they are passed now.
                position = max(position, message.offset())
            elif error.code() in (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_PARTITION,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._AUTO_OFFSET_RESET,
                KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                if found:
                    self._take(Batch(found, position))
                raise ReaderEnded(f"the topic {self._topic} is gone or was made anew: {error.str()}")
        if position >= 0:
            self._take(Batch(found, position))


def fingerprint_of(key: bytes | None, value: bytes | None) -> int:
    """The same within one process, for the same bytes."""
    return hash((key, value))
