"""Schemas parsed and compared in threads of their own, so that a big one does not hold the event loop.

Called by registry.py. Laws:
- What is parsed comes as a Closure: no thread ever looks at the state.
- Parsed schemas are kept while they fit into PARSED_MAX and PARSED_BYTES_MAX; the one used longest ago goes first.
- A schema that another registry accepted and ours cannot read is told as such; it never becomes a failure of ours.
"""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.gateway.registry.closure import Closure, Step
from penstock.schemas.schema import Incompatible, Level, ParsedSchema, SchemaError, compatibility, parse

T = TypeVar("T")

PARSED_MAX = 5000
PARSED_BYTES_MAX = 16 << 20
THREADS = 2


class Parse(Protocol):
    def __call__(self, kind: str, text: str, references: Sequence[tuple[str, ParsedSchema]], /) -> ParsedSchema: ...


class Canonical(NamedTuple):
    """A schema as it is kept, and digests to recognise it by."""

    text: str
    plain: bytes
    normalized: bytes


class Parser:
    def __init__(self, parse_one: Parse = parse) -> None:
        self._parse_one = parse_one
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="registry-parse")
        self._kept: OrderedDict[Any, tuple[ParsedSchema, int]] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def parsed(self, closure: Closure) -> ParsedSchema:
        return await self._run(self.parse_now, closure)

    async def canonical(self, closure: Closure, *, normalize: bool) -> Canonical:
        """Raises SchemaError."""
        return await self._run(self._canonical, closure, normalize)

    async def differences(
        self, level: Level, candidate: Closure, older: Sequence[tuple[str, Closure]], *, normalize: bool
    ) -> list[Incompatible]:
        """`older`: what each is called, newest last."""
        return await self._run(self._differences, level, candidate, older, normalize)

    def kept(self, closure: Closure) -> ParsedSchema | None:
        """Without parsing anything."""
        with self._lock:
            found = self._kept.get(_key(closure, len(closure) - 1))
        return None if found is None else found[0]

    def parse_now(self, closure: Closure) -> ParsedSchema:
        """In the calling thread. Raises SchemaError."""
        parsed: list[ParsedSchema] = []
        for place, step in enumerate(closure):
            parsed.append(self._step(closure, place, step, parsed))
        return parsed[-1]

    def _step(self, closure: Closure, place: int, step: Step, before: list[ParsedSchema]) -> ParsedSchema:
        key = _key(closure, place)
        if key is not None:
            with self._lock:
                found = self._kept.get(key)
                if found is not None:
                    self._kept.move_to_end(key)
                    return found[0]
        parsed = self._parse_one(step.kind, step.text, [(name, before[where]) for name, where in step.references])
        if key is not None:
            self._keep(key, parsed, len(step.text))
        return parsed

    def _keep(self, key: Any, parsed: ParsedSchema, size: int) -> None:
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = (parsed, size)
            self._kept_bytes += size
            while len(self._kept) > PARSED_MAX or self._kept_bytes > PARSED_BYTES_MAX:
                _, (_, gone) = self._kept.popitem(last=False)
                self._kept_bytes -= gone

    def _canonical(self, closure: Closure, normalize: bool) -> Canonical:
        schema = self.parse_now(closure)
        normalized = schema.normalized().canonical
        text = normalized if normalize else schema.canonical
        return Canonical(text, _digest(schema.canonical), _digest(normalized))

    def _differences(
        self, level: Level, candidate: Closure, older: Sequence[tuple[str, Closure]], normalize: bool
    ) -> list[Incompatible]:
        if level is Level.NONE:
            return []
        schema = self.parse_now(candidate)
        if normalize:
            schema = schema.normalized()
        compared: list[ParsedSchema] = []
        for name, closure in older if level.is_transitive else older[-1:]:
            try:
                compared.append(self.parse_now(closure))
            except SchemaError as error:
                reason = f"{name} cannot be read here ({error}), so nothing can be compared with it"
                return [Incompatible("UNREADABLE_SCHEMA", "/", reason)]
            if compared[-1].kind != schema.kind:
                reason = f"{name} is of the type {compared[-1].kind}, the new schema of {schema.kind}"
                return [Incompatible("SCHEMA_TYPE_CHANGED", "/", reason)]
        return compatibility(level, schema, compared)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def _key(closure: Closure, place: int) -> Any:
    step = closure[place]
    if step.serial is None:
        return None
    return (step.serial, *(closure[where].serial for _, where in step.references))


def _digest(text: str) -> bytes:
    return hashlib.md5(text.encode(errors="surrogatepass"), usedforsecurity=False).digest()
