"""The client of everything that speaks Kafka's protocol: librdkafka, and raw requests where it would be the limit.

Run by driving.py. What it times starts when topics exist and connections stand. Acts: see ACTS at the end.
"""

import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import driver
import kafka_growth
import kafka_raw
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from job import STAMP_BYTES, Job, Outcome, payloads, schedule, time_is_left
from librdkafka_bulk import BulkProducer

DEADLINE_S = 120.0
POLL_S_MIN = 0.001  # librdkafka's poll counts whole milliseconds; less would spin on a core that the broker needs
READ_MAX = 10_000
WARM_UP = 20_000


def create(job: Job) -> driver.Work:
    def work() -> Outcome:
        make_topic(job)
        return Outcome(0)

    return work


def clear(job: Job) -> driver.Work:
    def work() -> Outcome:
        admin: Any = AdminClient({"bootstrap.servers": job.address})
        admin.delete_topics([job.topic])[job.topic].result(DEADLINE_S)
        return Outcome(0)

    return work


def make_topic(job: Job) -> None:
    """Until it is there: right after its start a cluster may still have too few brokers."""
    admin: Any = AdminClient({"bootstrap.servers": job.address})
    deadline = time.monotonic() + DEADLINE_S
    while True:
        topic = NewTopic(job.topic, job.partitions, job.replicas)
        try:
            admin.create_topics([topic])[job.topic].result(DEADLINE_S)
            return
        except KafkaException:
            if job.topic in admin.list_topics(timeout=DEADLINE_S).topics:
                return
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def produce(job: Job) -> driver.Work:
    """As many messages as the client can hand over."""
    settings = {
        "bootstrap.servers": job.address,
        "acks": job.acks,
        "compression.type": job.compression,
        "linger.ms": "5",
        "batch.num.messages": "10000",
        "queue.buffering.max.messages": "1000000",
        "log_level": "0",
    }
    producer = BulkProducer(settings, job.topic)
    values = payloads(job.size)
    producer.send(values, min(WARM_UP, job.count), job.partitions)
    keeps = job.act == "produce"  # a server that throws messages away cannot be asked for them
    before = written(job) if keeps else 0

    def verify(count: int) -> None:
        arrived = written(job) - before
        assert arrived >= count, f"{arrived} of {count} messages arrived"

    def work() -> Outcome:
        count = producer.send(values, job.count, job.partitions, time_is_left(job))
        return Outcome(count, count * job.size, verify=partial(verify, count) if keeps else None)

    return work


def written(job: Job) -> int:
    """How many messages the topic holds, as it says itself."""
    consumer = Consumer({"bootstrap.servers": job.address, "group.id": "bench-verify"})
    total = 0
    for partition in range(job.partitions):
        low, high = watermarks(consumer, job.topic, partition)
        total += high - low
    consumer.close()
    return total


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Asked again where librdkafka knows no leader yet: it does not wait for one itself."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            consumer.list_topics(topic, timeout=DEADLINE_S)


def latency(job: Job) -> driver.Work:
    """Acknowledgements at a fixed rate, each timed from when its message was due, not from when we got round to it."""
    settings = {"bootstrap.servers": job.address, "acks": job.acks, "linger.ms": 0}
    producer = Producer({**settings, "enable.idempotence": job.acks == "all"})
    producer.produce(job.topic, b"warm", partition=0)
    producer.flush(DEADLINE_S)
    filler = payloads(max(1, job.size - STAMP_BYTES), 1)[0]
    taken_ms: list[float] = []

    def on_delivery(due: float) -> Callable[[Any, Message], None]:
        def delivered(error: Any, _: Message) -> None:
            if error is None:
                taken_ms.append((time.monotonic() - due) * 1000)

        return delivered

    def work() -> Outcome:
        began = time.monotonic()
        for after_s, how_many in schedule(job.rate, job.count):
            due = began + after_s
            while (left := due - time.monotonic()) > 0:
                producer.poll(max(left, POLL_S_MIN))
            value, delivered = struct.pack(">d", due) + filler, on_delivery(due)
            for _ in range(how_many):
                producer.produce(job.topic, value, partition=0, on_delivery=delivered)
        producer.flush(DEADLINE_S)
        assert len(taken_ms) == job.count, f"{job.count - len(taken_ms)} messages were not acknowledged"
        # The first tenth warms up.
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


