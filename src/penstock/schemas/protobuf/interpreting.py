"""Options given their meaning: `(pkg.ext).field = value` becomes a field of the element's options message.

Called by compiling after linking. Options of the language itself need no more than descriptor.proto; custom ones need
a pool that knows their extensions, this file's own among them. What the options message keeps of a custom option is
its encoded form, as protoc leaves it.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.message import DecodeError

from penstock.schemas.protobuf.linking import INTEGER_RANGES
from penstock.schemas.protobuf.literals import single_precision
from penstock.schemas.protobuf.names import Scope, Thing
from penstock.schemas.protobuf.option_syntax import Entry, Option, OptionSet, Value
from penstock.schemas.protobuf.parsed_file import ParsedFile

F = FieldDescriptorProto
_TARGETS: dict[str, int] = {
    "FileOptions": 1,
    "ExtensionRangeOptions": 2,
    "MessageOptions": 3,
    "FieldOptions": 4,
    "OneofOptions": 5,
    "EnumOptions": 6,
    "EnumValueOptions": 7,
    "ServiceOptions": 8,
    "MethodOptions": 9,
}
"""What an option may stand on, by the numbers of FieldOptions.OptionTargetType."""
_TRUE = ("true", "True", "t")
_FALSE = ("false", "False", "f")


def interpret(parsed: ParsedFile, scope: Scope, pool_of: Callable[[], Any]) -> None:
    """`pool_of`: a pool with the file and all it imports; asked for only if there are custom options."""
    custom: list[tuple[OptionSet, list[Option]]] = []
    for option_set in parsed.option_sets:
        plain = [option for option in option_set.options if not _is_custom(option)]
        rest = [option for option in option_set.options if _is_custom(option)]
        if plain:
            _Interpreter(parsed, scope, None, option_set).apply(option_set.owner.options, plain)
        if rest:
            custom.append((option_set, rest))
    if not custom:
        return
    pool = pool_of()
    for option_set, options in custom:
        message = dynamic_options(pool, option_set.owner.options)
        if message is None:
            parsed.words.refuse(f"the option {options[0].text} is not known; import what defines it", options[0].start)
        _Interpreter(parsed, scope, pool, option_set).apply(message, options)
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            parsed.words.refuse(f"an option lacks {missing}, which is required", options[0].start)
        option_set.owner.options.ParseFromString(message.SerializeToString(deterministic=True))


def dynamic_options(pool: Any, options: Any) -> Any:
    """A copy of options that knows the pool's extensions; None where the pool has no descriptor.proto."""
    try:
        descriptor = pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
    except KeyError:
        return None
    message: Any = message_factory.GetMessageClass(descriptor)()
    try:
        message.ParseFromString(options.SerializeToString())
    except DecodeError:
        # Bytes that some extension cannot be: they stay what they are, unknown.
        return None
    return message


def _is_custom(option: Option) -> bool:
    return any(part.is_extension for part in option.parts) or _has_extension(option.value)


def _has_extension(value: Value) -> bool:
    if value.kind == "aggregate":
        return any(entry.is_extension or _has_extension(entry.value) for entry in value.data)
    return value.kind == "list" and any(_has_extension(item) for item in value.data)


