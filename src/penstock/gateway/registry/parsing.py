"""Schemas parsed and compared in threads of their own, so that a big one does not hold the event loop.

Called by registry.py; what is parsed is kept by penstock.schemas.stored.parsed. Law: a schema that another registry
accepted and ours cannot read is told as such; it never becomes a failure of ours.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from penstock.schemas.schema import Incompatible, Level, ParsedSchema, SchemaError, compatibility, parse
from penstock.schemas.stored.closure import Closure
from penstock.schemas.stored.parsed import Parse, ParsedSchemas

T = TypeVar("T")

THREADS = 2


class Canonical(NamedTuple):
    """A schema as it is kept, and digests to recognise it by."""

    text: str
    plain: bytes
    normalized: bytes


class Parser:
    def __init__(self, parse_one: Parse = parse) -> None:
        self._schemas = ParsedSchemas(parse_one)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="registry-parse")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def parsed(self, closure: Closure) -> ParsedSchema:
        return await self._run(self._schemas.parse_now, closure)

    async def canonical(self, closure: Closure, *, normalize: bool) -> Canonical:
        """Raises SchemaError."""
        return await self._run(self._canonical, closure, normalize)

    async def differences(
        self, level: Level, candidate: Closure, older: Sequence[tuple[str, Closure]], *, normalize: bool
    ) -> list[Incompatible]:
        """`older`: what each is called, newest last."""
        return await self._run(self._differences, level, candidate, older, normalize)

    def _canonical(self, closure: Closure, normalize: bool) -> Canonical:
        schema = self._schemas.parse_now(closure)
        normalized = schema.normalized().canonical
        text = normalized if normalize else schema.canonical
        return Canonical(text, _digest(schema.canonical), _digest(normalized))

    def _differences(
        self, level: Level, candidate: Closure, older: Sequence[tuple[str, Closure]], normalize: bool
    ) -> list[Incompatible]:
        if level is Level.NONE:
            return []
        schema = self._schemas.parse_now(candidate)
        if normalize:
            schema = schema.normalized()
        compared: list[ParsedSchema] = []
        for name, closure in older if level.is_transitive else older[-1:]:
            try:
                compared.append(self._schemas.parse_now(closure))
            except SchemaError as error:
                reason = f"{name} cannot be read here ({error}), so nothing can be compared with it"
                return [Incompatible("UNREADABLE_SCHEMA", "/", reason)]
            if compared[-1].kind != schema.kind:
                reason = f"{name} is of the type {compared[-1].kind}, the new schema of {schema.kind}"
                return [Incompatible("SCHEMA_TYPE_CHANGED", "/", reason)]
        return compatibility(level, schema, compared)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def _digest(text: str) -> bytes:
    return hashlib.md5(text.encode(errors="surrogatepass"), usedforsecurity=False).digest()
