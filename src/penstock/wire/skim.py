"""A message walked by its layout without building it: counts proven, nulls judged, unknown tagged fields cut out.

Called by wire.messages before kio reads any message, for what kio's reader lacks:
- It reserves memory for as many elements as a count claims, and the whole process aborts when there isn't enough.
- It builds every element a frame has room for, and takes null in every array.
- It refuses a tagged field it doesn't know, which Kafka's rule is to skip: a newer client may send one at any time.
Invariant: a message that comes out has as many elements as each count says, and no more than the caller allows.
"""

from collections.abc import Callable
from itertools import groupby
from struct import calcsize

from penstock.errors import MalformedFrame
from penstock.wire.primitives import I16, I32, MALFORMED, read_length, read_tags, read_uvarint, write_uvarint
from penstock.wire.schema import FIXED, EntityType, FieldSpec, field_specs, is_flexible


class Walk:
    """One walk over one message: where it may go, how much it may still count, what it cuts."""

    __slots__ = ("cuts", "elements_left", "view")

    def __init__(self, view: memoryview, elements_max: int) -> None:
        self.view = view
        self.elements_left = elements_max
        self.cuts: list[tuple[int, int, bytes]] = []  # (start, end, what stands there instead), in order

    def count(self, elements: int) -> None:
        self.elements_left -= elements
        if self.elements_left < 0:
            raise MalformedFrame("more elements than a request may have")

    def all(self, skip: "Skip") -> memoryview:
        """Walks to the end of the message; gives what is left of it after the cuts.

        Bytes behind it are ignored, as Kafka ignores them: librdkafka 2.16 sends three too many with Metadata v13.
        """
        end = skip(self, 0)
        # Positions only grow, so this also catches every length that ran past the frame.
        if end > len(self.view):
            raise MalformedFrame(f"the message runs {end - len(self.view)} bytes past the frame")
        self.view = self.view[:end]
        if not self.cuts:
            return self.view
        kept = bytearray()
        position = 0
        for start, stop, replacement in self.cuts:
            kept += self.view[position:start]
            kept += replacement
            position = stop
        kept += self.view[position:]
        return memoryview(kept)


Skip = Callable[[Walk, int], int]


def skim(skip: Skip, body: bytes, elements_max: int) -> bytes:
    """The message with only the tagged fields its class knows. Raises if it counts more than `elements_max`."""
    walk = Walk(memoryview(body), elements_max)
    try:
        kept = walk.all(skip)
    except MALFORMED as failure:
        raise MalformedFrame("message") from failure
    return bytes(kept) if walk.cuts or len(kept) != len(body) else body


def compile_skip(entity: EntityType) -> Skip:
    flexible = is_flexible(entity)
    specs = field_specs(entity)
    steps: list[Skip] = []
    for is_fixed, run in groupby((spec for spec in specs if spec.tag is None), key=_is_fixed):
        if is_fixed:  # neighbours of fixed size are skipped in one step
            steps.append(_fixed_skip(sum(_fixed_bytes(spec.kind) for spec in run)))
        else:
            steps.extend(_field_skip(spec, flexible) for spec in run)
    tag_skips = {spec.tag: _field_skip(spec, flexible) for spec in specs if spec.tag is not None}

    def skip(walk: Walk, position: int) -> int:
        for step in steps:
            position = step(walk, position)
        return _skip_tags(walk, position, tag_skips) if flexible else position

    return skip


def _skip_tags(walk: Walk, position: int, tag_skips: dict[int, Skip]) -> int:
    view = walk.view
    if view[position] == 0:
        return position + 1
    start = position
    kept: list[tuple[int, memoryview]] = []
    is_cut = False
    for tag, value_start, value_end in read_tags(view, position):
        position = value_end
        if tag in tag_skips:
            inner = Walk(view[value_start:value_end], walk.elements_left)
            kept.append((tag, inner.all(tag_skips[tag])))
            walk.elements_left = inner.elements_left
            is_cut = is_cut or bool(inner.cuts)
        elif tag >= 0:
            is_cut = True
    if is_cut:
        section = bytearray()
        write_uvarint(section, len(kept))
        for tag, value in kept:
            write_uvarint(section, tag)
            write_uvarint(section, len(value))
            section += value
        walk.cuts.append((start, position, bytes(section)))
    return position


def _is_fixed(spec: FieldSpec) -> bool:
    return not spec.is_array and _fixed_bytes(spec.kind) > 0


def _fixed_bytes(kind: str) -> int:
    """The size of a type of fixed size; 0 for the others."""
    if kind == "uuid":
        return 16
    return calcsize(">" + FIXED[kind]) if kind in FIXED else 0


def _field_skip(spec: FieldSpec, flexible: bool) -> Skip:
    if spec.is_array:
        return _array_skip(spec, flexible)
    return _element_skip(spec, flexible)


def _array_skip(spec: FieldSpec, flexible: bool) -> Skip:
    name, nullable = spec.name, spec.nullable
    element_bytes = _fixed_bytes(spec.kind)
    skip_element = _element_skip(spec, flexible)

    def skip(walk: Walk, position: int) -> int:
        count, position = read_length(walk.view, position, flexible)
        if count < 0:
            if not nullable:
                raise MalformedFrame(f"null in {name}")
            return position
        walk.count(count)
        if element_bytes:
            return position + count * element_bytes
        for _ in range(count):
            position = skip_element(walk, position)
        return position

    return skip


def _element_skip(spec: FieldSpec, flexible: bool) -> Skip:
    match spec.kind:
        case "entity":
            assert spec.entity is not None
            skip_entity = compile_skip(spec.entity)
            return _nullable_skip(skip_entity) if spec.nullable and not spec.is_array else skip_entity
        case "string":
            return _skip_compact if flexible else _skip_string
        case "bytes" | "records":
            return _skip_compact if flexible else _skip_bytes
        case kind:
            return _fixed_skip(_fixed_bytes(kind))


def _nullable_skip(skip_entity: Skip) -> Skip:
    def skip(walk: Walk, position: int) -> int:
        # 1 or -1 (KIP-893); kio refuses the rest.
        return skip_entity(walk, position + 1) if walk.view[position] == 1 else position + 1

    return skip


def _fixed_skip(size: int) -> Skip:
    def skip(walk: Walk, position: int) -> int:
        return position + size

    return skip


# Nulls need no thought here: kio refuses a null string or bytes where none may be, and lengths below null.


def _skip_string(walk: Walk, position: int) -> int:
    length = I16.unpack_from(walk.view, position)[0]
    return position + 2 + length if length > 0 else position + 2


def _skip_bytes(walk: Walk, position: int) -> int:
    length = I32.unpack_from(walk.view, position)[0]
    return position + 4 + length if length > 0 else position + 4


def _skip_compact(walk: Walk, position: int) -> int:
    length, position = read_uvarint(walk.view, position)
    return position + length - 1 if length else position
