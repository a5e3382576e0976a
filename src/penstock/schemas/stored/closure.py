"""A schema with everything it refers to, as a plain list that a parser can work through without the state.

Called by the gateway's registry and by penstock.validation on the event loop; the list then goes to a thread
(parsed.py). Laws:
- Every step refers only to steps before it; a schema that is referred to often stands there once.
- A closure has at most CLOSURE_MAX steps, DEPTH_MAX deep and CLOSURE_BYTES_MAX long, whoever wrote the topic; circles,
  which only a foreign writer can make, are refused: SchemaError.
"""

from typing import NamedTuple

from penstock.schemas.schema import Reference, SchemaError
from penstock.schemas.stored.content import Content
from penstock.schemas.stored.names import in_context_of
from penstock.schemas.stored.state import State

CLOSURE_MAX = 500
DEPTH_MAX = 50
CLOSURE_BYTES_MAX = 8 << 20


class Step(NamedTuple):
    serial: int | None
    """Names a registered schema for as long as the process lives; None for one that is not registered."""
    kind: str
    text: str
    references: tuple[tuple[str, int], ...]
    """The name each reference is used by, and its place in the closure."""


Closure = tuple[Step, ...]


def closure_of(
    state: State, subject: str, kind: str, text: str, references: tuple[Reference, ...], *, is_new: bool
) -> Closure:
    """Of a schema as it is given. A new one may refer only to versions that are not deleted."""
    return _Collecting(state, is_new=is_new).closure(subject, Step(None, kind, text, ()), references)


def closure_of_content(state: State, subject: str, content: Content) -> Closure:
    step = Step(content.serial, content.kind, content.text, ())
    return _Collecting(state, is_new=False).closure(subject, step, content.references)


class _Collecting:
    def __init__(self, state: State, *, is_new: bool) -> None:
        self._state = state
        self._is_new = is_new
        self._steps: list[Step] = []
        self._places: dict[tuple[str, int], int] = {}
        self._open: set[tuple[str, int]] = set()
        self._bytes = 0

    def closure(self, subject: str, last: Step, references: tuple[Reference, ...]) -> Closure:
        found = self._found(subject, references)
        return (*self._steps, last._replace(references=found))

    def _found(self, subject: str, references: tuple[Reference, ...]) -> tuple[tuple[str, int], ...]:
        return tuple((reference.name, self._place(subject, reference)) for reference in references)

    def _place(self, parent: str, reference: Reference) -> int:
        at = (in_context_of(parent, reference.subject), reference.version)
        known = self._places.get(at)
        if known is not None:
            return known
        held = self._state.version(*at)
        if held is None or (held.deleted and self._is_new):
            raise SchemaError(
                f"the reference {reference.name!r} names version {reference.version} of subject "
                f"'{reference.subject}', which is not registered; register it first"
            )
        if at in self._open or len(self._open) >= DEPTH_MAX:
            raise SchemaError(f"its references go round in a circle or are more than {DEPTH_MAX} deep")
        content = held.content
        self._bytes += len(content.text)
        if len(self._steps) >= CLOSURE_MAX or self._bytes > CLOSURE_BYTES_MAX:
            raise SchemaError(
                f"it refers, in all, to more than {CLOSURE_MAX} schemas or {CLOSURE_BYTES_MAX} bytes of them"
            )
        self._open.add(at)
        found = self._found(held.subject, content.references)
        self._open.discard(at)
        self._steps.append(Step(content.serial, content.kind, content.text, found))
        self._places[at] = len(self._steps) - 1
        return len(self._steps) - 1
