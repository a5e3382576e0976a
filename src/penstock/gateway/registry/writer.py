"""Writes to the schemas topic, one writer among all gateways at any moment, by Kafka's own fencing.

Called by registry.py, one call at a time, in a thread of its own: everything here waits for the cluster. Every gateway
uses the same transactional id. Whoever claims it (init_transactions) ends the transaction of the one before and takes
away its right to write, so that a decision reaches the log only if nobody else has written since it was made. No leader
is elected and nothing is forwarded.
Laws:
- All records of a write are committed together or not at all, also when this process is killed in between.
- A write whose fate is unknown says so (`may_be_done`); after the next claim it is decided, and the log tells how.
"""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.gateway.registry.deciding import Written
from penstock.gateway.registry.topic import MESSAGE_BYTES_MAX

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 15_000
WRITE_TIMEOUT_S = 10.0
CLAIM_TIMEOUT_S = 10.0
ABORT_TIMEOUT_S = 2.0


class WriteFailed(Exception):
    """Another writer has taken over, or the cluster did not answer."""

    def __init__(self, reason: str, *, is_fenced: bool = False, may_be_done: bool = False) -> None:
        super().__init__(reason)
        self.is_fenced = is_fenced
        self.may_be_done = may_be_done


class Writer:
    def __init__(self, bootstrap: str, properties: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._settings = {
            **properties,
            "bootstrap.servers": bootstrap,
            "client.id": "penstock-registry",
            "transactional.id": f"penstock-registry-{topic}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "message.timeout.ms": int(WRITE_TIMEOUT_S * 1000),
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "linger.ms": 0,
        }
        self._producer: Any = None

    @property
    def has_claim(self) -> bool:
        """Until a write fails: that somebody else has taken over shows only then."""
        return self._producer is not None

    def claim(self) -> None:
        """From here on no other gateway can write; what others had under way is committed or aborted."""
        from confluent_kafka import KafkaException, Producer

        if self._producer is not None:
            return
        producer: Any = Producer(self._settings, logger=log)
        try:
            producer.init_transactions(CLAIM_TIMEOUT_S)
        except KafkaException as error:
            raise WriteFailed(f"no right to write could be had: {error.args[0].str()}") from None
        self._producer = producer

    def write(self, records: Sequence[Written]) -> None:
        """All of them, committed. Raises WriteFailed."""
        from confluent_kafka import KafkaException

        assert self._producer is not None, "claim() comes first"
        producer = self._producer
        may_be_done = False
        try:
            producer.begin_transaction()
            for record in records:
                # Without callbacks: one that is called after a fatal error would run with that error raised.
                producer.produce(self._topic, record.value, record.key, partition=0)
            may_be_done = True
            producer.commit_transaction(WRITE_TIMEOUT_S)
        except KafkaException as error:
            reason = self._reason(error.args[0])
            self.give_up()
            raise WriteFailed(reason.str(), is_fenced=_is_fenced(reason), may_be_done=may_be_done) from None

    def _reason(self, error: Any) -> Any:
        """Records of a writer that was fenced may fail with something else; the transaction tells why."""
        from confluent_kafka import KafkaException

        try:
            self._producer.abort_transaction(ABORT_TIMEOUT_S)
        except KafkaException as told:
            if told.args[0].fatal():
                return told.args[0]
        return error

    def give_up(self) -> None:
        """Without an abort: the next claim, ours or another's, aborts what is open."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                producer.purge()


def _is_fenced(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return error is not None and error.code() in (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        # Brokers since 2.7 say it with a code of their own, which librdkafka has under another name.
        KafkaError.PRODUCER_FENCED if hasattr(KafkaError, "PRODUCER_FENCED") else 90,
    )
