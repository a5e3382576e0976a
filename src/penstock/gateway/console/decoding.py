"""Values written with a schema, decoded by it: Avro, JSON Schema, Protobuf.

Called by messages and downloading, in the thread of a reader; the registry is asked on the gateway's loop.
Laws: hostile bytes cost no more than reading them (they are validated by a walk that builds nothing before they are
decoded); whatever goes wrong is a note beside the hex, never a failed page.
"""

import asyncio
import importlib
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.gateway.console.rendering import Shown, show_plain
from penstock.schemas.framing import split_frame

RESOLVE_S = 5.0
SCHEMAS_KEPT = 200
KINDS = {"AVRO": "avro", "JSON": "jsonschema", "PROTOBUF": "protobuf"}

# Payload (after the frame) -> JSON text.
Reader = Callable[[memoryview], str]


class Undecodable(Exception):
    """One sentence for the reader."""


class Decoder:
    """One for each scan: keeps the readers of the schemas it has met."""

    def __init__(self, registry: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self._loop = loop
        self._readers: dict[int, tuple[str, Reader] | str] = {}

    def __call__(self, content: bytes) -> Shown | None:
        framed = split_frame(memoryview(content))
        if framed is None:
            return None
        schema_id, payload = framed
        known = self._readers.get(schema_id)
        if known is None:
            if len(self._readers) >= SCHEMAS_KEPT:
                self._readers.clear()
            known = self._readers[schema_id] = self._find(schema_id)
        if isinstance(known, str):
            plain = show_plain(content)
            return plain._replace(schema_id=schema_id, note=known)
        kind, read = known
        try:
            return Shown(kind, read(payload), len(content), schema_id=schema_id)
        except Undecodable as reason:
            note = f"Not a value of schema {schema_id}: {reason}"
        except Exception as error:
            # Bytes from anywhere, read by libraries that raise whatever they trip over: it is shown as it is.
            note = f"Schema {schema_id} could not decode it: {type(error).__name__}"
        return Shown("hex", content.hex(" "), len(content), schema_id=schema_id, note=note)

    def _find(self, schema_id: int) -> tuple[str, Reader] | str:
        asking = asyncio.run_coroutine_threadsafe(self._resolve(schema_id), self._loop)
        try:
            return asking.result(RESOLVE_S)
        except Exception as error:
            # The registry away, too slow, or a schema no library takes: the message is shown without it.
            asking.cancel()
            return f"Schema {schema_id} could not be used: {error or type(error).__name__}"

    async def _resolve(self, schema_id: int) -> tuple[str, Reader] | str:
        found: Any = await self._registry.schema_by_id(schema_id)
        if found is None:
            return f"It begins like a value of schema {schema_id}, which the registry does not have."
        parsed = await asyncio.to_thread(lambda: found.parsed)
        return KINDS[found.kind], await asyncio.to_thread(make_reader, parsed)


def make_reader(parsed: Any) -> Reader:
    """From a ParsedSchema to what reads its values. Blocks while it prepares."""
    match parsed.kind:
        case "AVRO":
            return _avro_reader(parsed)
        case "PROTOBUF":
            return _protobuf_reader(parsed)
        case _:
            return _json_reader(parsed)


def _checked(parsed: Any, payload: memoryview) -> None:
    reason = parsed.validate(payload)
    if reason is not None:
        raise Undecodable(reason)


def _json_reader(parsed: Any) -> Reader:
    def read(payload: memoryview) -> str:
        shown = show_plain(bytes(payload))
        if shown.kind != "json":
            raise Undecodable("it is no JSON")
        return shown.text

    return read


def _avro_reader(parsed: Any) -> Reader:
    fastavro: Any = importlib.import_module("fastavro")
    schema = fastavro.parse_schema(avro_document(parsed))

    def read(payload: memoryview) -> str:
        _checked(parsed, payload)
        value: Any = fastavro.schemaless_reader(io.BytesIO(payload), schema, None)
        return to_json(value)

    return read


def avro_document(parsed: Any) -> Any:
    """The schema with everything it refers to inside it: what it uses of others is defined where it is first used."""
    from penstock.schemas.avro_print import print_avro

    return json.loads(print_avro(parsed.root, parsed.named, is_normalized=True))


def _protobuf_reader(parsed: Any) -> Reader:
    protobuf_json: Any = importlib.import_module("penstock.gateway.rest.protobuf_json")

    def read(payload: memoryview) -> str:
        _checked(parsed, payload)
        return to_json(protobuf_json.read(parsed, payload))

    return read


def to_json(value: Any) -> str:
    """Decoded values as JSON: bytes as text where they are text, times and decimals as they are written."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, Sequence | set | frozenset):
        return list(cast("Sequence[Any]", value))
    isoformat = getattr(value, "isoformat", None)
    return isoformat() if callable(isoformat) else str(value)
