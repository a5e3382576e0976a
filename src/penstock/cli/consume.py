"""`penstock consume`: messages of a topic to stdout, as they are or with everything around them.

Called by cli.app. Without --group it reads partitions directly and commits nothing, so it disturbs nobody. Ctrl-C,
SIGTERM and a closed pipe end it as an end of its own would: exit code 0.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import explain
from penstock.admin.offsets import EARLIEST, LATEST, TopicPartitions, expand, find_offsets
from penstock.cli.arguments import parse_moment_ms
from penstock.cli.message_format import EVERYTHING, VALUE_ONLY, compile_template, json_document
from penstock.cli.options import with_cluster
from penstock.cli.output import say
from penstock.clock import SystemClock
from penstock.model import TopicPartition

# Signals are seen between two waits.
_POLL_S = 0.2
_AT_ONCE = 500


@with_cluster
def consume(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(show_default=False)],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="From the oldest message on.")] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", help="From this one on; -N is the last N of each partition.")
    ] = None,
    from_timestamp: Annotated[
        str | None, typer.Option("--from-timestamp", metavar="TIME", help="From a date and time, or ms, on.")
    ] = None,
    partition: Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Repeatable.")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Join this group, and commit.")] = None,
    max_messages: Annotated[int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many.")] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit-at-end", "-e", help="Stop at the end of the topic.")] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.1, help="Stop after so many seconds without a message.")
    ] = None,
    template: Annotated[
        str, typer.Option("--format", help="{topic} {partition} {offset} {timestamp} {key} {headers} {value}")
    ] = VALUE_ONLY,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Everything a message has.")] = False,
) -> None:
    """Print messages; with --json one object a line. Without a starting point: what comes from now on."""
    if [from_beginning, offset is not None, from_timestamp is not None].count(True) > 1:
        raise typer.BadParameter("give one of --from-beginning, --offset and --from-timestamp")
    if group is not None and (offset is not None or from_timestamp is not None or partition):
        raise typer.BadParameter("a group decides itself where to go on: --group goes with --from-beginning only")
    moment_ms = parse_moment_ms(from_timestamp) if from_timestamp is not None else None
    render = _renderer(cluster.as_json, EVERYTHING if verbose else template)
    settings = {
        "group.id": group or "penstock-cli",
        "enable.auto.commit": group is not None,
        # An offset is committed after its message was printed, not when it was fetched.
        "enable.auto.offset.store": False,
        # Who asks for one offset should hear that it is gone, not be moved to another.
        "auto.offset.reset": "error" if offset is not None else "earliest" if from_beginning else "latest",
        "enable.partition.eof": True,
    }
    partitions = expand(cluster, [TopicPartitions(topic, tuple(partition or ()))])
    consumer = cluster.consumer(settings)
    reading = Reading(consumer, render, commits=group is not None)
    try:
        if group is not None:
            consumer.subscribe([topic], on_revoke=reading.forget_ends)
        else:
            consumer.assign(_starts(cluster, partitions, from_beginning, offset, moment_ms))
        reading.run(max_messages, exit_at_end, timeout)
    finally:
        with contextlib.suppress(RuntimeError):  # closed already: the group was lost
            consumer.close()
    say(f"{reading.count} messages")


class Reading:
    """Takes messages from a consumer until something says stop."""

    def __init__(self, consumer: Any, render: Callable[[Any], bytes], *, commits: bool) -> None:
        self._consumer = consumer
        self._render = render
        self._commits = commits
        self._is_stopped = False
        self._at_end: set[tuple[str, int]] = set()
        self._clock = SystemClock()
        self.count = 0

    def run(self, max_messages: int | None, exit_at_end: bool, timeout_s: float | None) -> None:
        previous = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        last = self._clock.monotonic()
        try:
            while not self._is_stopped and (max_messages is None or self.count < max_messages):
                events = self._take(_AT_ONCE if max_messages is None else min(_AT_ONCE, max_messages - self.count))
                messages = [event for event in events if event.error() is None]
                now = self._clock.monotonic()
                if messages:
                    last = now
                    self._print(messages)
                elif timeout_s is not None and now - last >= timeout_s:
                    return
                if self._note_ends(events) and exit_at_end and self._is_all_at_end():
                    return
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def forget_ends(self, _consumer: Any, revoked: Iterable[Any]) -> None:
        self._at_end -= {(one.topic, one.partition) for one in revoked}

    def _take(self, limit: int) -> list[Any]:
        """Wait for one message and take what has come with it: neither a call for each nor a wait for more."""
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(limit - 1, 0)] if limit > 1 else [first]

    def _print(self, messages: list[Any]) -> None:
        write_all(b"".join(map(self._render, messages)))
        self.count += len(messages)
        if self._commits:
            for message in messages:
                self._consumer.store_offsets(message)

    def _note_ends(self, events: list[Any]) -> bool:
        """Whether a partition has come to its end now. An error that does not pass by itself ends the command."""
        has_ended = False
        for event in events:
            at, error = (event.topic(), event.partition()), event.error()
            if error is None:
                self._at_end.discard(at)
            elif error.name() == "_PARTITION_EOF":
                self._at_end.add(at)
                has_ended = True
            elif error.fatal() or not error.retriable():
                raise explain(error, "reading")
        return has_ended

    def _is_all_at_end(self) -> bool:
        assigned = {(one.topic, one.partition) for one in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._at_end

    def _stop(self, *_: object) -> None:
        if self._is_stopped:
            raise KeyboardInterrupt  # told twice: whatever it waits for, it need not
        self._is_stopped = True


def write_all(data: bytes) -> None:
    """To stdout at once, whole also where Python was told not to buffer it and a signal cuts a write short."""
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.flush()


def _renderer(as_json: bool, template: str) -> Callable[[Any], bytes]:
    if not as_json:
        return compile_template(template)

    def render(message: Any) -> bytes:
        return json.dumps(json_document(message), ensure_ascii=False).encode() + b"\n"

    return render


def _starts(
    cluster: Cluster,
    partitions: list[TopicPartition],
    from_beginning: bool,
    offset: int | None,
    moment_ms: int | None,
) -> list[Any]:
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
    from confluent_kafka import TopicPartition as Start

    if moment_ms is not None:
        found = _offsets(cluster, partitions, moment_ms)
        starts = {at: OFFSET_END if offset is None else offset for at, offset in found.items()}
    elif offset is None:
        starts = dict.fromkeys(partitions, OFFSET_BEGINNING if from_beginning else OFFSET_END)
    elif offset >= 0:
        starts = dict.fromkeys(partitions, offset)
    else:
        first, end = _offsets(cluster, partitions, EARLIEST), _offsets(cluster, partitions, LATEST)
        starts = {at: max(first[at] or 0, (end[at] or 0) + offset) for at in partitions}
    return [Start(at.topic, at.partition, start) for at, start in starts.items()]


def _offsets(cluster: Cluster, partitions: list[TopicPartition], moment_ms: int) -> dict[TopicPartition, int | None]:
    found = find_offsets(cluster, partitions, moment_ms)
    for at, one in found.items():
        if one.error is not None:
            raise explain(one.error, f"looking for where to start in {at}")
    return {at: one.offset for at, one in found.items()}
