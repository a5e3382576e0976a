"""Sample web events into a topic, the same ones for the same seed, some of them unreadable.

    python load.py --bootstrap 127.0.0.1:9092 --topic web-events --users 50 --seed 11

`make_events` gives the messages in the order they are sent, `expected` the sessions that must come of them. The last
event is hours after all others, by a visitor of its own, so that every session before it is over.
"""

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
TOPIC = "web-events"
PARTITIONS = 3
GAP = timedelta(minutes=30)
DEADLINE_S = 60.0
PAGES = ("/", "/menu", "/menu/coffee", "/basket", "/checkout", "/about")
LAST_VISITOR = "the-last-one"
# What a careless sender sends: no JSON, half of it, another type, bytes that are no text.
POISON = (b"not json at all", b'{"user": "half', b'{"user": "u", "page": "/", "at": "yesterday"}', b"\xff\xfe\x00")


class Event(NamedTuple):
    user: str
    page: str
    at: datetime

    def to_json(self) -> bytes:
        return json.dumps({"user": self.user, "page": self.page, "at": _text(self.at)}).encode()


class Session(NamedTuple):
    user: str
    started: datetime
    ended: datetime
    pages: int
    first_page: str
    last_page: str


def make_visits(users: int, seed: int) -> Iterator[list[Event]]:
    """What happened: each visitor comes one to three times, with more than the gap between, and never waits so long."""
    chance = random.Random(seed)
    for number in range(users):
        at = BEGIN + timedelta(seconds=chance.randrange(3600))
        for _ in range(chance.randint(1, 3)):
            times = [(at := at + timedelta(seconds=chance.randint(5, 600))) for _ in range(chance.randint(1, 8))]
            yield [Event(f"u-{number:04d}", chance.choice(PAGES), moment) for moment in times]
            at += GAP + timedelta(minutes=chance.randint(5, 60))


def make_events(users: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """Key and value of each message, by time, with poison among them."""
    events = sorted((event for visit in make_visits(users, seed) for event in visit), key=lambda event: event.at)
    for slot, event in enumerate(events):
        yield event.user, event.to_json()
        if slot % 40 == 7:
            yield event.user, POISON[slot // 40 % len(POISON)]
    yield LAST_VISITOR, Event(LAST_VISITOR, "/", events[-1].at + timedelta(hours=6)).to_json()


def expected(users: int, seed: int) -> tuple[list[Session], list[bytes]]:
    """Sessions, and what must be among the dead letters."""
    poison = [value for _, value in make_events(users, seed) if value in POISON]
    sessions = [
        Session(visit[0].user, visit[0].at, visit[-1].at, len(visit), visit[0].page, visit[-1].page)
        for visit in make_visits(users, seed)
    ]
    return sorted(sessions), poison


def load(bootstrap: str, topic: str, users: int, seed: int) -> int:
    """How many messages were acknowledged: all."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=DEADLINE_S).topics:
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    sent = 0
    for user, value in make_events(users, seed):
        producer.produce(topic, value, user, on_delivery=told)
        sent += 1
    left = producer.flush(DEADLINE_S)
    if left or failed:
        raise SystemExit(f"{left + len(failed)} events were not acknowledged: {failed[0] if failed else 'no answer'}")
    return sent


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main() -> None:
    parser = argparse.ArgumentParser(description="Send sample web events to a topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seed", type=int, default=11)
    given = parser.parse_args()
    sent = load(given.bootstrap, given.topic, given.users, given.seed)
    Console().print(f"{sent} messages to {given.topic}")


if __name__ == "__main__":
    main()
