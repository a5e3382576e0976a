"""Any descriptor prints as source that gives it back; and what is called compatible can really be read."""

from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.schemas.protobuf import ProtobufSchema, parse_protobuf, serialized
from penstock.schemas.protobuf.encoded import decode, encode, is_same
from penstock.schemas.protobuf.field_syntax import LABELS, SCALARS

F = descriptor_pb2.FieldDescriptorProto
_SAFE_KEYS = [name for name in SCALARS if name not in ("float", "double", "bytes")]
_DEFAULTS = {
    "string": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1).map(str),
    "bool": st.sampled_from(["true", "false"]),
    "double": st.sampled_from(["1.5", "-0.25", "inf", "-inf", "nan", "1e+100", "0.1"]),
    "bytes": st.sampled_from(["", "abc", "\\000\\377", "\\n\\t", "\\\"\\'", "\\\\"]),
}


@st.composite
def descriptors(draw: st.DrawFn) -> Any:
    """A file of messages, enums, maps, groups, oneofs, extensions; every name in it its own."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    package = draw(st.sampled_from(["", "p", "p.q"]))
    file = descriptor_pb2.FileDescriptorProto(package=package, syntax="" if syntax == "proto2" else syntax)
    _Maker(draw, syntax, file).fill()
    return file


class _Maker:
    def __init__(self, draw: st.DrawFn, syntax: str, file: Any) -> None:
        self.draw = draw
        self.is_3 = syntax == "proto3"
        self.file = file
        self.names = 0
        self.types: list[tuple[str, Any]] = []

    def name(self, start: str) -> str:
        self.names += 1
        return f"{start}{self.names}"

    def fill(self) -> None:
        prefix = f".{self.file.package}." if self.file.package else "."
        for _ in range(self.draw(st.integers(0, 3))):
            self.enum(self.file.enum_type.add(), prefix)
        for _ in range(self.draw(st.integers(0, 4))):
            self.message(self.file.message_type.add(), prefix, 0)

    def enum(self, enum: Any, prefix: str) -> None:
        enum.name = self.name("E")
        for number in [0, *self.draw(st.lists(st.integers(-100, 100).filter(bool), unique=True, max_size=3))]:
            enum.value.add(name=self.name("V"), number=number, options=self.draw(_flags("EnumValueOptions")))
        self.types.append((prefix + enum.name, F.TYPE_ENUM))

    def message(self, message: Any, prefix: str, depth: int) -> None:
        message.name = message.name or self.name("M")
        inside = f"{prefix}{message.name}."
        self.types.append((inside[:-1], F.TYPE_MESSAGE))
        numbers = iter(range(1, 100))
        for _ in range(self.draw(st.integers(0, 4))):
            kind = self.draw(st.sampled_from(["field", "field", "map", "group", "oneof", "nested", "enum"]))
            if kind == "nested" and depth < 3:
                self.message(message.nested_type.add(), inside, depth + 1)
            elif kind == "enum":
                self.enum(message.enum_type.add(), inside)
            elif kind == "map":
                self.map(message, inside, next(numbers))
            elif kind == "group" and not self.is_3 and depth < 3:
                self.group(message, inside, next(numbers), depth)
            elif kind == "oneof":
                index = len(message.oneof_decl)
                message.oneof_decl.add(name=self.name("o"))
                for _ in range(self.draw(st.integers(1, 3))):
                    self.field(message.field.add(number=next(numbers), label=1, oneof_index=index))
            else:
                labels = ["optional", "repeated"] if self.is_3 else list(LABELS)
                field = message.field.add(number=next(numbers), label=LABELS[self.draw(st.sampled_from(labels))])
                self.field(field)
                field.proto3_optional = self.is_3 and field.label == 1 and self.draw(st.booleans())
        if self.draw(st.booleans()):
            message.reserved_range.add(start=200, end=self.draw(st.sampled_from([201, 300, 1 << 29])))
            message.reserved_name.append(self.name("r"))
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            else:
                field.ClearField("proto3_optional")

    def field(self, field: Any) -> None:
        field.name = self.name("f")
        if self.types and self.draw(st.booleans()):
            field.type_name, field.type = self.draw(st.sampled_from(self.types))
        else:
            name = self.draw(st.sampled_from(list(SCALARS)))
            field.type = SCALARS[name]
            if not self.is_3 and field.label == 1 and name in _DEFAULTS and self.draw(st.booleans()):
                field.default_value = self.draw(_DEFAULTS[name])
        if self.draw(st.booleans()):
            field.json_name = self.name("json")
        options = self.draw(_flags("FieldOptions"))
        if options.ByteSize():
            field.options.CopyFrom(options)

    def map(self, message: Any, inside: str, number: int) -> None:
        name = self.name("m")
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=SCALARS[self.draw(st.sampled_from(_SAFE_KEYS))])
        value = entry.field.add(number=2, label=1)
        self.field(value)
        value.name = "value"
        for extra in ("default_value", "json_name", "options"):
            value.ClearField(extra)
        message.field.add(name=name, number=number, label=3, type=F.TYPE_MESSAGE, type_name=inside + entry.name)

    def group(self, message: Any, inside: str, number: int, depth: int) -> None:
        nested = message.nested_type.add(name=self.name("G"))
        name = inside + nested.name
        message.field.add(name=nested.name.lower(), number=number, label=1, type=F.TYPE_GROUP, type_name=name)
        self.message(nested, inside, depth + 1)


def _flags(kind: str) -> st.SearchStrategy[Any]:
    options: Any = getattr(descriptor_pb2, kind)
    return st.sampled_from([options(), options(), options(deprecated=True), options(debug_redact=True)])


@settings(max_examples=60, deadline=None)
@given(descriptors())
def test_a_descriptor_prints_and_reads_back(file: Any) -> None:
    schema = parse_protobuf(encode(file), [])
    assert isinstance(schema, ProtobufSchema)
    assert is_same(decode(encode(file)), schema.compiled.file)
    again = parse_protobuf(schema.canonical, [])
    assert again.canonical == schema.canonical
    assert serialized(again) == serialized(schema)
    normal = schema.normalized()
    assert normal.normalized() is normal
    assert normal.differences(schema) == schema.differences(normal) == schema.differences(again) == []


_TYPES = [
    "int32",
    "uint64",
    "bool",
    "sint64",
    "fixed32",
    "sfixed32",
    "fixed64",
    "float",
    "double",
    "string",
    "bytes",
    "E",
    "N",
]


@st.composite
def messages(draw: st.DrawFn) -> str:
    """A message of few numbers, so that two of them meet."""
    fields: list[str] = []
    oneof: list[str] = []
    for number in draw(st.lists(st.integers(1, 4), unique=True, max_size=4)):
        type_name = draw(st.sampled_from(_TYPES))
        match draw(st.sampled_from(["optional", "repeated", "required", "oneof", "map", "packed"])):
            case "oneof":
                oneof.append(f"{type_name} f{number} = {number};")
            case "map":
                fields.append(f"map<string, {type_name}> f{number} = {number};")
            case "packed" if type_name not in ("string", "bytes", "N"):
                fields.append(f"repeated {type_name} f{number} = {number} [packed = true];")
            case "required" as label:
                fields.append(f"{label} {type_name} f{number} = {number};")
            case label:
                fields.append(f"{'optional' if label == 'optional' else 'repeated'} {type_name} f{number} = {number};")
    body = " ".join(fields) + (f" oneof o {{ {' '.join(oneof)} }}" if oneof else "")
    return f'syntax = "proto2"; message M {{ {body} }} message N {{ optional int32 n = 1; }} enum E {{ Z = 0; A = 1; }}'


def _filled(schema: ProtobufSchema) -> Any:
    """A value in which every field is set, lists with two items."""
    message: Any = message_factory.GetMessageClass(schema.compiled.pool.FindMessageTypeByName("M"))()
    for field in message.DESCRIPTOR.fields:
        values: Any = {F.TYPE_STRING: "a", F.TYPE_BYTES: b"b", F.TYPE_BOOL: True, F.TYPE_FLOAT: 1.5, F.TYPE_DOUBLE: 1.5}
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value_field = field.message_type.fields_by_name["value"]
            target = getattr(message, field.name)
            if value_field.message_type is not None:
                target["k"].n = 1
            else:
                target["k"] = values.get(value_field.type, 1)
        elif field.message_type is not None:
            for one in (
                [getattr(message, field.name)] if not field.is_repeated else [getattr(message, field.name).add()]
            ):
                one.n = 1
        elif field.is_repeated:
            getattr(message, field.name).extend([values.get(field.type, 1)] * 2)
        else:
            setattr(message, field.name, values.get(field.type, 1))
    return message


@settings(max_examples=150, deadline=None)
@given(messages(), messages())
def test_what_is_compatible_can_be_read(older_source: str, newer_source: str) -> None:
    older, newer = parse_protobuf(older_source, []), parse_protobuf(newer_source, [])
    assert isinstance(older, ProtobufSchema)
    assert isinstance(newer, ProtobufSchema)
    assume(newer.differences(older) == [])
    assert newer.validate(memoryview(b"\0" + _filled(older).SerializeToString())) is None
