"""A message walked by its layout without building it: elements counted, tagged fields we don't know cut out.

Called by wire.messages, for what kio's reader lacks: it builds every element that a frame has room for, and it
refuses a tagged field it doesn't know, which Kafka's rule is to skip (a newer client may send one at any time).
"""

from collections.abc import Callable
from struct import calcsize

from penstock.errors import MalformedFrame
from penstock.wire.primitives import MALFORMED, read_length, read_nullable_string, read_tags, write_uvarint
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
        """Walks to the end, which must be where `skip` comes out; gives what is left after the cuts."""
        end = skip(self, 0)
        if end != len(self.view):
            raise MalformedFrame(f"{len(self.view) - end} bytes after the message")
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
    return bytes(kept) if walk.cuts else body


def compile_skip(entity: EntityType) -> Skip:
    flexible = is_flexible(entity)
    specs = field_specs(entity)
    skips = [_field_skip(spec, flexible) for spec in specs if spec.tag is None]
    tag_skips = {spec.tag: _field_skip(spec, flexible) for spec in specs if spec.tag is not None}

    def skip(walk: Walk, position: int) -> int:
        for skip_field in skips:
            position = skip_field(walk, position)
        if flexible:
            position = _skip_tags(walk, position, tag_skips)
        return position

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


def _field_skip(spec: FieldSpec, flexible: bool) -> Skip:
    if spec.is_array:
        return _array_skip(spec, flexible)
    if spec.kind == "entity":
        assert spec.entity is not None
        skip_entity = compile_skip(spec.entity)
        return _nullable_entity_skip(skip_entity) if spec.nullable else skip_entity
    return _primitive_skip(spec.kind, flexible)


def _array_skip(spec: FieldSpec, flexible: bool) -> Skip:
    nullable = spec.nullable
    skip_element = compile_skip(spec.entity) if spec.entity is not None else _primitive_skip(spec.kind, flexible)

    def skip(walk: Walk, position: int) -> int:
        count, position = read_length(walk.view, position, flexible)
        if count < 0:
            if not nullable:
                raise MalformedFrame(f"null in {spec.name}")
            return position
        walk.count(count)
        for _ in range(count):
            position = skip_element(walk, position)
        return position

    return skip


def _nullable_entity_skip(skip_entity: Skip) -> Skip:
    def skip(walk: Walk, position: int) -> int:
        marker = walk.view[position]
        return skip_entity(walk, position + 1) if marker == 1 else position + 1

    return skip


def _primitive_skip(kind: str, flexible: bool) -> Skip:
    if kind == "string":

        def skip_string(walk: Walk, position: int) -> int:
            return read_nullable_string(walk.view, position, flexible)[1]

        return skip_string
    if kind in ("bytes", "records"):

        def skip_bytes(walk: Walk, position: int) -> int:
            length, position = read_length(walk.view, position, flexible)
            return _within(walk, position + max(length, 0))

        return skip_bytes
    size = 16 if kind == "uuid" else calcsize(">" + FIXED[kind])

    def skip_fixed(walk: Walk, position: int) -> int:
        return _within(walk, position + size)

    return skip_fixed


def _within(walk: Walk, position: int) -> int:
    if position > len(walk.view):
        raise MalformedFrame("message runs past the frame")
    return position
