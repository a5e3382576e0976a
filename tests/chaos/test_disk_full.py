"""The disk is full: producers are told, consumers go on, and with room again nothing acknowledged is missing."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import EmbeddedBroker

DISK_BYTES = 4 << 20
FILLER_BYTES = 1 << 20
VALUE_BYTES = 50_000
DEADLINE_S = 30

SETTINGS = {"log.segment.bytes": "300000", "num.partitions": "1", "auto.create.topics.enable": "false"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk of our own takes root and mount(8)")
    mounted = tmp_path / "disk"
    mounted.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mounted)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.strip()}")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def create(broker: EmbeddedBroker, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(DEADLINE_S)


def produce(broker: EmbeddedBroker, topic: str, first: int, count: int) -> tuple[list[int], list[KafkaError]]:
    """Send one message after the other, without a retry; the numbers that were acknowledged, and the errors."""
    acked: list[int] = []
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acked.append(int(message.key() or b""))
        else:
            errors.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "retries": 0, "linger.ms": 0})
    for number in range(first, first + count):
        producer.produce(topic, b"x" * VALUE_BYTES, str(number).encode(), on_delivery=told)
        assert producer.flush(DEADLINE_S) == 0
    return acked, errors


def consume(broker: EmbeddedBroker, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{len(found)} of {count} messages, then silence"
        assert message.error() is None
        assert len(message.value() or b"") == VALUE_BYTES
        found.append(int(message.key() or b""))
    consumer.close()
    return found


def check_metadata(data_dir: Path) -> None:
    with sqlite3.connect(data_dir / "metadata.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_full_disk_costs_nothing_that_was_acknowledged(small_disk: Path, is_killed: bool) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(FILLER_BYTES))
    broker = EmbeddedBroker(small_disk / "data", SETTINGS).start()
    try:
        create(broker, "orders", "quiet")
        quiet, _ = produce(broker, "quiet", 0, 3)
        acked, errors = produce(broker, "orders", 0, DISK_BYTES // VALUE_BYTES)
        assert len(acked) > 10, "there was room at first"
        assert {error.code() for error in errors} == {KafkaError.KAFKA_STORAGE_ERROR}
        assert consume(broker, "orders", len(acked)) == acked, "consumers go on"
        assert consume(broker, "quiet", len(quiet)) == quiet
        more, errors = produce(broker, "orders", 1000, 2)
        assert (more, {error.code() for error in errors}) == ([], {KafkaError.KAFKA_STORAGE_ERROR})
        # Whether there is room for a row of metadata is the disk's affair; an answer is due either way.
        is_late_made = True
        try:
            create(broker, "late")
        except KafkaException:
            is_late_made = False
        if is_killed:
            broker.crash()
        else:
            broker.stop()
        check_metadata(small_disk / "data")

        filler.unlink()
        broker.start()
        assert consume(broker, "orders", len(acked)) == acked
        assert consume(broker, "quiet", len(quiet)) == quiet
        again, errors = produce(broker, "orders", 2000, 3)
        assert (again, errors) == ([2000, 2001, 2002], [])
        assert consume(broker, "orders", len(acked) + 3) == acked + again
        if not is_late_made:
            create(broker, "late")
        assert produce(broker, "late", 0, 1) == ([0], [])
    finally:
        broker.stop()
    check_metadata(small_disk / "data")
