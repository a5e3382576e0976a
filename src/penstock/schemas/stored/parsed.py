"""Parsed schemas, kept while they fit.

Called by the gateway's Parser and by the brokers' validation, from any thread. Laws:
- What is parsed comes as a Closure: no thread ever looks at the state.
- At most PARSED_MAX schemas and PARSED_BYTES_MAX bytes of their texts are kept; the one used longest ago goes first.
- A schema that a registry has taken must stay readable, even if it would be refused today: it is parsed as an old one.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.schemas.schema import ParsedSchema, parse
from penstock.schemas.stored.closure import Closure, Step

PARSED_MAX = 5000
PARSED_BYTES_MAX = 16 << 20


class Parse(Protocol):
    def __call__(
        self, kind: str, text: str, references: Sequence[tuple[str, ParsedSchema]], /, *, is_new: bool
    ) -> ParsedSchema: ...


class ParsedSchemas:
    def __init__(self, parse_one: Parse = parse) -> None:
        self._parse_one = parse_one
        self._kept: OrderedDict[Any, tuple[ParsedSchema, int]] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

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
        references = [(name, before[where]) for name, where in step.references]
        parsed = self._parse_one(step.kind, step.text, references, is_new=step.serial is None)
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


def _key(closure: Closure, place: int) -> Any:
    step = closure[place]
    if step.serial is None:
        return None
    return (step.serial, *(closure[where].serial for _, where in step.references))
