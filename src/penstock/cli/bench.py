"""`penstock bench produce | consume | latency`: what a cluster gives, in the terms of Kafka's own performance tools.

Called by cli.app. Works against any Kafka cluster. Ctrl-C shows what was measured so far and ends with 130. Exit code 1
when messages were not acknowledged or did not arrive.
"""

from typing import Annotated

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.bench.histogram import Histogram
from penstock.bench.payload import SIZE_MAX, payloads
from penstock.bench.receiving import Receiver
from penstock.bench.result import Measurement
from penstock.bench.round_trip import END_TO_END, STAMP_BYTES, Listener, new_mark, stamped
from penstock.bench.sending import LATENCY, Limit, Sender
from penstock.bench.stopping import Stop
from penstock.bench.topic import begins_of, ends_of, find_topic
from penstock.cli.bench_setup import (
    DEFAULT_TOPIC,
    DEFAULT_WARM_UP_S,
    RATE_MAX,
    UNLIMITED,
    Acks,
    BatchSize,
    Codec,
    LingerMs,
    Messages,
    Partitions,
    Replicas,
    Seconds,
    Size,
    Topic,
    WarmUp,
    closing,
    end,
    limit_of,
    producer_settings,
    rate_of,
    say_what_limited,
    show,
    starts,
    use_topic,
)
from penstock.cli.bench_view import Watch
from penstock.cli.options import with_cluster
from penstock.cli.produce import Compression

app = typer.Typer(no_args_is_help=True, help="Measure what a cluster gives: throughput and latency.")

_GROUP = "penstock-bench"


@app.command("produce")
@with_cluster
def produce(
    cluster: Cluster,
    topic: Topic = DEFAULT_TOPIC,
    messages: Messages = None,
    seconds: Seconds = None,
    size: Size = 100,
    throughput: Annotated[
        int, typer.Option("--throughput", max=RATE_MAX, help="Messages a second; -1: as many as go.")
    ] = UNLIMITED,
    acks: Acks = "all",
    compression: Codec = Compression.NONE,
    linger_ms: LingerMs = None,
    batch_size: BatchSize = None,
    partitions: Partitions = None,
    replication_factor: Replicas = None,
    warm_up: WarmUp = DEFAULT_WARM_UP_S,
) -> None:
    """Send messages and measure each until it is acknowledged; at a fixed rate from when it was due."""
    rate = rate_of(throughput)
    limit = limit_of(messages, seconds)
    settings = producer_settings(cluster, acks, compression, linger_ms, batch_size, size)
    used = use_topic(cluster, topic, partitions, replication_factor)
    producer = cluster.producer(settings)
    found, warming = Measurement(size), Measurement(size)
    filling = payloads(size)
    with Stop() as stop, Watch(limit, quiet=cluster.as_json) as watch:
        sender = Sender(producer, topic, lambda _: next(filling), stop, watch.look)
        if warm_up:
            watch.begin("warming up", warming)
            sender.run(rate, Limit(None, warm_up), warming)
        watch.begin("sent", found)
        sender.run(rate, limit, found)
    asked = {
        "size": size,
        "throughput": throughput,
        "acks": acks,
        "compression": compression.value,
        "warm_up_messages": warming.messages,
        "client_limited": found.is_client_limited(rate),
    }
    show("produce", "sent", cluster, used, asked, found, stop)
    if not stop.is_wanted:
        say_what_limited(found, rate)
    end(found, stop)