def listen(job: Job) -> driver.Work:
    """Messages of `latency`, from when each was due until a consumer has it."""
    consumer = Consumer({"bootstrap.servers": job.address, "group.id": "bench-listen", "fetch.wait.max.ms": 100})
    _, end = watermarks(consumer, job.topic, 0)
    consumer.assign([TopicPartition(job.topic, 0, end)])
    consumer.consume(1, 0.5)  # until its first fetch waits at the broker

    def work() -> Outcome:
        taken_ms: list[float] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(taken_ms) < job.count and time.monotonic() < deadline:
            messages = consumer.consume(READ_MAX, 0.001)
            now = time.monotonic()
            values = [message.value() for message in messages]
            stamps = [value for value in values if value is not None and len(value) >= STAMP_BYTES]
            taken_ms += [(now - struct.unpack_from(">d", stamp)[0]) * 1000 for stamp in stamps]
        assert len(taken_ms) >= job.count, f"{len(taken_ms)} of {job.count} messages were read"
        return Outcome(job.count, job.count * job.size, taken_ms[job.count // 10 :])

    return work


def read(job: Job) -> driver.Work:
    """Everything from the first message on, once for each group; the groups take turns."""
    consumers = [
        Consumer({"bootstrap.servers": job.address, "group.id": f"bench-{group}", "queued.min.messages": 1_000_000})
        for group in range(job.groups)
    ]

    def work() -> Outcome:
        left = dict.fromkeys(range(job.groups), job.count)
        for consumer in consumers:
            consumer.assign([TopicPartition(job.topic, partition, 0) for partition in range(job.partitions)])
        deadline = time.monotonic() + DEADLINE_S
        while left and time.monotonic() < deadline:
            for group in list(left):
                left[group] -= len(consumers[group].consume(READ_MAX, 0.1 / len(left)))
                if left[group] <= 0:
                    del left[group]
        assert not left, f"{len(left)} groups had not read everything after {DEADLINE_S:.0f} s"
        total = job.count * job.groups
        return Outcome(total, total * job.size)

    return work


def transactions(job: Job) -> driver.Work:
    """Transactions of one message, one after another."""
    producer = Producer({"bootstrap.servers": job.address, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    value = payloads(job.size, 1)[0]

    def commit_one() -> None:
        producer.begin_transaction()
        producer.produce(job.topic, value, partition=0)
        producer.commit_transaction(DEADLINE_S)

    commit_one()

    def work() -> Outcome:
        for _ in range(job.count):
            commit_one()
        return Outcome(job.count, job.count * job.size)

    return work


def first(job: Job) -> driver.Work:
    """Asks until there is somebody to answer, then makes a topic and has one message acknowledged."""

    def work() -> Outcome:
        kafka_raw.wait_for_answer(job.address, DEADLINE_S)
        make_topic(job)
        producer = Producer({"bootstrap.servers": job.address, "acks": "all", "linger.ms": 0})
        producer.produce(job.topic, b"first", partition=0)
        assert producer.flush(DEADLINE_S) == 0, "the first message was not acknowledged"
        return Outcome(1)

    return work


ACTS: dict[str, driver.Act] = {
    "create": create,
    "clear": clear,
    "produce": produce,
    "produce-only": produce,
    "latency": latency,
    "listen": listen,
    "read": read,
    "transactions": transactions,
    "first": first,
    "small": kafka_raw.small,
    "raw-read": kafka_raw.read,
    "connections": kafka_raw.connections,
    "partitions": kafka_growth.partitions,
    "metadata": kafka_growth.metadata,
    "rebalance": kafka_growth.rebalance,
}

if __name__ == "__main__":
    driver.main(ACTS)
