"""JSON Schema, as Spark types.

Called by resolving for `value.format=json`, with a schema the user gave or the registry's. What a JSON Schema forbids
beyond types (ranges, patterns) is not checked: the type is what a column needs.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from pyspark.sql import types as t

from penstock.spark.errors import BadOption
from penstock.spark.formats.ddl import NESTING_MAX, parse_ddl

_FORMATS = {"date": t.DateType, "date-time": t.TimestampType}
# Kafka Connect's converter notes the exact width beside the type.
_CONNECT = {
    "int8": t.ByteType,
    "int16": t.ShortType,
    "int32": t.IntegerType,
    "int64": t.LongType,
    "float32": t.FloatType,
    "float64": t.DoubleType,
    "bytes": t.BinaryType,
}


def parse_json_type(text: str, references: Mapping[str, str] = {}) -> t.DataType:
    """From Spark DDL, Spark's schema JSON or JSON Schema, whichever the text is."""
    if not text.lstrip().startswith("{"):
        return parse_ddl(text)
    schema = _load(text)
    if schema.get("type") == "struct" and isinstance(schema.get("fields"), list):
        try:
            return t.StructType.fromJson(schema)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BadOption(f"the schema is not Spark's schema JSON: {error}") from error
    return _Reader(schema, {name: _load(one) for name, one in references.items()}).type_of(
        schema, schema, (), "the schema"
    )


def _load(text: str) -> dict[str, Any]:
    try:
        schema: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(f"the schema is neither Spark DDL nor JSON: {error}") from error
    if not isinstance(schema, dict):
        raise BadOption("the schema is no JSON object")
    return cast("dict[str, Any]", schema)


class _Reader:
    def __init__(self, root: dict[str, Any], references: dict[str, dict[str, Any]]) -> None:
        self._root = root
        self._references = references

    def type_of(self, schema: Any, root: dict[str, Any], path: tuple[str, ...], where: str) -> t.DataType:
        """`path`: the references followed to come here, so that a circle is noticed."""
        if len(path) + where.count(".") > NESTING_MAX:
            raise BadOption(f"{where[:100]} is nested deeper than {NESTING_MAX}")
        if not isinstance(schema, dict):
            raise BadOption(f"{where} has no type that a column can have; give value.schema as DDL")
        given = cast("dict[str, Any]", schema)
        if "$ref" in given:
            target, its_root, name = self._follow(str(given["$ref"]), root, where)
            if name in path:
                raise BadOption(f"{where} refers to itself, which no Spark type can; give value.schema as DDL")
            return self.type_of(target, its_root, (*path, name), where)
        for union in ("oneOf", "anyOf"):
            if union in given:
                return self._one_of(given[union], root, path, where)
        if "allOf" in given:
            return self._all_of(given, root, path, where)
        kinds = given.get("type")
        if isinstance(kinds, list):
            others = [kind for kind in cast("list[Any]", kinds) if kind != "null"]
            if len(others) != 1:
                raise BadOption(f"{where} may be of several types ({others}); give value.schema as DDL")
            kinds = others[0]
        return self._plain(kinds, given, root, path, where)

    def _plain(
        self, kind: Any, given: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], where: str
    ) -> t.DataType:
        if kind == "object" or (kind is None and "properties" in given):
            return self._object(given, root, path, where)
        if kind == "array":
            return t.ArrayType(self.type_of(given.get("items"), root, path, f"{where}.items"))
        if (connect := _CONNECT.get(str(given.get("connect.type")))) is not None:
            return connect()
        if kind == "string" or (kind is None and _are_strings(given.get("enum", [given.get("const")]))):
            if given.get("contentEncoding") == "base64":
                return t.BinaryType()
            return _FORMATS.get(str(given.get("format")), t.StringType)()
        match kind:
            case "integer":
                return t.LongType()
            case "number":
                return t.DoubleType()
            case "boolean":
                return t.BooleanType()
            case _:
                raise BadOption(f"{where} has no type that a column can have; give value.schema as DDL")

    def _object(self, given: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], where: str) -> t.DataType:
        properties: object = given.get("properties")
        if isinstance(properties, dict):
            named = cast("dict[str, Any]", properties)
            fields = [
                t.StructField(name, self.type_of(one, root, path, f"{where}.{name}")) for name, one in named.items()
            ]
            return t.StructType(fields)
        return t.MapType(t.StringType(), self.type_of(given.get("additionalProperties"), root, path, f"{where}.*"))

    def _one_of(self, choices: Any, root: dict[str, Any], path: tuple[str, ...], where: str) -> t.DataType:
        listed = cast("list[Any]", choices) if isinstance(choices, list) else []
        others = [
            one for one in listed if not (isinstance(one, dict) and cast("dict[str, Any]", one).get("type") == "null")
        ]
        types = [self.type_of(one, root, path, where) for one in others]
        if not types or any(one != types[0] for one in types):
            raise BadOption(f"{where} may be of several types; give value.schema as DDL")
        return types[0]

    def _all_of(self, given: dict[str, Any], root: dict[str, Any], path: tuple[str, ...], where: str) -> t.DataType:
        """All at once: the fields of each, which is how JSON Schema spells inheritance."""
        rest = {name: one for name, one in given.items() if name != "allOf"}
        parts = [*cast("list[Any]", given["allOf"]), *([rest] if "properties" in rest else [])]
        types = [self.type_of(one, root, path, where) for one in parts]
        if len(types) == 1:
            return types[0]
        fields: dict[str, t.StructField] = {}
        for one in types:
            if not isinstance(one, t.StructType):
                raise BadOption(f"{where} joins types that are no objects; give value.schema as DDL")
            fields |= {field.name: field for field in one.fields}
        return t.StructType(list(fields.values()))

    def _follow(self, ref: str, root: dict[str, Any], where: str) -> tuple[Any, dict[str, Any], str]:
        document, _, pointer = ref.partition("#")
        if document:
            if document not in self._references:
                raise BadOption(f"{where} refers to {document[:80]!r}, which the registry does not list as a reference")
            root = self._references[document]
        target: Any = root
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or step not in target:
                raise BadOption(f"{where} refers to {ref[:80]!r}, which is not there")
            target = cast("dict[str, Any]", target)[step]
        return target, root, f"{id(root)}#{pointer}"


def _are_strings(values: Any) -> bool:
    listed = cast("list[Any]", values) if isinstance(values, list) else []
    return bool(listed) and all(isinstance(one, str) for one in listed)
