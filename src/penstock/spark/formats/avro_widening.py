"""A writer's Avro schema made ready for fastavro, side by side with the reader's.

Called by avro_decoder. Where the reader has a complex union, whose column is a struct of members, whatever was written
in its place goes into the member it belongs to: each type of the writer's is put into a record of one field, which is
encoded as the field itself and bears the name of that member (avro_preparing does the same to the reader's). It does
not matter whether the writer had the same union, a narrower one, or a single type.
Law: a type is walked once for each type of the reader's that it meets, so that no schema can make this explode.
"""

from typing import Any, cast

import fastavro

from penstock.spark.formats.avro_preparing import member_alias, member_key
from penstock.spark.formats.avro_schema import AvroSchema, branches, is_complex, is_decimal, kind_of

_NAMED = frozenset({"record", "error", "enum", "fixed"})
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def prepare_writer(writer: AvroSchema, reader: AvroSchema) -> Any:
    return fastavro.parse_schema(_Pairing(writer, reader).walk(writer.root, reader.root))


def find_branch(writer: AvroSchema, one: Any, reader: AvroSchema, members: list[Any]) -> int | None:
    """Which of a union's types takes what was written as `one`: the same type if there is one, else a wider one."""
    one = writer.of(one)
    found = [reader.of(member) for member in members]
    same = (index for index, member in enumerate(found) if _is_same(one, member))
    wider = (index for index, member in enumerate(found) if kind_of(member) in _PROMOTIONS.get(kind_of(one), ()))
    return next(same, next(wider, None))


class _Pairing:
    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self._writer, self._reader = writer, reader
        # By name and by what it meets: the name it was written out under.
        self._written: dict[tuple[str, int], str] = {}
        self._names: set[str] = set()
        self._members = 0

    def walk(self, one: Any, other: Any) -> Any:
        """`other` is what the reader has in this place; None where it reads nothing."""
        one = self._writer.of(one)
        other = self._reader.of(other)
        if isinstance(other, list):
            return self._into_union(one, cast("list[Any]", other))
        if isinstance(one, list):
            return [self.walk(branch, other) for branch in cast("list[Any]", one)]
        if not isinstance(one, dict):
            return one
        given = cast("dict[str, Any]", one)
        return self._named(given, other) if "name" in given else self._inside(given, other)

    def _into_union(self, one: Any, union: list[Any]) -> Any:
        members = branches(union)

        def place(branch: Any) -> Any:
            index = find_branch(self._writer, branch, self._reader, members)
            # What fits nowhere is left as it is: a record that has it is told to be bad.
            if kind_of(branch) == "null" or index is None:
                return self.walk(branch, None)
            walked = self.walk(branch, members[index])
            return self._wrapped(walked, members[index]) if is_complex(union) else walked

        return [place(branch) for branch in cast("list[Any]", one)] if isinstance(one, list) else place(one)

    def _wrapped(self, walked: Any, member: Any) -> Any:
        key = member_key(self._reader, member)
        self._members += 1
        # In a namespace of its own: two of the writer's types may belong to one member.
        name = f"penstock_{self._members}.{member_alias(key)}"
        return {"type": "record", "name": name, "fields": [{"name": key, "type": walked}]}

    def _named(self, given: dict[str, Any], other: Any) -> Any:
        name = str(given["name"])
        met = (name, id(other) if other is not None else 0)
        if met in self._written:
            return self._written[met]
        # Another one of the same name is told apart by its namespace, which resolving does not look at. One without a
        # namespace gets one too: it would take on that of the record it is put into, and be unknown elsewhere.
        is_free = "." in name and other is not None and name not in self._names
        self._written[met] = chosen = name if is_free else f"penstock_{len(self._names)}.{name.rpartition('.')[2]}"
        self._names.add(chosen)
        return self._inside({**given, "name": chosen}, other)

    def _inside(self, given: dict[str, Any], other: Any) -> Any:
        walked = {name: value for name, value in given.items() if not name.startswith("__")}
        if not is_decimal(walked):
            walked.pop("logicalType", None)
        theirs = cast("dict[str, Any]", other) if isinstance(other, dict) else {}
        for inner in ("items", "values"):
            if inner in walked:
                walked[inner] = self.walk(walked[inner], theirs.get(inner))
        if "fields" in walked:
            by_name = {
                name: field["type"]
                for field in reversed(theirs.get("fields", ()))
                for name in (*field.get("aliases", ()), field["name"])
            }
            walked["fields"] = [
                {**field, "type": self.walk(field["type"], by_name.get(field["name"]))} for field in walked["fields"]
            ]
        return walked


def _is_same(one: Any, other: Any) -> bool:
    """Types of one kind; those that have names, by their names, as fastavro compares them."""
    if kind_of(one) != kind_of(other):
        return False
    if kind_of(one) not in _NAMED:
        return True
    theirs, ours = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
    unqualified = str(theirs["name"]).rpartition(".")[2]
    return str(ours["name"]).rpartition(".")[2] == unqualified or bool(
        {theirs["name"], unqualified} & {*ours.get("aliases", ())}
    )
