"""An element's options written out: the standard ones by name, custom ones by their extension's.

Used by the printer. An option that no imported file defines has no name and is left out. Order is that of the numbers,
so that one meaning has one text.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from penstock.schemas.protobuf.interpreting import dynamic_options
from penstock.schemas.protobuf.literals import double_text, escape_bytes, float_text, quote_text
from penstock.schemas.protobuf.names import Scope

F = FieldDescriptorProto
_HIDDEN = frozenset({"map_entry", "uninterpreted_option"})
_DEPTH_MAX = 32
"""As deep as the parser reads."""


class OptionPrinter:
    def __init__(self, pool: Any, scope: Scope) -> None:
        """`pool` knows the extensions; None where the schema cannot have any."""
        self._pool = pool
        self._scope = scope

    def options(self, owner: Any, element: str) -> list[str]:
        """`name = value` for every option; `element`: the owner's full name."""
        if not owner.HasField("options"):
            return []
        message = None if self._pool is None else dynamic_options(self._pool, owner.options)
        found: list[str] = []
        for field, value in (owner.options if message is None else message).ListFields():
            if field.name in _HIDDEN and not field.is_extension:
                continue
            self._option(field, value, "", element, found)
        return found

    def _option(self, field: Any, value: Any, prefix: str, element: str, found: list[str]) -> None:
        name = prefix + (f"({self._shown(field.full_name, element)})" if field.is_extension else field.name)
        if field.name == "features" and not field.is_extension and not prefix:
            for inner, part in value.ListFields():
                self._option(inner, part, f"{name}.", element, found)
        elif field.is_repeated:
            found.extend(f"{name} = {item}" for item in self._items(field, value, 1))
        else:
            found.append(f"{name} = {self._value(field, value, 1)}")

    def _shown(self, full_name: str, element: str) -> str:
        """The name without a dot in front, where that means the same."""
        return full_name if self._scope.resolve(full_name, element) == full_name else f".{full_name}"

    def _items(self, field: Any, value: Any, depth: int) -> list[str]:
        entry = field.message_type
        if entry is None or not entry.GetOptions().map_entry:
            return [self._value(field, item, depth) for item in value]
        key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return [
            f"{{key: {self._value(key_field, key, depth)}, value: {self._value(value_field, value[key], depth + 1)}}}"
            for key in sorted(value)
        ]

    def _value(self, field: Any, value: Any, depth: int) -> str:
        match field.type:
            case F.TYPE_MESSAGE | F.TYPE_GROUP:
                return self._aggregate(value, depth)
            case F.TYPE_ENUM:
                known = field.enum_type.values_by_number.get(value)
                return str(value) if known is None else known.name
            case F.TYPE_BOOL:
                return "true" if value else "false"
            case F.TYPE_STRING:
                return quote_text(value)
            case F.TYPE_BYTES:
                return f'"{escape_bytes(value)}"'
            case F.TYPE_FLOAT:
                return float_text(value)
            case F.TYPE_DOUBLE:
                return double_text(value)
            case _:
                return str(value)

    def _aggregate(self, message: Any, depth: int) -> str:
        parts: list[str] = []
        # What the parser would not read is not written.
        for field, value in message.ListFields() if depth < _DEPTH_MAX // 2 else ():
            name = f"[{field.full_name}]" if field.is_extension else field.name
            if field.type == F.TYPE_GROUP and not field.is_extension:
                name = field.message_type.name
            if field.is_repeated:
                parts.append(f"{name}: [{', '.join(self._items(field, value, depth + 1))}]")
            else:
                parts.append(f"{name}: {self._value(field, value, depth + 1)}")
        return f"{{{', '.join(parts)}}}"
