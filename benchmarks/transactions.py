"""What a transaction costs the broker: CPU of one message in a transaction of its own, against the message alone.

Both are measured in one run and in turn, so that the ratio is of this machine at this moment. Every producer has one
request under way at a time, and every message is on disk before it is acknowledged. Where there are several producers,
messages alone share the syncs of their one partition, while each transactional id writes to a log of its own.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness import RawConnection, RunningBroker, broker, create_topic
from penstock.records.record import Record, encode_batch
from penstock.wire.frame import request_frame
from penstock.wire.messages import decode_response, encode_request

TOPIC = "bench"
ROUNDS = 7
MESSAGES = 1200  # of a round, all producers together
VALUE = b"x" * 100

PRODUCE, FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN = 0, 10, 22, 24, 26

# The coordinator is loading, not there yet, or writes the markers of the transaction before.
AGAIN = (14, 15, 16, 51)
AGAIN_AFTER_S = 0.001

Body = Callable[["Producer"], Mapping[str, Any]]


@dataclass
class Producer:
    """What a client knows of its id: where it stands with the broker."""

    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1

    def message(self) -> Mapping[str, Any]:
        batch = encode_batch(
            [Record(0, time.time_ns() // 1_000_000, None, VALUE, ())],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
            is_transactional=self.transactional_id is not None,
        )
        partition = {"index": 0, "records": bytes(batch)}
        return {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [{"name": TOPIC, "partition_data": [partition]}],
        }

    @property
    def who(self) -> Mapping[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }


@dataclass
class Exchange:
    """Producers, each on a connection of its own; a request of all is sent at once, and then the answers are read."""

    producers: list[Producer]
    connections: list[RawConnection]

    def call(self, api_key: int, version: int, body: Body, error: Callable[[Any], int]) -> list[Any]:
        """An answer for each producer; those told to come again do so, as a client does."""
        answers: dict[int, Any] = {}
        left = list(range(len(self.producers)))
        while left:
            for number in left:
                encoded = encode_request(api_key, version, body(self.producers[number]))
                self.connections[number].channel.sendall(request_frame(api_key, version, 1, "bench", encoded))
            for number in left:
                # Every version used here is flexible: a byte of tagged fields follows the correlation id.
                answers[number] = decode_response(api_key, version, self.connections[number].read_frame()[5:])
            left = [number for number in left if error(answers[number]) in AGAIN]
            if left:
                time.sleep(AGAIN_AFTER_S)
        assert all(error(answer) == 0 for answer in answers.values()), answers
        return [answers[number] for number in sorted(answers)]

    def produce(self, version: int) -> None:
        self.call(
            PRODUCE, version, Producer.message, lambda answer: answer.responses[0].partition_responses[0].error_code
        )


def one_message(producers: int) -> dict[str, Any]:
    """Broker CPU of a message alone and in a transaction, of version 2 (KIP-890) and of version 1."""
    with broker() as running:
        create_topic(running, TOPIC)
        alone, second, first = (_open(running, name, producers) for name in (None, "second", "first"))
        runs: dict[str, Callable[[], None]] = {
            "alone": lambda: alone.produce(12),
            "version_2": lambda: _version_2(second),
            "version_1": lambda: _version_1(first),
        }
        for warm in runs.values():
            _cpu_us(running, warm, producers)
        rounds = [{name: _cpu_us(running, run, producers) for name, run in runs.items()} for _ in range(ROUNDS)]
    result: dict[str, Any] = {f"broker_cpu_us_{name}": _median([each[name] for each in rounds]) for name in runs}
    for name in ("version_2", "version_1"):
        result[f"ratio_{name}"] = _median([each[name] / each["alone"] for each in rounds])
    result["rows"] = rounds
    return result


def _open(running: RunningBroker, name: str | None, count: int) -> Exchange:
    producers = [Producer(name and f"{name}-{number}") for number in range(count)]
    exchange = Exchange(producers, [running.connect() for _ in producers])
    if name is None:
        return exchange
    exchange.call(
        FIND_COORDINATOR,
        4,
        lambda producer: {"key_type": 1, "coordinator_keys": [producer.transactional_id]},
        lambda answer: answer.coordinators[0].error_code,
    )
    answers = exchange.call(
        INIT_PRODUCER_ID,
        4,
        lambda producer: {**producer.who, "transaction_timeout": 60_000},
        lambda answer: answer.error_code,
    )
    for producer, answer in zip(producers, answers, strict=True):
        producer.producer_id, producer.producer_epoch = answer.producer_id, answer.producer_epoch
        producer.sequence = 0
    return exchange


def _version_2(exchange: Exchange) -> None:
    """Producing adds the partition; the answer to the end brings the next epoch, whose sequence starts anew."""
    exchange.produce(12)
    for producer, answer in zip(exchange.producers, _end(exchange, 5), strict=True):
        producer.producer_id, producer.producer_epoch = answer.producer_id, answer.producer_epoch


def _version_1(exchange: Exchange) -> None:
    exchange.call(
        ADD_PARTITIONS,
        3,
        lambda producer: {
            **{f"v3_and_below_{name}": value for name, value in producer.who.items()},
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
        },
        lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    )
    exchange.produce(11)
    _end(exchange, 3)
    for producer in exchange.producers:
        producer.sequence += 1


def _end(exchange: Exchange, version: int) -> list[Any]:
    return exchange.call(
        END_TXN, version, lambda producer: {**producer.who, "committed": True}, lambda answer: answer.error_code
    )


def _cpu_us(running: RunningBroker, run: Callable[[], None], producers: int) -> float:
    """Of one message, in all threads of the broker."""
    before = running.cpu_s()
    for _ in range(MESSAGES // producers):
        run()
    return (running.cpu_s() - before) / MESSAGES * 1e6


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