@app.command("consume")
@with_cluster
def consume(
    cluster: Cluster,
    topic: Annotated[str, typer.Option("--topic", "-t")] = DEFAULT_TOPIC,
    messages: Messages = None,
    seconds: Annotated[float | None, typer.Option("--seconds", "-s", min=0.1, help="Stop after so long.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this group, and commit; else read all partitions.")
    ] = None,
) -> None:
    """Read a topic from its beginning: to its end, or to --messages or --seconds."""
    used = find_topic(cluster, topic)
    if used is None:
        raise CommandFailed(
            f"there is no topic {topic}", f"`penstock bench produce --topic {topic}` makes and fills it."
        )
    limit = Limit(messages, seconds) if messages is not None or seconds is not None else None
    consumer = cluster.consumer(
        {
            "group.id": group or _GROUP,
            "enable.auto.commit": group is not None,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found = Measurement()
    with closing(consumer), Stop() as stop, Watch(limit, quiet=cluster.as_json) as watch:
        receiver = Receiver(consumer, stop, watch.look, cluster.timeout_s)
        watch.begin("read", found)
        if group is not None:
            receiver.subscribe(topic)
        else:
            receiver.assign(starts(begins_of(cluster, used)))
        is_whole = receiver.run(limit, found)
    show("consume", "read", cluster, used, {"group": group}, found, stop)
    if not is_whole and messages is not None:
        raise CommandFailed(
            f"only {found.messages} of {messages} messages came, then none for {cluster.timeout_s:g} s",
            "Ask for fewer with --messages, wait longer with --timeout, or send more with `penstock bench produce`.",
        )
    end(found, stop)


@app.command("latency")
@with_cluster
def latency(
    cluster: Cluster,
    topic: Topic = DEFAULT_TOPIC,
    messages: Messages = None,
    seconds: Seconds = None,
    size: Annotated[
        int, typer.Option("--size", min=STAMP_BYTES, max=SIZE_MAX, help="Bytes of each message; a stamp is in it.")
    ] = 100,
    throughput: Annotated[int, typer.Option("--throughput", min=1, max=RATE_MAX, help="Messages a second.")] = 1000,
    acks: Acks = "all",
    compression: Codec = Compression.NONE,
    linger_ms: LingerMs = 0,
    batch_size: BatchSize = None,
    partitions: Partitions = None,
    replication_factor: Replicas = None,
    warm_up: WarmUp = DEFAULT_WARM_UP_S,
) -> None:
    """Send at a fixed rate and read back: from when a message was due until it was acknowledged, and until it came."""
    limit = limit_of(messages, seconds)
    settings = producer_settings(cluster, acks, compression, linger_ms, batch_size, size)
    used = use_topic(cluster, topic, partitions, replication_factor)
    producer = cluster.producer(settings)
    consumer = cluster.consumer({"group.id": _GROUP, "enable.auto.commit": False, "auto.offset.reset": "error"})
    found, warming = Measurement(size), Measurement(size)
    filling = payloads(size)
    with closing(consumer), Stop() as stop, Watch(limit, quiet=cluster.as_json) as watch:
        # Not "the end", which the consumer would look up when the first messages are on their way.
        consumer.assign(starts(ends_of(cluster, used)))
        with Listener(consumer) as listener:

            def run(what: str, until: Limit, counted: Measurement) -> int:
                """Gives how many messages were acknowledged and did not come."""
                mark = new_mark()
                arrived = listener.expect(mark)
                counted.histograms = {LATENCY: Histogram(), END_TO_END: arrived}
                watch.begin(what, counted)
                Sender(producer, topic, stamped(mark, filling), stop, watch.look).run(throughput, until, counted)
                return listener.wait_for(counted.messages, arrived, cluster.timeout_s, lambda: stop.is_wanted)

            if warm_up:
                run("warming up", Limit(None, warm_up), warming)
            missing = run("sent and read back", limit, found)
    asked = {
        "size": size,
        "throughput": throughput,
        "acks": acks,
        "compression": compression.value,
        "warm_up_messages": warming.messages,
        "missing": missing,
    }
    show("latency", "sent and read back", cluster, used, asked, found, stop)
    if not stop.is_wanted:
        say_what_limited(found, throughput)
    end(found, stop)
    if missing:
        raise CommandFailed(
            f"{missing} of {found.messages} acknowledged messages did not come back within {cluster.timeout_s:g} s",
            "Wait longer with --timeout; `penstock consume --from-beginning` shows whether they are there.",
        )
