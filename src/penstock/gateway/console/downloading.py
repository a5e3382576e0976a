"""What a page shows, and more of it, as a file: JSON lines, CSV, or the values as they are.

Called through the console's routes. The same scan as for a page, with a larger limit; written while it is read.
Laws: JSON lines lose nothing (bytes that are no text are in base64); a cell of CSV is never a formula to a spreadsheet.
"""

import asyncio
import base64
import csv
import io
from collections.abc import AsyncGenerator
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.gateway.console.asking import choice_of, flag_of, number_of, text_of
from penstock.gateway.console.decoding import Decoder
from penstock.gateway.console.filtering import Filter
from penstock.gateway.console.messages import filter_of, make_scan, scan_rounds
from penstock.gateway.console.rendering import raw_text, show_bytes
from penstock.gateway.console.scanning import Scan
from penstock.gateway.console.service import Console

FORMATS = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8", "raw": "application/octet-stream"}
LIMIT = 1000
LIMIT_MAX = 100_000
COLUMNS = ("partition", "offset", "timestamp_ms", "key", "value", "headers")


async def download(console: Console, request: Request) -> Response:
    form = choice_of(request, "format", tuple(FORMATS), "jsonl")
    scan, registry = await make_scan(console, request, number_of(request, "limit", LIMIT, 1, LIMIT_MAX))
    decoder = Decoder(registry, asyncio.get_running_loop()) if registry is not None else None
    scan.show = _shower(form, filter_of(request), decoder)
    topic = text_of(request, "topic")
    name = "".join(one if one.isalnum() or one in "._-" else "_" for one in topic)[:100]
    headers = {
        "content-disposition": f'attachment; filename="{name}.{"bin" if form == "raw" else form}"',
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    content = _chunks(console, scan, form, flag_of(request, "committed"))
    return StreamingResponse(content, media_type=FORMATS[form], headers=headers)


async def _chunks(console: Console, scan: Scan, form: str, is_committed: bool) -> AsyncGenerator[bytes]:
    if form == "csv":
        yield _csv_line(COLUMNS)
    async for found in scan_rounds(console, scan, is_committed):
        yield b"".join(one.shown for one in found)


def _shower(form: str, wanted: Filter | None, decoder: Decoder | None) -> Any:
    def show(message: Any) -> bytes | None:
        key, value = message.key(), message.value()
        headers: list[tuple[str, bytes | None]] = message.headers() or []
        if wanted is not None or form == "csv":
            shown_key, shown_value = show_bytes(key, decoder), show_bytes(value, decoder)
            texts = [(name, show_bytes(content).text) for name, content in headers]
            if wanted is not None and not wanted.wants(shown_key.text, shown_value.text, texts):
                return None
            if form == "csv":
                stamp = message.timestamp()[1]
                told = orjson.dumps(texts).decode() if texts else ""
                cells = [message.partition(), message.offset(), stamp, shown_key.text, shown_value.text, told]
                return _csv_line(cells)
        return _raw(value) if form == "raw" else _json_line(message, key, value, headers, decoder)

    return show


def _raw(value: bytes | None) -> bytes:
    return (value or b"") + b"\n"


def _json_line(message: Any, key: Any, value: Any, headers: Any, decoder: Decoder | None) -> bytes:
    line: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        "key": raw_text(key),
        "value": raw_text(value),
        "headers": [{"name": name, **raw_text(content)} for name, content in headers],
    }
    for part, content in (("key", key), ("value", value)):
        shown = show_bytes(content, decoder)
        # Beside the bytes, what they mean: bytes in a frame are no text to anybody.
        if shown.schema_id is not None and shown.note is None:
            line[part] = {"schema_id": shown.schema_id, "decoded": orjson.Fragment(shown.text.encode())}
            line[part]["base64"] = base64.b64encode(content).decode()
    return orjson.dumps(line) + b"\n"


def _csv_line(cells: Any) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([_defused(str(cell)) for cell in cells])
    return out.getvalue().encode(errors="replace")


def _defused(cell: str) -> str:
    if cell[:1] not in ("=", "+", "-", "@", "\t", "\r"):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell
