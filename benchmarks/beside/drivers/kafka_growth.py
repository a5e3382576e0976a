"""How Kafka-wire brokers take many of something: partitions, and members of one group.

Called by kafka_driver.
"""

import time
from collections.abc import Callable
from typing import Any

import driver
import kafka_raw
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from job import Job, Outcome

DEADLINE_S = 900.0
PARTITIONS_A_TOPIC = 1_000
TOPICS_A_REQUEST = 5  # Kafka refuses what would make more than 10,000 records of metadata at once
SETTLED_ROUNDS = 3


def partitions(job: Job) -> driver.Work:
    """Topics of a thousand partitions each, until there are `count`."""
    admin: Any = AdminClient({"bootstrap.servers": job.address})
    each = min(PARTITIONS_A_TOPIC, job.count)
    names = [f"{job.topic}-{number}" for number in range(-(-job.count // each))]

    def work() -> Outcome:
        for begin in range(0, len(names), TOPICS_A_REQUEST):
            some = [NewTopic(name, each, 1) for name in names[begin : begin + TOPICS_A_REQUEST]]
            for future in admin.create_topics(some, operation_timeout=DEADLINE_S, request_timeout=DEADLINE_S).values():
                future.result(DEADLINE_S)
        return Outcome(each * len(names))

    return work


def metadata(job: Job) -> driver.Work:
    """A description of every topic, as a client asks for it; waits until all partitions have a leader."""

    def work() -> Outcome:
        # The client is made when somebody answers: one that found nobody would wait before it asks again.
        kafka_raw.wait_for_answer(job.address, DEADLINE_S)
        admin = AdminClient({"bootstrap.servers": job.address, "receive.message.max.bytes": 500_000_000})
        deadline = time.monotonic() + DEADLINE_S
        while True:
            began = time.perf_counter()
            topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
            took = time.perf_counter() - began
            led = sum(part.leader >= 0 for topic in topics for part in topic.partitions.values())
            if led >= job.count:
                return Outcome(led, figures={"metadata_ms": took * 1000})
            assert time.monotonic() < deadline, f"{led} of {job.count} partitions have a leader"
            time.sleep(0.05)

    return work


def rebalance(job: Job) -> driver.Work:
    """Members join one group all at once, then one leaves: until every partition has one owner again, and stays so."""
    settings = {"bootstrap.servers": job.address, "group.id": job.topic, "auto.offset.reset": "latest"}
    settings |= {"partition.assignment.strategy": "cooperative-sticky"}
    members = [Consumer(settings) for _ in range(job.count)]
    everything = {(job.topic, partition) for partition in range(job.partitions)}

    def settled(who: list[Consumer]) -> bool:
        held = [owned for member in who for owned in owns(member.assignment())]
        return len(held) == len(everything) and set(held) == everything

    def work() -> Outcome:
        began = time.perf_counter()
        for member in members:
            member.subscribe([job.topic])
        poll_until(members, lambda: settled(members))
        joined_s = time.perf_counter() - began
        began = time.perf_counter()
        members[0].close()
        poll_until(members[1:], lambda: settled(members[1:]))
        left_s = time.perf_counter() - began
        return Outcome(job.count, figures={"joined_s": joined_s, "left_s": left_s})

    return work


def owns(assignment: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(one.topic, one.partition) for one in assignment]


def poll_until(members: list[Consumer], is_settled: Callable[[], bool]) -> None:
    """Serves all of them until it holds several times in a row: a rebalance may only seem to be over."""
    deadline = time.monotonic() + DEADLINE_S
    rounds = 0
    while rounds < SETTLED_ROUNDS:
        assert time.monotonic() < deadline, "the group did not settle"
        for member in members:
            member.poll(0.001)
        rounds = rounds + 1 if is_settled() else 0
