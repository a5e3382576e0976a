"""Nested mappings written as a message, by steps compiled once from the message's class.

Called by wire.messages.
Invariants:
- A name no version of the message knows is an AssertionError; one that only this version lacks is dropped.
- A missing name takes the field's default; a tagged field equal to its default is left out.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from penstock.wire.primitives import I16, write_length, write_nullable_string, write_uvarint
from penstock.wire.schema import FIXED, EntityType, FieldSpec, field_specs, is_flexible

Body = Mapping[str, Any]
Write = Callable[[bytearray, Any], None]  # one value
Step = Callable[[bytearray, Callable[[str, Any], Any]], None]  # one or more fields of a mapping, through its `get`
# Told where in the message a mapping lies and which names its version lacks; raises if every version lacks one.
Unknown = Callable[[tuple[str, ...], set[str]], None]

_NO_UUID = bytes(16)
_NULL_ENTITY = b"\xff"  # KIP-893: a nullable structure is preceded by -1 or 1
_PRESENT_ENTITY = b"\x01"


def compile_writer(entity: EntityType, unknown: Unknown, path: tuple[str, ...] = ()) -> Write:
    flexible = is_flexible(entity)
    specs = field_specs(entity)
    steps = _steps([spec for spec in specs if spec.tag is None], flexible, unknown, path)
    if flexible:
        steps.append(_tags_step([spec for spec in specs if spec.tag is not None], unknown, path))
    accepted = {spec.name for spec in specs}

    def write(out: bytearray, body: Body) -> None:
        if not body.keys() <= accepted:
            strangers = set(body) - accepted
            unknown(path, strangers)
            accepted.update(strangers)
        get = body.get
        for step in steps:
            step(out, get)

    return write


def _steps(specs: list[FieldSpec], flexible: bool, unknown: Unknown, path: tuple[str, ...]) -> list[Step]:
    steps: list[Step] = []
    run: list[FieldSpec] = []  # neighbours of fixed size are packed by one Struct
    for spec in specs:
        if spec.kind in FIXED and not spec.is_array:
            run.append(spec)
            continue
        if run:
            steps.append(_run_step(run))
            run = []
        steps.append(_value_step(spec, _value_writer(spec, flexible, unknown, path)))
    if run:
        steps.append(_run_step(run))
    return steps


def _run_step(run: list[FieldSpec]) -> Step:
    pack = Struct(">" + "".join(FIXED[spec.kind] for spec in run)).pack
    if len(run) == 1:
        name, default = run[0].name, run[0].default

        def write_one(out: bytearray, get: Callable[[str, Any], Any]) -> None:
            out += pack(get(name, default))

        return write_one
    pairs = [(spec.name, spec.default) for spec in run]

    def write_run(out: bytearray, get: Callable[[str, Any], Any]) -> None:
        out += pack(*[get(name, default) for name, default in pairs])

    return write_run


def _value_step(spec: FieldSpec, write_value: Write) -> Step:
    name, default = spec.name, spec.default

    def write_field(out: bytearray, get: Callable[[str, Any], Any]) -> None:
        write_value(out, get(name, default))

    return write_field


def _tags_step(specs: list[FieldSpec], unknown: Unknown, path: tuple[str, ...]) -> Step:
    tags: list[tuple[int, str, Any, Write, bytes]] = []
    for spec in sorted(specs, key=lambda spec: spec.tag or 0):
        write_value = _value_writer(spec, True, unknown, path)
        default = bytearray()
        write_value(default, spec.default)
        assert spec.tag is not None
        tags.append((spec.tag, spec.name, spec.default, write_value, bytes(default)))

    def write_tags(out: bytearray, get: Callable[[str, Any], Any]) -> None:
        count = 0
        section = bytearray()
        for tag, name, default, write_value, default_bytes in tags:
            value = get(name, default)
            if value is default:
                continue
            raw = bytearray()
            write_value(raw, value)
            if bytes(raw) != default_bytes:
                count += 1
                write_uvarint(section, tag)
                write_uvarint(section, len(raw))
                section += raw
        write_uvarint(out, count)
        out += section

    def write_no_tags(out: bytearray, get: Callable[[str, Any], Any]) -> None:
        out.append(0)

    return write_tags if tags else write_no_tags


def _value_writer(spec: FieldSpec, flexible: bool, unknown: Unknown, path: tuple[str, ...]) -> Write:
    if spec.kind == "entity":
        assert spec.entity is not None
        write_value = compile_writer(spec.entity, unknown, (*path, spec.name))
        if spec.nullable and not spec.is_array:
            return _nullable_entity_writer(write_value)
    else:
        write_value = _primitive_writer(spec.kind, flexible, spec.nullable and not spec.is_array)
    if not spec.is_array:
        return write_value
    if spec.kind in FIXED:
        return _fixed_array_writer(FIXED[spec.kind], flexible, spec.nullable)
    return _array_writer(write_value, flexible, spec.nullable)


def _nullable_entity_writer(write_entity: Write) -> Write:
    def write(out: bytearray, value: Body | None) -> None:
        if value is None:
            out += _NULL_ENTITY
        else:
            out += _PRESENT_ENTITY
            write_entity(out, value)

    return write


def _array_writer(write_element: Write, flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, values: Any) -> None:
        if values is None:
            assert nullable, "null in an array that may not be null"
            write_length(out, -1, flexible)
            return
        write_length(out, len(values), flexible)
        for value in values:
            write_element(out, value)

    return write


def _fixed_array_writer(code: str, flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, values: Any) -> None:
        if values is None:
            assert nullable, "null in an array that may not be null"
            write_length(out, -1, flexible)
            return
        write_length(out, len(values), flexible)
        out += Struct(f">{len(values)}{code}").pack(*values) if values else b""

    return write


def _primitive_writer(kind: str, flexible: bool, nullable: bool) -> Write:
    match kind:
        case "string":
            return _string_writer(flexible, nullable)
        case "bytes" | "records":
            return _bytes_writer(flexible, nullable)
        case "uuid":
            return _write_uuid
        case _:
            pack = Struct(">" + FIXED[kind]).pack

            def write(out: bytearray, value: Any) -> None:
                out += pack(value)

            return write


def _string_writer(flexible: bool, nullable: bool) -> Write:
    def write_compact(out: bytearray, value: str) -> None:
        raw = value.encode()
        length = len(raw) + 1
        if length < 0x80:
            out.append(length)
        else:
            write_uvarint(out, length)
        out += raw

    def write_legacy(out: bytearray, value: str) -> None:
        raw = value.encode()
        out += I16.pack(len(raw))
        out += raw

    def write_nullable(out: bytearray, value: str | None) -> None:
        write_nullable_string(out, value, flexible)

    if nullable:
        return write_nullable
    return write_compact if flexible else write_legacy


def _bytes_writer(flexible: bool, nullable: bool) -> Write:
    def write(out: bytearray, value: bytes | bytearray | memoryview | None) -> None:
        if value is None:
            assert nullable, "null in bytes that may not be null"
            write_length(out, -1, flexible)
            return
        write_length(out, len(value), flexible)
        out += value

    return write


def _write_uuid(out: bytearray, value: Any) -> None:
    out += _NO_UUID if value is None else value.bytes
