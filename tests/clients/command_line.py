"""The command line in a process of its own, and what other clients do beside it, for the tests of its commands."""

import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import Result

from penstock.testing import EmbeddedBroker

COMMAND = (sys.executable, "-m", "penstock.cli.main")
DEADLINE_S = 60

Run = Callable[..., Result]


@contextmanager
def started(*arguments: str, **options: Any) -> Generator["subprocess.Popen[str]"]:
    """A command in a process of its own, killed if it outlives the test."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=DEADLINE_S)


def produce(broker: EmbeddedBroker, topic: str, count: int, partition: int = 0, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(
            topic, str(number), partition=partition, timestamp=timestamp_ms + number if timestamp_ms else 0
        )
    assert producer.flush(DEADLINE_S) == 0


def commit(broker: EmbeddedBroker, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()
