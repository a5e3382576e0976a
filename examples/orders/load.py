"""Sample orders into a topic, the same ones for the same seed.

    python load.py --bootstrap 127.0.0.1:9092 --topic shop-orders --orders 20000 --seed 7

Orders come a little out of order, and one in fifty is sent twice, as shops do that got no answer. The last one is
much later than the others, so that every minute before it is complete. `expected` says what the table must hold.
"""

import argparse
import csv
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

BEGIN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
TOPIC = "shop-orders"
PARTITIONS = 4
DEADLINE_S = 60.0
# Orders are late by less than the pipeline's watermark allows.
LATE_S_MAX = 20
RATE_PER_S = 20


class Order(NamedTuple):
    order_id: str
    product: str
    quantity: int
    at: datetime

    def to_json(self) -> bytes:
        return json.dumps({**self._asdict(), "at": self.at.isoformat().replace("+00:00", "Z")}).encode()


class Total(NamedTuple):
    orders: int
    pieces: int
    revenue: Decimal


def read_products() -> dict[str, tuple[str, Decimal]]:
    """Category and price by product."""
    with Path(__file__).with_name("products.csv").open(newline="") as file:
        return {row["product"]: (row["category"], Decimal(row["price"])) for row in csv.DictReader(file)}


def make_orders(count: int, seed: int) -> Iterator[Order]:
    """In the order in which they are sent; some twice."""
    chance = random.Random(seed)
    products = sorted(read_products())
    for number in range(count):
        late = timedelta(seconds=chance.randrange(LATE_S_MAX * 10) / 10)
        at = max(BEGIN, BEGIN + timedelta(seconds=number / RATE_PER_S) - late)
        order = Order(f"o-{seed}-{number:07d}", chance.choice(products), chance.randint(1, 5), at)
        yield order
        if chance.randrange(50) == 0:
            yield order
    yield Order(f"o-{seed}-last", products[0], 1, BEGIN + timedelta(seconds=count / RATE_PER_S, hours=1))


def expected(count: int, seed: int) -> dict[tuple[datetime, str], Total]:
    """By minute and category: all but the minute of the last order, which is not over."""
    products = read_products()
    totals: dict[tuple[datetime, str], list[Order]] = defaultdict(list)
    unique = {order.order_id: order for order in make_orders(count, seed)}
    for order in unique.values():
        if not order.order_id.endswith("-last"):
            minute = order.at.replace(second=0, microsecond=0)
            totals[minute, products[order.product][0]].append(order)
    return {
        key: Total(
            len(orders),
            sum(order.quantity for order in orders),
            sum((order.quantity * products[order.product][1] for order in orders), Decimal()),
        )
        for key, orders in totals.items()
    }


def load(bootstrap: str, topic: str, count: int, seed: int) -> int:
    """How many messages were acknowledged: all."""
    make_topic(bootstrap, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    sent = 0
    for order in make_orders(count, seed):
        producer.produce(topic, order.to_json(), order.order_id, on_delivery=told)
        sent += 1
        if sent % 1000 == 0:
            producer.poll(0)
    left = producer.flush(DEADLINE_S)
    if left or failed:
        raise SystemExit(f"{left + len(failed)} orders were not acknowledged: {failed[0] if failed else 'no answer'}")
    return sent


def make_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """If it is not there yet."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic not in admin.list_topics(timeout=DEADLINE_S).topics:
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(DEADLINE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Send sample orders to a topic.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--orders", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    sent = load(given.bootstrap, given.topic, given.orders, given.seed)
    Console().print(f"{sent} messages to {given.topic}")


if __name__ == "__main__":
    main()
