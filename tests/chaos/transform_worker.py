"""Consume, transform, produce, in one transaction each: the program that test_transactions_loop kills and freezes.

    python transform_worker.py BOOTSTRAP NAME [static]

It says on stdout each step, so that its killer may choose one, and how many partitions it owns. At any error it ends,
and whoever starts it again has it take over what it left: its transactional id is its name.
"""

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

INPUT = "input"
OUTPUT = "output"
GROUP = "transformers"
BATCH = 7  # no divisor of anything, so that transactions end in odd places
CALL_S = 20
# Whoever freezes between its offsets and the commit holds them back from the others for so long.
TRANSACTION_MS = 3000
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}
OWNS = "owns "
STEPS = ("begun", "sent", "offsets", "committed")


def transformed(value: bytes) -> bytes:
    return b"<" + value + b">"


def say(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


def main(bootstrap: str, name: str, *, is_static: bool) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "session.timeout.ms": 1000,
        "heartbeat.interval.ms": 100,
        "fetch.wait.max.ms": 50,
        **QUICK,
    }
    if is_static:
        settings["group.instance.id"] = name
    consumer = Consumer(settings)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": TRANSACTION_MS,
            "linger.ms": 0,
            **QUICK,
        }
    )
    producer.init_transactions(CALL_S)
    # Of the assignment that the messages come by: one that the group has dropped meanwhile no longer knows its own
    # name, and offsets of nobody in particular are taken from whoever sends them.
    as_member: list[Any] = []

    def assigned(_: Consumer, owned: list[TopicPartition]) -> None:
        as_member[:] = [consumer.consumer_group_metadata()]
        # At numbers, not at what auto.offset.reset looks up: librdkafka (2.16) goes on looking that up when the
        # partition is revoked meanwhile, reads from there, and when the partition comes again it delivers what it read
        # so, and then the same once more from the committed offset.
        reached = consumer.committed(owned, CALL_S)
        for partition in reached:
            partition.offset = max(partition.offset, 0)
        consumer.assign(reached)
        say(f"{OWNS}{len(owned)}")

    consumer.subscribe([INPUT], on_assign=assigned)
    while True:
        messages = consumer.consume(BATCH, 0.1)
        reached: dict[int, int] = {}
        steps = iter(STEPS)
        for message in messages:
            error = message.error()
            if error is not None:
                if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN:
                    continue
                raise KafkaException(error)
            if not reached:
                producer.begin_transaction()
                say(next(steps))
            partition = message.partition() or 0
            producer.produce(OUTPUT, transformed(message.value() or b""), partition=partition)
            reached[partition] = (message.offset() or 0) + 1
        if not reached:
            continue
        producer.flush(CALL_S)
        say(next(steps))
        offsets = [TopicPartition(INPUT, partition, offset) for partition, offset in reached.items()]
        producer.send_offsets_to_transaction(offsets, as_member[0], CALL_S)
        say(next(steps))
        producer.commit_transaction(CALL_S)
        say(next(steps))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], is_static="static" in sys.argv[3:])
