"""The reader's Avro schema made ready for fastavro, and what that would overlook between a writer's and a reader's.

Called by avro_decoder. Logical types are taken off for speed (numbers become times in Arrow), and the branches of a
complex union are told apart by putting each into a record of one field, which is encoded as the field itself.
avro_widening does the same to a writer's schema, by the names that are given here.
"""

from typing import Any, cast

import fastavro

from penstock.spark.errors import BadOption
from penstock.spark.formats.avro_schema import AvroSchema, branches, is_complex, is_decimal, kind_of, logical_of


def member_key(schema: AvroSchema, branch: Any) -> str:
    """What tells a type of a union from the others."""
    found = schema.of(branch)
    name = cast("dict[str, Any]", found).get("name") if isinstance(found, dict) else None
    return kind_of(found) if name is None else str(name).replace(".", "_")


def member_alias(key: str) -> str:
    """The name of the record that a member's type is put into, without its namespace."""
    return f"member_of_{key}"


def prepare_reader(schema: AvroSchema) -> Any:
    """Parsed again, so that it carries its names; a reference of the registry is written out where it is first used."""
    # A name without a namespace would take on that of the record it is put into, and be unknown elsewhere.
    written: dict[str, str] = {}
    members = 0

    def walk(one: Any) -> Any:
        one = schema.of(one)
        if isinstance(one, list):
            return union(cast("list[Any]", one))
        if not isinstance(one, dict):
            return one
        given = {name: value for name, value in cast("dict[str, Any]", one).items() if not name.startswith("__")}
        if "name" in given:
            name = str(given["name"])
            if name in written:
                return written[name]
            written[name] = given["name"] = name if "." in name else f"penstock_reader.{name}"
        if not is_decimal(given):
            given.pop("logicalType", None)
        for inner in ("items", "values"):
            if inner in given:
                given[inner] = walk(given[inner])
        if "fields" in given:
            given["fields"] = [walk_field(field) for field in given["fields"]]
        return given

    def walk_field(field: dict[str, Any]) -> dict[str, Any]:
        walked = {**field, "type": walk(field["type"])}
        if "default" in field:
            walked["default"] = _default_in_members(schema, field["type"], field["default"])
        return walked

    def union(one: list[Any]) -> Any:
        if not is_complex(one):
            return [walk(branch) for branch in one]
        numbers = {id(branch): index for index, branch in enumerate(branches(one))}
        return [branch if kind_of(branch) == "null" else wrap(branch, numbers[id(branch)]) for branch in one]

    def wrap(branch: Any, index: int) -> Any:
        nonlocal members
        members += 1
        key, name = member_key(schema, branch), f"penstock_member.number_{members}"
        field = {"name": f"member{index}", "aliases": [key], "type": walk(branch)}
        return {"type": "record", "name": name, "aliases": [member_alias(key)], "fields": [field]}

    return fastavro.parse_schema(walk(schema.root))


def check_units(writer: AvroSchema, reader: AvroSchema) -> None:
    """A time in milliseconds read as microseconds would be a wrong time, and no registry refuses the change."""

    def compare(one: Any, other: Any, where: str) -> None:
        one, other = writer.of(one), reader.of(other)
        if isinstance(one, list) or isinstance(other, list):
            written, read = _branches_of(writer, one), _branches_of(reader, other)
            for ours in read:
                # One pair for each of the reader's, whose number is bounded; a writer's schema may be made to explode.
                is_only_pair = len(written) == len(read) == 1
                theirs = next((it for it in written if is_only_pair or _is_same_branch(it, ours)), None)
                if theirs is not None:
                    compare(theirs, ours, where)
            return
        if not isinstance(one, dict) or not isinstance(other, dict):
            return
        theirs, ours = logical_of(one), logical_of(other)
        if theirs != ours and "timestamp" in theirs and "timestamp" in ours:
            raise BadOption(f"{where.lstrip('.')} is {theirs} there and {ours} in the reader's schema")
        for inner in ("items", "values"):
            if inner in one and inner in other:
                compare(one[inner], other[inner], where)
        fields = {field["name"]: field["type"] for field in cast("list[Any]", one.get("fields", []))}
        for field in cast("list[Any]", other.get("fields", [])):
            name = next((name for name in (field["name"], *field.get("aliases", ())) if name in fields), None)
            if name is not None:
                compare(fields[name], field["type"], f"{where}.{name}")

    compare(writer.root, reader.root, "")


def _default_in_members(schema: AvroSchema, kind: Any, default: Any) -> Any:
    """fastavro hands a default out as it stands in the schema, so it must look like a value that was read."""
    kind = schema.of(kind)
    if isinstance(kind, list):
        union = cast("list[Any]", kind)
        # The first branch's by Avro's rule up to 1.11, that of any branch since.
        fitting = (index for index, one in enumerate(branches(union)) if _may_be_default(schema.of(one), default))
        if default is None or (index := next(fitting, None)) is None:
            return default
        inner = _default_in_members(schema, branches(union)[index], default)
        return {f"member{index}": inner} if is_complex(union) else inner
    if not _may_be_default(kind, default):
        return default
    match kind_of(kind):
        case "record" | "error":
            types = {field["name"]: field["type"] for field in kind["fields"]}
            given = {name: value for name, value in default.items() if name in types}
            return {name: _default_in_members(schema, types[name], value) for name, value in given.items()}
        case "array":
            return [_default_in_members(schema, kind["items"], one) for one in default]
        case "map":
            return {name: _default_in_members(schema, kind["values"], one) for name, one in default.items()}
        case _:
            return default


def _may_be_default(kind: Any, default: Any) -> bool:
    """As JSON writes defaults: bytes and symbols are text there."""
    match kind_of(kind):
        case "boolean":
            return isinstance(default, bool)
        case "int" | "long":
            return isinstance(default, int) and not isinstance(default, bool)
        case "float" | "double":
            return isinstance(default, int | float) and not isinstance(default, bool)
        case "array":
            return isinstance(default, list)
        case "map" | "record" | "error":
            return isinstance(default, dict)
        case _:
            return isinstance(default, str)


def _branches_of(schema: AvroSchema, one: Any) -> list[Any]:
    return [schema.of(branch) for branch in branches(cast("list[Any]", one) if isinstance(one, list) else [one])]


def _is_same_branch(one: Any, other: Any) -> bool:
    """A union has one branch of each kind; of those that have names, one of each name."""
    names = [cast("dict[str, Any]", it).get("name") if isinstance(it, dict) else None for it in (one, other)]
    return kind_of(one) == kind_of(other) and names[0] == names[1]
