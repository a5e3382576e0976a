"""The main job end to end: orders in, orders out, and a broker that is killed in the middle.

Run by `make demo`. Starts `penstock serve` as a process of its own, sends 100,000 orders from three producers, reads
them with a consumer group of two, kills the broker with SIGKILL half way and starts it again. Then a pipeline on Spark
(examples/orders) adds other orders up per minute into a Delta table. Exit code 0 means that every acknowledged order is
in the log exactly once, in the order its producer sent it, and was read by the group, and that the table is right.
"""

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from orders import load, show
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

ORDERS = 100_000
PRODUCERS = 3
PARTITIONS = 6
TOPIC = "orders"
GROUP = "billing"
DEADLINE_S = 120.0
PIPELINE_ORDERS, PIPELINE_SEED = 20_000, 7
PRODUCTS = ("espresso", "flat white", "croissant", "granola", "orange juice")

console = Console()


@dataclass
class Outcome:
    """What happened, written by many threads; each field has one kind of writer."""

    acknowledged: set[str] = field(default_factory=set)
    refused: int = 0
    read_by: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    produced_in_s: float = 0.0
    down_for_s: float = 0.0
    amounts: Counter[str] = field(default_factory=Counter)


class Broker:
    """One `penstock serve` process on a free port, which stays the same when it is started again."""

    def __init__(self, data_dir: Path) -> None:
        self.address = f"127.0.0.1:{_free_port()}"
        self._command = [sys.executable, "-m", "penstock", "serve", "--no-gateway", "--data-dir", str(data_dir)]
        self._command += ["--listen", self.address, "--http", f"127.0.0.1:{_free_port()}", "--log-level", "warning"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Seconds from the command to the first answered request."""
        began = time.monotonic()
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        host, _, port = self.address.partition(":")
        while time.monotonic() - began < DEADLINE_S:
            assert self._process.poll() is None, "the broker ended by itself"
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                break
            except OSError:
                time.sleep(0.01)
        # Asked only once the port is open: after a refusal librdkafka waits before it tries again.
        AdminClient({"bootstrap.servers": self.address}).list_topics(timeout=DEADLINE_S)
        return time.monotonic() - began

    def end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()


def main() -> int:
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        broker = Broker(Path(folder))
        try:
            first_start_s = broker.start()
            console.print(f"[bold]penstock[/] answers on {broker.address}, {first_start_s:.2f} s after its start")
            _create_topic(broker.address)
            _run(broker, outcome)
            holds = _report(outcome, _read_log(broker.address))
            is_right = _run_pipeline(broker.address, Path(folder) / "pipeline")
        finally:
            broker.end(signal.SIGTERM)
    return 0 if holds and is_right else 1


def _run_pipeline(address: str, folder: Path) -> bool:
    """Orders, aggregated per minute by Spark into a Delta table; whether it holds what it should."""
    with console.status("a pipeline: orders per minute, by Spark, into a Delta table"):
        sent = load.load(address, load.TOPIC, PIPELINE_ORDERS, PIPELINE_SEED)
        counts = show.run_once(address, load.TOPIC, folder)
    show.show(folder, console)
    rows = show.read_rows(folder)
    found = {(row["minute"], row["category"]): load.Total(*(row[name] for name in show.NUMBERS)) for row in rows}
    is_right = counts["rows_in"] == sent and found == load.expected(PIPELINE_ORDERS, PIPELINE_SEED)
    console.print(
        f"[green]{sent:,} orders in, {len(rows)} rows in the table, every order counted once.[/]"
        if is_right
        else f"[red]The table is not what {sent:,} orders come to.[/]"
    )
    return is_right


def _create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)


def _run(broker: Broker, outcome: Outcome) -> None:
    """Producers and consumers at work while the broker is killed and comes back."""
    finished = threading.Event()
    consumers = [threading.Thread(target=_consume, args=(broker.address, n, outcome, finished)) for n in range(2)]
    producers = [threading.Thread(target=_produce, args=(broker.address, n, outcome)) for n in range(PRODUCERS)]
    began = time.monotonic()
    for thread in (*consumers, *producers):
        thread.start()
    with Progress(console=console, transient=True) as progress:
        acknowledged = progress.add_task("acknowledged", total=ORDERS)
        read = progress.add_task("read by the group", total=ORDERS)
        killed = False
        while time.monotonic() - began < DEADLINE_S:
            progress.update(acknowledged, completed=len(outcome.acknowledged))
            progress.update(read, completed=len(outcome.read))
            if not killed and len(outcome.acknowledged) > ORDERS * 0.4:
                killed = True
                console.print(f"[red]SIGKILL[/] after {len(outcome.acknowledged):,} acknowledged orders")
                down_since = time.monotonic()
                broker.end(signal.SIGKILL)
                restart_s = broker.start()
                outcome.down_for_s = time.monotonic() - down_since
                console.print(f"[green]back[/] {restart_s:.2f} s after its new start")
            if not any(thread.is_alive() for thread in producers):
                outcome.produced_in_s = outcome.produced_in_s or time.monotonic() - began
                if outcome.acknowledged <= outcome.read.keys():
                    break
            time.sleep(0.05)
    finished.set()
    for thread in (*producers, *consumers):
        thread.join()


def _produce(address: str, number: int, outcome: Outcome) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    chance = random.Random(number)

    def delivered(order_id: str, error: KafkaError | None, _: Message) -> None:
        if error is None:
            outcome.acknowledged.add(order_id)
        else:
            outcome.refused += 1

    for sequence in range(number, ORDERS, PRODUCERS):
        order_id = f"{number}-{sequence}"
        order = {
            "order": order_id,
            "customer": f"customer-{chance.randrange(2000)}",
            "product": chance.choice(PRODUCTS),
            "cents": chance.randrange(150, 2500),
        }
        while True:
            try:
                producer.produce(
                    TOPIC,
                    json.dumps(order),
                    key=order["customer"],
                    headers=[("order", order_id)],
                    on_delivery=partial(delivered, order_id),
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(DEADLINE_S)


def _consume(address: str, number: int, outcome: Outcome, finished: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([TOPIC])
    try:
        while not finished.is_set():
            messages = consumer.consume(1000, timeout=0.2)
            orders = [message for message in messages if message.error() is None]
            for message in orders:
                order = json.loads(message.value())
                outcome.read[order["order"]] += 1
                outcome.amounts[order["product"]] += order["cents"]
            if orders:
                outcome.read_by[f"member {number + 1}"] += len(orders)
                consumer.commit(asynchronous=True)
    finally:
        consumer.close()


@contextmanager
def _reader(address: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "audit", "enable.partition.eof": True})
    try:
        yield consumer
    finally:
        consumer.close()


def _read_log(address: str) -> list[list[str]]:
    """Order ids partition by partition, as the log has them."""
    found: list[list[str]] = [[] for _ in range(PARTITIONS)]
    with _reader(address) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, timeout=5):
                if message.error() is None:
                    found[message.partition()].append(message.headers()[0][1].decode())
                else:
                    ended.add(message.partition())
    return found


def _report(outcome: Outcome, in_log: list[list[str]]) -> bool:
    times = Counter(order for orders in in_log for order in orders)
    lost = len(outcome.acknowledged - times.keys())
    doubled = sum(1 for count in times.values() if count > 1)
    unordered = sum(1 for orders in in_log if not _in_order(orders))
    unread = len(outcome.acknowledged - outcome.read.keys())
    holds = len(outcome.acknowledged) == ORDERS and not (lost or doubled or unordered or unread or outcome.refused)

    table = Table(title="What happened", show_header=False)
    table.add_row("orders sent", f"{ORDERS:,} by {PRODUCERS} producers")
    table.add_row("acknowledged (acks=all, on stable storage)", f"{len(outcome.acknowledged):,}")
    table.add_row("broker down", f"{outcome.down_for_s:.2f} s, killed with SIGKILL")
    table.add_row("producing took", f"{outcome.produced_in_s:.1f} s, {ORDERS / outcome.produced_in_s:,.0f} orders/s")
    for member, count in sorted(outcome.read_by.items()):
        table.add_row(f"read by {member} of group {GROUP}", f"{count:,}")
    table.add_row("read again after the crash", f"{sum(outcome.read.values()) - len(outcome.read):,} (at least once)")
    table.add_section()
    table.add_row("acknowledged and not in the log", _verdict(lost))
    table.add_row("in the log more than once", _verdict(doubled))
    table.add_row("partitions out of order", _verdict(unordered))
    table.add_row("acknowledged and never read by the group", _verdict(unread))
    console.print(table)
    console.print("[green]Nothing acknowledged was lost.[/]" if holds else "[red]The promise did not hold.[/]")
    return holds


def _in_order(orders: list[str]) -> bool:
    """Each producer's orders appear in the order it sent them."""
    last = [-1] * PRODUCERS
    for order in orders:
        producer, _, sequence = order.partition("-")
        if int(sequence) <= last[int(producer)]:
            return False
        last[int(producer)] = int(sequence)
    return True


def _verdict(count: int) -> str:
    return "[green]0[/]" if count == 0 else f"[red]{count:,}[/]"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
