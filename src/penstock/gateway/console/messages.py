"""Browsing a topic: a page of records, searched for where a filter is given, told as it is found.

Called through the console's routes. The answer is a stream of JSON lines, so that a search shows what it found while it
goes on: {"message": …}, {"progress": …}, and last {"end": …} with where the next page begins, or {"error": …}.
Laws: see scanning; a reader that goes away ends its scan within one poll.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.admin.cluster import Cluster
from penstock.admin.offsets import EARLIEST, LATEST, find_offsets
from penstock.gateway.console.asking import choice_of, flag_of, number_of, refuse, text_of, to_number
from penstock.gateway.console.decoding import Decoder
from penstock.gateway.console.filtering import FILTER_MAX, KINDS, WHERE, Filter, make_filter
from penstock.gateway.console.rendering import PARSED_BYTES_MAX, WHOLE_CHARACTERS, Shown, document, show_message
from penstock.gateway.console.scanning import RECORD_BYTES_GUESS, SCAN_S_MAX, Found, Scan, read_round
from penstock.gateway.console.service import Console
from penstock.gateway.errors import Busy, HttpProblem, KafkaFailed
from penstock.gateway.kafka import AsyncConsumer
from penstock.model import TopicPartition

LIMIT = 50
LIMIT_MAX = 500
PARTITIONS_MAX = 5000
CURSOR_MAX = 100_000
FROM = ("newest", "oldest", "offset", "time")
MEDIA_TYPE = "application/x-ndjson"

CONSUMER_SETTINGS: dict[str, Any] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # A page is a few records: not megabytes of the next ones.
    "queued.min.messages": 500,
    "fetch.error.backoff.ms": 100,
}


class Bounds(NamedTuple):
    starts: dict[int, int]
    ends: dict[int, int]
    positions: dict[int, int]


async def browse(console: Console, request: Request) -> Response:
    scan, decoder_registry = await make_scan(console, request, number_of(request, "limit", LIMIT, 1, LIMIT_MAX))
    decoder = Decoder(decoder_registry, asyncio.get_running_loop()) if decoder_registry is not None else None
    scan.show = shower(filter_of(request), decoder)
    lines = _lines(console, scan, flag_of(request, "committed"))
    return StreamingResponse(lines, media_type=MEDIA_TYPE, headers={"cache-control": "no-store"})


async def make_scan(console: Console, request: Request, limit: int) -> tuple[Scan, Any]:
    """What a request asks for, as a scan that has not begun; and the registry, where there is one."""
    topic = text_of(request, "topic")
    bounds = await _find_bounds(console, request, topic)
    sizes = (await console.watcher.snapshot()).sizes
    record_bytes: dict[int, float] = {}
    for one, end in bounds.ends.items():
        count = end - bounds.starts.get(one, 0)
        size = sizes.get(TopicPartition(topic, one))
        record_bytes[one] = size / count if size and count > 0 else RECORD_BYTES_GUESS
    scan = Scan(
        topic,
        choice_of(request, "from", FROM, "newest") == "newest",
        bounds.positions,
        bounds.starts,
        bounds.ends,
        limit,
        lambda _: None,
        filter_of(request) is not None,
        console.clock.monotonic() + SCAN_S_MAX,
        record_bytes,
    )
    return scan, console.registry


def open_consumer(console: Console, is_committed: bool) -> AsyncConsumer:
    level = "read_committed" if is_committed else "read_uncommitted"
    return console.kafka.consumer(None, {**CONSUMER_SETTINGS, "isolation.level": level})


def filter_of(request: Request) -> Filter | None:
    wanted = text_of(request, "filter", "", FILTER_MAX)
    if not wanted.strip():
        return None
    return make_filter(
        choice_of(request, "filter_kind", KINDS, "text"), choice_of(request, "filter_in", WHERE, "any"), wanted
    )


def shower(wanted: Filter | None, decoder: Decoder | None) -> Any:
    """What is made of each record: None, or what is shown of it."""

    def show(message: Any) -> Any | None:
        shown = show_message(message, decoder)
        if wanted is not None:
            headers = [(name, part.text) for name, part in shown["headers"]]
            if not wanted.wants(shown["key"].text, shown["value"].text, headers):
                return None
        # Only what is shown is kept: a thousand records may be a gigabyte.
        return document(shown)

    return show


async def scan_rounds(console: Console, scan: Scan, is_committed: bool) -> AsyncGenerator[list[Found]]:
    """What each round found. Ends when the scan does; closes its consumer whatever happens."""
    if console.scans_open >= console.scans_max:
        raise Busy("many searches are running already: wait for one to end, or try again in a moment")
    consumer = open_consumer(console, is_committed)
    console.scans_open += 1
    try:
        scan.judge(console.clock.monotonic())
        while scan.ended_by is None and not console.stopping.is_set():
            yield await consumer.run(lambda handle: read_round(handle, scan, console.clock))
            scan.judge(console.clock.monotonic())
    finally:
        scan.is_cancelled = True
        console.scans_open -= 1
        await asyncio.shield(consumer.close())


async def _lines(console: Console, scan: Scan, is_committed: bool) -> AsyncGenerator[bytes]:
    try:
        async for found in scan_rounds(console, scan, is_committed):
            told = [{"message": one.shown} for one in found]
            yield b"".join(orjson.dumps(line) + b"\n" for line in [*told, {"progress": _progress(scan)}])
        end = {
            **_progress(scan),
            "ended_by": scan.ended_by,
            "positions": {str(k): v for k, v in scan.positions.items()},
        }
        yield orjson.dumps({"end": end}) + b"\n"
    except (KafkaFailed, Busy) as failure:
        yield orjson.dumps({"error": str(failure)}) + b"\n"


def _progress(scan: Scan) -> dict[str, int]:
    return {"scanned": scan.scanned, "scanned_bytes": scan.scanned_bytes, "found": scan.found, "left": scan.left}


async def _find_bounds(console: Console, request: Request, topic: str) -> Bounds:
    facts = await console.kafka.topic(topic)
    if facts is None:
        raise HttpProblem(404, 40403, "there is no such topic; it may have been deleted")
    partition = request.query_params.get("partition", "")
    if partition:
        chosen = [to_number(partition, "partition", 0, facts.partitions - 1)]
    else:
        chosen = list(range(min(facts.partitions, PARTITIONS_MAX)))
    where = choice_of(request, "from", FROM, "newest")
    moment_ms = number_of(request, "time") if where == "time" else None
    asked = [TopicPartition(topic, one) for one in chosen]

    def ask(cluster: Cluster) -> tuple[dict[int, int], dict[int, int], dict[int, int | None]]:
        starts, ends = find_offsets(cluster, asked, EARLIEST), find_offsets(cluster, asked, LATEST)
        at = find_offsets(cluster, asked, moment_ms) if moment_ms is not None else {}
        failed = next((one.error for one in [*starts.values(), *ends.values()] if one.error is not None), None)
        if failed is not None and len(chosen) == 1:
            raise KafkaFailed.of(failed)
        # A partition without a leader is left out: the others can be read.
        known = [one for one in asked if starts[one].offset is not None and ends[one].offset is not None]
        return (
            {one.partition: starts[one].offset or 0 for one in known},
            {one.partition: ends[one].offset or 0 for one in known},
            {one.partition: at[one].offset for one in known if one in at},
        )

    starts, ends, at_time = await console.kafka.ask(ask)
    cursor = text_of(request, "cursor", "", CURSOR_MAX)
    if cursor:
        positions = {one: at for one, at in parse_cursor(cursor).items() if one in ends}
    elif where == "newest":
        positions = dict(ends)
    elif where == "time":
        # Nothing is that new: there is nothing to show of this partition.
        positions = {one: ends[one] if at is None else at for one, at in at_time.items()}
    elif where == "offset":
        offset = number_of(request, "offset")
        positions = dict.fromkeys(ends, offset)
    else:
        positions = dict(starts)
    return Bounds(starts, ends, {one: min(max(at, starts[one]), ends[one]) for one, at in positions.items()})


def parse_cursor(cursor: str) -> dict[int, int]:
    """`0:120,1:77`: a partition and an offset each, as a page's end gave them."""
    found: dict[int, int] = {}
    for part in cursor.split(","):
        partition, _, offset = part.partition(":")
        found[to_number(partition, "cursor", 0, 2**31)] = to_number(offset, "cursor")
    return found


