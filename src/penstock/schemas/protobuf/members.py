"""In which order a message's fields and nested messages are written so that reading them gives their order back.

Used by the printer. A map and a group make a nested message where they stand, and records name their message by its
place among the nested ones: so a map that comes after a nested message has to be written after it. As long as nothing
forbids it, fields come first in a message, messages in a file.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, OneofDescriptorProto

F = FieldDescriptorProto


class Group(NamedTuple):
    """Fields written in one block: those of a oneof, or (without one) extensions of one message."""

    oneof: OneofDescriptorProto | None
    fields: list[FieldDescriptorProto]


Member = DescriptorProto | FieldDescriptorProto | Group


class Members:
    def __init__(
        self,
        nested: Sequence[DescriptorProto],
        fields: Sequence[FieldDescriptorProto],
        oneofs: Sequence[OneofDescriptorProto],
        extensions: Sequence[FieldDescriptorProto],
        scope: str,
        *,
        is_file: bool = False,
    ) -> None:
        """`scope`: the full name of what they stand in."""
        self._nested = nested
        self._is_file = is_file
        prefix = f".{scope}." if scope else "."
        by_name = {prefix + one.name: one for one in nested}
        # By number and extendee: two extensions may share a number, and descriptors have no identity of their own.
        self._made: dict[tuple[str, int], DescriptorProto] = {}
        for field in (*fields, *extensions):
            target = by_name.get(field.type_name)
            if target is not None and (field.type == F.TYPE_GROUP or target.options.map_entry):
                self._made[field.extendee, field.number] = target
        self._units = [*_field_units(fields, oneofs), *_extension_units(extensions)]

    def made_for(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        """The nested message that is there because of this map or group."""
        return self._made.get((field.extendee, field.number))

    def in_order(self) -> Iterator[Member]:
        makers: dict[str, int] = {}
        for index, unit in enumerate(self._units):
            for field in unit.fields if isinstance(unit, Group) else [unit]:
                made = self.made_for(field)
                if made is not None:
                    makers[made.name] = index
        waiting = dict(enumerate(self._units))
        last_made = max((place for place, one in enumerate(self._nested) if one.name in makers), default=-1)
        busy = set(makers.values())
        free = iter([index for index in waiting if index not in busy])
        upcoming = next(free, None)
        for one in self._nested[: last_made + 1]:
            maker = makers.get(one.name)
            if maker is None:
                yield one
                continue
            # What makes no message may stand anywhere: where it was.
            while upcoming is not None and upcoming < maker:
                yield waiting.pop(upcoming)
                upcoming = next(free, None)
            if maker in waiting:
                yield waiting.pop(maker)
        rest = self._nested[last_made + 1 :]
        if self._is_file:
            yield from rest
            yield from waiting.values()
        else:
            yield from waiting.values()
            yield from rest


def _field_units(
    fields: Sequence[FieldDescriptorProto], oneofs: Sequence[OneofDescriptorProto]
) -> list[FieldDescriptorProto | Group]:
    units: list[FieldDescriptorProto | Group] = []
    groups: dict[int, Group] = {}
    for field in fields:
        if not field.HasField("oneof_index") or field.proto3_optional:
            units.append(field)
        elif field.oneof_index in groups:
            groups[field.oneof_index].fields.append(field)
        else:
            groups[field.oneof_index] = Group(oneofs[field.oneof_index], [field])
            units.append(groups[field.oneof_index])
    return units


def _extension_units(extensions: Sequence[FieldDescriptorProto]) -> list[Group]:
    units: list[Group] = []
    for field in extensions:
        if not units or units[-1].fields[0].extendee != field.extendee:
            units.append(Group(None, []))
        units[-1].fields.append(field)
    return units