class _Interpreter:
    def __init__(self, parsed: ParsedFile, scope: Scope, pool: Any, option_set: OptionSet) -> None:
        self._parsed = parsed
        self._scope = scope
        self._pool = pool
        package = parsed.file.package
        self._element = f"{package}.{option_set.scope}" if package else option_set.scope
        self._seen: set[tuple[str, ...]] = set()
        self._target = _TARGETS[option_set.owner.options.DESCRIPTOR.name]

    def apply(self, message: Any, options: list[Option]) -> None:
        for option in options:
            self._option(message, option)

    def _option(self, message: Any, option: Option) -> None:
        path: tuple[str, ...] = ()
        field: Any = None
        for part in option.parts:
            if field is not None:
                if field.message_type is None or field.is_repeated:
                    self._refuse(f"the option {option.text} has too many parts", option.start)
                message = _container(message, field)
                message.SetInParent()
            field = self._field(message, part.name, part.is_extension, option.start)
            if field is None or (not path and field.name in ("uninterpreted_option", "map_entry")):
                self._refuse(f"the option {option.text} is not known", option.start)
            self._check_target(field, option.start)
            path = (*path, field.full_name)
        if not field.is_repeated:
            if path in self._seen:
                self._refuse(f"the option {option.text} is given twice", option.start)
            # A part that is set sets the whole.
            self._seen.update(path[:end] for end in range(1, len(path) + 1))
        self._assign(message, field, option.value)

    def _field(self, message: Any, name: str, is_extension: bool, start: int) -> Any:
        descriptor = message.DESCRIPTOR
        if not is_extension:
            field = descriptor.fields_by_name.get(name)
            if field is None:
                # A group is called by its type's name.
                group = descriptor.fields_by_name.get(name.lower())
                if group is not None and group.type == F.TYPE_GROUP and group.message_type.name == name:
                    return group
            return field
        full_name = self._scope.resolve(name, self._element)
        if full_name is None or self._scope.thing(full_name) is not Thing.EXTENSION:
            self._refuse(f"the option ({name}) is not known; import the file that defines it", start)
        field = self._pool.FindExtensionByName(full_name)
        if field.containing_type is not descriptor:
            self._refuse(f"({name}) extends {field.containing_type.full_name}, not {descriptor.full_name}", start)
        return field

    def _check_target(self, field: Any, start: int) -> None:
        allowed: list[int] = field.GetOptions().targets if field.has_options else []
        if allowed and self._target not in allowed:
            self._refuse(f"the option {field.name} has no meaning here; it belongs to other elements", start)

    def _assign(self, message: Any, field: Any, value: Value) -> None:
        if value.kind == "list":
            if not field.is_repeated:
                self._refuse(f"{field.name} takes one value, not a list", value.start)
            for item in value.data:
                self._assign(message, field, item)
            return
        container = _container(message, field)
        if field.message_type is None:
            scalar = self._scalar(field, value)
            if field.is_repeated:
                container.append(scalar)
            elif field.is_extension:
                message.Extensions[field] = scalar
            else:
                setattr(message, field.name, scalar)
            return
        if value.kind != "aggregate":
            self._refuse(f"{field.name} is a message; write its fields in braces", value.start)
        if field.message_type.GetOptions().map_entry:
            self._map_entry(container, field, value)
        else:
            target = container.add() if field.is_repeated else container
            target.SetInParent()
            self._fill(target, value)

    def _fill(self, message: Any, value: Value) -> None:
        seen: set[str] = set()
        for entry in value.data:
            if "/" in entry.name:
                self._any(message, entry)
                continue
            field = self._field(message, entry.name, entry.is_extension, entry.start)
            if field is None:
                self._refuse(f"{message.DESCRIPTOR.full_name} has no field {entry.name!r}", entry.start)
            if not field.is_repeated:
                if field.full_name in seen:
                    self._refuse(f"{entry.name} is given twice", entry.start)
                seen.add(field.full_name)
            self._check_target(field, entry.start)
            self._assign(message, field, entry.value)

    def _map_entry(self, container: Any, field: Any, value: Value) -> None:
        parts = {entry.name: entry for entry in value.data}
        if not parts.keys() <= {"key", "value"}:
            self._refuse(f"an entry of {field.name} has a key and a value, nothing else", value.start)
        key_field, value_field = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        key = self._scalar(key_field, parts["key"].value) if "key" in parts else key_field.default_value
        if value_field.message_type is not None:
            target = container[key]
            if "value" in parts:
                self._fill(target, parts["value"].value)
        elif "value" in parts:
            container[key] = self._scalar(value_field, parts["value"].value)
        else:
            container[key] = value_field.default_value

    def _any(self, message: Any, entry: Entry) -> None:
        """`[host/pkg.Type] { ... }`, the readable form of a google.protobuf.Any."""
        name = entry.name.rpartition("/")[2]
        if message.DESCRIPTOR.full_name != "google.protobuf.Any" or entry.value.kind != "aggregate":
            self._refuse(f"[{entry.name}] stands only in a google.protobuf.Any, before braces", entry.start)
        try:
            inner: Any = message_factory.GetMessageClass(self._pool.FindMessageTypeByName(name))()
        except KeyError:
            self._refuse(f"the type {name!r} is not known here; import the file that defines it", entry.start)
        self._fill(inner, entry.value)
        message.type_url = entry.name
        message.value = inner.SerializePartialToString(deterministic=True)

    def _scalar(self, field: Any, value: Value) -> Any:
        kind, data = value.kind, value.data
        match field.type:
            case F.TYPE_BOOL if kind == "name" and data in (*_TRUE, *_FALSE):
                return data in _TRUE
            case F.TYPE_STRING if kind == "string":
                try:
                    return data.decode()
                except UnicodeDecodeError:
                    return self._refuse(f"{field.name} is no UTF-8 text", value.start)
            case F.TYPE_BYTES if kind == "string":
                return data
            case F.TYPE_FLOAT if kind in ("integer", "float") or data in ("inf", "nan"):
                return single_precision(float(data))
            case F.TYPE_DOUBLE if kind in ("integer", "float") or data in ("inf", "nan"):
                return float(data)
            case F.TYPE_ENUM if kind == "name":
                if data in field.enum_type.values_by_name:
                    return field.enum_type.values_by_name[data].number
                return self._refuse(f"{field.enum_type.full_name} has no value {data!r}", value.start)
            case F.TYPE_ENUM if kind == "integer" and data in field.enum_type.values_by_number:
                return data
            case _ if kind == "integer" and field.type in INTEGER_RANGES:
                low, high = INTEGER_RANGES[field.type]
                if low <= data <= high:
                    return data
                return self._refuse(f"{field.name} must lie between {low} and {high}", value.start)
            case _:
                pass
        return self._refuse(f"this is no value for {field.name}, which is of another type", value.start)

    def _refuse(self, why: str, start: int) -> NoReturn:
        self._parsed.words.refuse(why, start)


def _container(message: Any, field: Any) -> Any:
    if field.is_extension:
        return message.Extensions[field]
    return getattr(message, field.name)