async def show_one(console: Console, request: Request) -> Response:
    """One record as a whole, or as much of it as a page can bear; `raw=key|value` gives the bytes themselves."""
    topic, partition, offset = text_of(request, "topic"), number_of(request, "partition"), number_of(request, "offset")
    raw = choice_of(request, "raw", ("", "key", "value"), "")
    decoder = Decoder(console.registry, asyncio.get_running_loop()) if console.registry is not None else None
    facts = await console.kafka.topic(topic)
    if facts is None or partition >= facts.partitions:
        raise HttpProblem(404, 40403, "there is no such topic or partition")
    kept: list[Any] = []
    scan = Scan(
        topic, False, {partition: offset}, {partition: offset}, {partition: offset + 1}, 1, kept.append, False,
        console.clock.monotonic() + SCAN_S_MAX,
    )  # fmt: skip
    consumer = open_consumer(console, False)
    try:
        await consumer.run(lambda handle: read_round(handle, scan, console.clock))
        if not kept:
            raise refuse(
                "there is no record at this offset: it was deleted, compacted away, or is not written yet", 404, 404
            )
        (message,) = kept
        if raw:
            return _download_raw(message, raw, f"{topic}-{partition}-{offset}")
        shown = await asyncio.to_thread(show_message, message, decoder, 16 * PARSED_BYTES_MAX)
    finally:
        await consumer.close()
    assert isinstance(shown["value"], Shown)
    return Response(orjson.dumps(document(shown, WHOLE_CHARACTERS)), media_type="application/json")


def _download_raw(message: Any, part: str, name: str) -> Response:
    content: bytes | None = message.key() if part == "key" else message.value()
    safe = "".join(one if one.isalnum() or one in "._-" else "_" for one in name)
    headers = {"content-disposition": f'attachment; filename="{safe}.{part}"', "x-content-type-options": "nosniff"}
    return Response(content or b"", media_type="application/octet-stream", headers=headers)
