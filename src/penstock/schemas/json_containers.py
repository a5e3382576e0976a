"""JSON Schema's keywords on the insides of objects and arrays: properties, items, contains, dependencies.

Called by json_checks.py, beside json_keywords.py, whose laws hold here too. Law: what no other keyword of the same
schema speaks of is additional; a pattern that cannot be checked may speak of any property, so nothing is additional
beside it.
"""

from typing import Any, cast

from penstock.schemas.json_documents import SchemaNode
from penstock.schemas.json_keywords import Check, Compiler, Keyword
from penstock.schemas.json_patterns import Pattern
from penstock.schemas.json_values import Fault, Run


def _properties(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    checks = {name: compiler.checker(child) for name, child in node.children("properties")}

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, dict):
            return None
        pairs = cast("dict[str, Any]", value)
        run.spend(len(pairs))
        for name, item in pairs.items():
            inner = checks.get(name)
            if inner is not None and (fault := inner(item, run)) is not None:
                return fault.at(name)
        return None

    return check


def _pattern_properties(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    made = [(compiler.pattern(source), compiler.checker(child)) for source, child in node.children("patternProperties")]
    checks = [(pattern, check) for pattern, check in made if pattern.is_checked]

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, dict):
            return None
        for name, item in cast("dict[str, Any]", value).items():
            run.spend(len(checks) * (1 + (len(name) >> 6)))
            for pattern, inner in checks:
                if pattern.may_match(name) and (fault := inner(item, run)) is not None:
                    return fault.at(name)
        return None

    return check


def named_otherwise(compiler: Compiler, node: SchemaNode) -> tuple[frozenset[str], list[Pattern]]:
    """The names and patterns of the properties that are not additional ones of this schema."""
    names = frozenset(name for name, _ in node.children("properties"))
    return names, [compiler.pattern(source) for source, _ in node.children("patternProperties")]


def _additional_properties(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    rest = node.child("additionalProperties")
    if rest is None or rest.schema is True:
        return None
    names, patterns = named_otherwise(compiler, node)
    inner = compiler.checker(rest)

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, dict):
            return None
        for name, item in cast("dict[str, Any]", value).items():
            run.spend(1 + len(patterns) * (1 + (len(name) >> 6)))
            if name in names or any(pattern.may_match(name) for pattern in patterns):
                continue
            if rest.schema is False:
                return Fault(f"the property {name[:100]!r} is not allowed")
            if (fault := inner(item, run)) is not None:
                return fault.at(name)
        return None

    return check


def _property_names(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    inner_node = node.child("propertyNames")
    if inner_node is None:
        return None
    inner = compiler.checker(inner_node)

    def check(value: Any, run: Run) -> Fault | None:
        for name in cast("dict[str, Any]", value) if isinstance(value, dict) else ():
            if (fault := inner(name, run)) is not None:
                return Fault(f"the property name {name[:100]!r} {fault.reason}")
        return None

    return check


def _dependencies(keyword: str) -> Any:
    """`dependencies` and its two later halves: a list of names, or a schema, for each property that is there."""

    def make(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
        names = {key: cast("list[str]", item) for key, item in value.items() if isinstance(item, list)}
        schemas = {key: compiler.checker(child) for key, child in node.children(keyword)}

        def check(value: Any, run: Run) -> Fault | None:
            if not isinstance(value, dict):
                return None
            run.spend(len(names) + len(schemas))
            for key, needed in names.items():
                if key in value:
                    run.spend(len(needed))
                    for name in needed:
                        if name not in value:
                            return Fault(f"has {key!r} but lacks {name!r}, which it needs then")
            for key, inner in schemas.items():
                if key in value and (fault := inner(value, run)) is not None:
                    return fault
            return None

        return check

    return make


def tuple_and_rest(node: SchemaNode) -> tuple[list[SchemaNode], SchemaNode | None]:
    """The schemas of an array's first items, and the one of all that follow; as each draft spells them."""
    keywords = node.keywords
    if node.draft.number >= 2020:
        return node.listed("prefixItems"), node.child("items") if "items" in keywords else None
    if isinstance(keywords.get("items"), list):
        return node.listed("items"), node.child("additionalItems") if "additionalItems" in keywords else None
    return [], node.child("items") if "items" in keywords else None


def _items(compiler: Compiler, node: SchemaNode, value: Any) -> Check:
    first_nodes, rest_node = tuple_and_rest(node)
    first = [compiler.checker(item) for item in first_nodes]
    rest = None if rest_node is None or rest_node.schema is True else compiler.checker(rest_node)

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, list):
            return None
        items = cast("list[Any]", value)
        for number, (inner, item) in enumerate(zip(first, items, strict=False)):
            if (fault := inner(item, run)) is not None:
                return fault.at(number)
        if rest is not None:
            for number in range(len(first), len(items)):
                if (fault := rest(items[number], run)) is not None:
                    return fault.at(number)
        return None

    return check


def _only_prefix_items(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    return None if "items" in node.keywords else _items(compiler, node, value)


def _contains(compiler: Compiler, node: SchemaNode, value: Any) -> Check | None:
    inner_node = node.child("contains")
    if inner_node is None:
        return None
    inner = compiler.checker(inner_node)
    is_counted = node.draft.number >= 2019
    least = node.keywords.get("minContains", 1) if is_counted else 1
    most = node.keywords.get("maxContains") if is_counted else None

    def check(value: Any, run: Run) -> Fault | None:
        if not isinstance(value, list):
            return None
        found = sum(inner(item, run) is None for item in cast("list[Any]", value))
        if found < least:
            return Fault(f"holds {found} items of the schema of contains, fewer than {least}")
        if most is not None and found > most:
            return Fault(f"holds {found} items of the schema of contains, more than {most}")
        return None

    return check


CONTAINER_KEYWORDS: dict[str, Keyword] = {
    "properties": Keyword(_properties),
    "patternProperties": Keyword(_pattern_properties),
    "additionalProperties": Keyword(_additional_properties),
    "propertyNames": Keyword(_property_names, since=6),
    "dependencies": Keyword(_dependencies("dependencies"), until=7),
    "dependentRequired": Keyword(_dependencies("dependentRequired"), since=2019),
    "dependentSchemas": Keyword(_dependencies("dependentSchemas"), since=2019),
    "items": Keyword(_items),
    "prefixItems": Keyword(_only_prefix_items, since=2020),
    "contains": Keyword(_contains, since=6),
}
