"""What the three benchmarks share: their options, the settings these make for librdkafka, and how they end.

Called by cli.bench.
"""

import contextlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import INTERRUPTED, explain
from penstock.bench.payload import SIZE_MAX, SIZE_MIN
from penstock.bench.result import Measurement
from penstock.bench.sending import Limit
from penstock.bench.stopping import Stop
from penstock.bench.topic import BenchTopic, ensure_topic
from penstock.cli.bench_view import print_result
from penstock.cli.output import print_json, say
from penstock.cli.produce import Compression
from penstock.model import TopicPartition

DEFAULT_TOPIC = "penstock-bench"
DEFAULT_SECONDS = 10.0
DEFAULT_WARM_UP_S = 1.0
RATE_MAX = 10_000_000
UNLIMITED = -1
# How much may lie in the client's queue. librdkafka's own limit is a gigabyte, which a small machine does not have.
QUEUE_KIB = 64 * 1024
# The largest message librdkafka sends unless told otherwise, and what a message has around its value.
_MESSAGE_BYTES, _AROUND_BYTES = 1_000_000, 1024

Topic = Annotated[str, typer.Option("--topic", "-t", help="Made when it is missing; never deleted.")]
Partitions = Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="Of a topic that is made.")]
Replicas = Annotated[int | None, typer.Option("--replication-factor", "-r", min=1, help="Of a topic that is made.")]
Messages = Annotated[int | None, typer.Option("--messages", "-n", min=1, help="Stop after so many.")]
Seconds = Annotated[float | None, typer.Option("--seconds", "-s", min=0.1, help="Stop after so long; else 10.")]
Size = Annotated[int, typer.Option("--size", min=SIZE_MIN, max=SIZE_MAX, help="Bytes of each message.")]
Acks = Annotated[str, typer.Option("--acks", help="all, 1 or 0.")]
Codec = Annotated[Compression, typer.Option("--compression", "-z")]
WarmUp = Annotated[float, typer.Option("--warm-up", min=0, help="Seconds before; sent on top and not counted.")]
LingerMs = Annotated[float | None, typer.Option("--linger-ms", min=0, help="How long a batch waits for more.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", min=1, help="Bytes of a batch; else librdkafka's.")]


def rate_of(throughput: int) -> int | None:
    """Messages a second; None for as many as go."""
    if throughput == UNLIMITED:
        return None
    if throughput < 1:
        raise typer.BadParameter("--throughput is a number of messages a second, or -1 for as many as go")
    return throughput


def limit_of(messages: int | None, seconds: float | None) -> Limit:
    return Limit(messages, DEFAULT_SECONDS if messages is None and seconds is None else seconds)


def producer_settings(
    cluster: Cluster, acks: str, compression: Compression, linger_ms: float | None, batch_size: int | None, size: int
) -> dict[str, Any]:
    if acks not in ("all", "-1", "0", "1"):
        raise typer.BadParameter("--acks is one of all, 1 and 0")
    settings: dict[str, Any] = {
        "acks": acks,
        "compression.type": compression.value,
        "message.timeout.ms": int(cluster.timeout_s * 1000),
        "queue.buffering.max.kbytes": max(QUEUE_KIB, 2 * size // 1024),
        # Whether a message is too large is for the broker to say.
        "message.max.bytes": max(_MESSAGE_BYTES, size + _AROUND_BYTES),
    }
    if linger_ms is not None:
        settings["linger.ms"] = linger_ms
    if batch_size is not None:
        settings["batch.size"] = batch_size
    return settings


def use_topic(cluster: Cluster, name: str, partitions: int | None, replication_factor: int | None) -> BenchTopic:
    used = ensure_topic(cluster, name, partitions, replication_factor)
    if used.was_made:
        say(
            f"Made topic {name} (partitions: {used.partitions}, replicas of each: {used.replication_factor}). "
            f"`penstock topics delete {name}` removes it."
        )
    return used


def starts(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    from confluent_kafka import TopicPartition as Start

    return [Start(at.topic, at.partition, offset) for at, offset in offsets.items()]


@contextmanager
def closing(consumer: Any) -> Generator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # closed already: the group was lost
            consumer.close()


def show(
    kind: str, verb: str, cluster: Cluster, used: BenchTopic, asked: Mapping[str, Any], found: Measurement, stop: Stop
) -> None:
    """The document of `--json`, or lines for people."""
    if not cluster.as_json:
        print_result(verb, found)
        return
    where = {
        "benchmark": kind,
        "topic": used.name,
        "partitions": used.partitions,
        "replication_factor": used.replication_factor,
        "brokers": used.brokers,
        "interrupted": stop.is_wanted,
    }
    print_json(where | dict(asked) | found.document())


def say_what_limited(found: Measurement, rate: int | None) -> None:
    """A number is easily taken for the cluster's when it is the client's."""
    if found.is_client_limited(rate):
        say("The client was the limit: it hardly ever waited for the cluster. Run several at once to ask more of it.")
    if found.is_behind:
        say(f"The rate was not held: at the end the next message was {found.behind_s:.1f} s late. Ask for less.")


def end(found: Measurement, stop: Stop) -> None:
    if found.failed:
        total = found.failed + found.messages
        raise explain(found.first_error, f"{found.failed} of {total} messages were not acknowledged")
    if stop.is_wanted:
        raise typer.Exit(INTERRUPTED)
