"""`penstock produce`: lines in, messages out.

Called by cli.app. Lines are messages, or JSON objects as `penstock consume --json` writes them, so that one can be
piped into the other. Exit code 1 when any message was not acknowledged.
"""

import base64
import json
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import INTERRUPTED, CommandFailed, explain
from penstock.cli.arguments import parse_pairs
from penstock.cli.options import with_cluster
from penstock.cli.output import Progress, print_json, say

# librdkafka's own limit is 100,000 messages; while it is full we wait for acknowledgements, a while at a time.
_POLL_S = 0.2
_CALLBACKS_EVERY = 100


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Layout(StrEnum):
    LINES = "lines"
    JSON = "json"


class Outgoing(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class Tally:
    """What became of the messages."""

    delivered: int = 0
    failed: int = 0
    first_error: Any = None
    progress: Progress | None = field(default=None, repr=False)

    def count(self, error: Any, _: Any) -> None:
        if error is None:
            self.delivered += 1
            if self.progress is not None:
                self.progress.advance(1)
        else:
            self.failed += 1
            self.first_error = self.first_error or error


@with_cluster
def produce(
    cluster: Cluster,
    topic: Annotated[str, typer.Argument(show_default=False)],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read this instead of stdin.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help=r"What stands between key and value: ':' or '\t'.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="On every message; repeatable.")
    ] = None,
    layout: Annotated[
        Layout, typer.Option("--input", help="json: objects with key, value, headers, partition, timestamp_ms.")
    ] = Layout.LINES,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Default: by key.")] = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
) -> None:
    """Send messages, one a line, from stdin or a file."""
    if acks not in ("all", "-1", "0", "1"):
        raise typer.BadParameter("--acks is one of all, 1 and 0")
    headers = tuple((name, value.encode()) for name, value in parse_pairs(header or ()).items())
    separator = key_separator.encode().decode("unicode_escape").encode() if key_separator is not None else None
    if separator == b"":
        raise typer.BadParameter("--key-separator is empty")
    settings = {
        "acks": acks,
        "compression.type": compression.value,
        # By key as Java's clients have it, so that what this sends meets what they sent.
        "partitioner": "murmur2_random",
        "message.timeout.ms": int(cluster.timeout_s * 1000),
        "linger.ms": 5,
    }
    producer = cluster.producer(settings)
    if file is None and sys.stdin.isatty():
        say("Type messages, one a line; Ctrl-D ends.")
    tally = Tally()
    was_interrupted = False
    with _lines(file) as lines, Progress("messages sent", None) as progress:
        tally.progress = progress
        messages = read_json(lines, headers) if layout is Layout.JSON else read_lines(lines, separator, headers)
        try:
            for number, message in enumerate(messages):
                _send(producer, topic, message, partition, tally)
                if number % _CALLBACKS_EVERY == 0:
                    producer.poll(0)
        except KeyboardInterrupt:
            was_interrupted = True
        finally:
            # librdkafka gives up by itself after message.timeout.ms, and then says so for each message.
            while producer.flush(_POLL_S):
                pass
        elapsed_s = progress.elapsed_s
    _report(cluster, tally, elapsed_s)
    if tally.failed:
        raise explain(tally.first_error, f"{tally.failed} of {tally.failed + tally.delivered} messages were not sent")
    if was_interrupted:
        raise typer.Exit(INTERRUPTED)


def read_lines(
    lines: Iterable[bytes], separator: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> Iterator[Outgoing]:
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip(b"\r\n")
        if separator is None:
            yield Outgoing(None, line, headers)
            continue
        key, found, value = line.partition(separator)
        if not found:
            raise CommandFailed(f"line {number} has no key separator {separator.decode(errors='replace')!r} in it")
        yield Outgoing(key, value, headers)


def read_json(lines: Iterable[bytes], headers: tuple[tuple[str, bytes | None], ...]) -> Iterator[Outgoing]:
    """What `penstock consume --json` writes; topic and offset are left aside."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            document = json.loads(raw)
            own = tuple((one["name"], _bytes_of(one, "value")) for one in document.get("headers") or ())
            yield Outgoing(
                _bytes_of(document, "key"),
                _bytes_of(document, "value"),
                (*own, *headers),
                document.get("partition"),
                document.get("timestamp_ms"),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandFailed(
                f"line {number} is no message in JSON ({error})",
                'Write {"key": "k", "value": "v"}; key_base64 and value_base64 hold what is no text.',
            ) from None


def _bytes_of(document: dict[str, Any], name: str) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    value = document.get(name)
    if value is None:
        return None
    # A value that is itself an object or a number is sent as the JSON it was written in.
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def _send(producer: Any, topic: str, message: Outgoing, partition: int | None, tally: Tally) -> None:
    chosen = partition if partition is not None else message.partition
    arguments: dict[str, Any] = {"key": message.key, "value": message.value, "on_delivery": tally.count}
    if chosen is not None:
        arguments["partition"] = chosen
    if message.headers:
        arguments["headers"] = list(message.headers)
    if message.timestamp_ms is not None and message.timestamp_ms >= 0:
        arguments["timestamp"] = message.timestamp_ms
    while True:
        try:
            producer.produce(topic, **arguments)
            break
        except BufferError:
            producer.poll(_POLL_S)


@contextmanager
def _lines(file: Path | None) -> Generator[Iterable[bytes]]:
    """The lines of a file, or of stdin, which is not ours to close."""
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise CommandFailed(f"{file}: {error.strerror}") from None
    with stream:
        yield stream


def _report(cluster: Cluster, tally: Tally, elapsed_s: float) -> None:
    if cluster.as_json:
        print_json({"delivered": tally.delivered, "failed": tally.failed, "elapsed_s": round(elapsed_s, 3)})
        return
    rate = f"{tally.delivered / elapsed_s:,.0f} a second" if elapsed_s > 0 else "at once"
    say(f"{tally.delivered} messages sent in {elapsed_s:.2f} s ({rate})")
