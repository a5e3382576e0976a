"""Data contracts: metadata and rules that travel with a schema. Clients execute them; the registry keeps them.

Called by deciding.py. Laws:
- What is registered with a schema is kept as it was given; without any, a version inherits those of the one before.
- A subject's `defaultMetadata` and `defaultRuleSet` fill in, its `overrideMetadata` and `overrideRuleSet` have the last
  word, as in Confluent's registry.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import orjson

from penstock.gateway.registry.refusals import bad_request, invalid_rule_set

Json = dict[str, Any]

CONTRACT_BYTES_MAX = 256 * 1024
RULES_MAX = 1000
VERSION_PROPERTY = "confluent:version"
RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")
_BOUNDED_OBJECT = f"a JSON object of at most {CONTRACT_BYTES_MAX} bytes"


def checked_metadata(given: object) -> Json | None:
    if given is None:
        return None
    metadata = _bounded_object(given)
    if metadata is None:
        raise bad_request(f"metadata is to be {_BOUNDED_OBJECT}.")
    for name, (is_fitting, shape) in _PARTS.items():
        part = metadata.get(name)
        if part is not None and not is_fitting(part):
            raise bad_request(f"metadata.{name} is to be a JSON {shape}.")
    return metadata


def checked_rule_set(given: object) -> Json | None:
    if given is None:
        return None
    rule_set = _bounded_object(given)
    if rule_set is None:
        raise invalid_rule_set(f"it is to be {_BOUNDED_OBJECT}")
    for field in RULE_LISTS:
        _check_rules(rule_set.get(field), field)
    return rule_set


def _is_texts(given: Any) -> bool:
    return isinstance(given, list) and all(isinstance(one, str) for one in cast("list[Any]", given))


def _is_object_of(is_fitting: Callable[[Any], bool], given: Any) -> bool:
    return isinstance(given, dict) and all(map(is_fitting, cast("Json", given).values()))


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


# What is merged must be of the shape that merging counts on.
_PARTS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "tags": (partial(_is_object_of, _is_texts), "object whose values are arrays of text"),
    "properties": (partial(_is_object_of, _is_text), "object whose values are text"),
    "sensitive": (_is_texts, "array of text"),
}


def _bounded_object(given: object) -> Json | None:
    try:
        is_one = isinstance(given, dict) and len(orjson.dumps(given)) <= CONTRACT_BYTES_MAX
    except orjson.JSONEncodeError:
        return None  # nested too deeply to be written, and so to be kept
    return cast("Json", given) if is_one else None


def _check_rules(given: object, field: str) -> None:
    if given is None:
        return
    if not isinstance(given, list) or len(rules := cast("list[Any]", given)) > RULES_MAX:
        raise invalid_rule_set(f"{field} is to be a list of at most {RULES_MAX} rules")
    names: set[str] = set()
    for rule in rules:
        name: object = cast("Json", rule).get("name") if isinstance(rule, dict) else None
        if not isinstance(name, str) or not name:
            raise invalid_rule_set(f"every rule of {field} is to be an object with a name")
        if name in names:
            raise invalid_rule_set(f"the rule {name!r} stands twice in {field}")
        names.add(name)


def merged_metadata(*layers: Json | None) -> Json | None:
    """Later layers win, property by property; tags and sensitive names are joined."""
    return _merged(layers, {"tags": _joined_tags, "properties": _joined_properties, "sensitive": _joined_names})


def merged_rule_set(*layers: Json | None) -> Json | None:
    """Later layers win, rule by rule."""
    return _merged(layers, dict.fromkeys(RULE_LISTS, _joined_rules))


def _merged(layers: Iterable[Json | None], joins: Mapping[str, Callable[[Any, Any], Any]]) -> Json | None:
    """The first layer as it is; of those after it what has a way to be joined to the same of the layers before."""
    given = [layer for layer in layers if layer is not None]
    if not given:
        return None
    merged = dict(given[0])
    for layer in given[1:]:
        for name, join in joins.items():
            if layer.get(name):
                merged[name] = join(merged.get(name) or type(layer[name])(), layer[name])
    return merged


def _joined_tags(before: dict[str, list[str]], more: dict[str, list[str]]) -> dict[str, list[str]]:
    return {**before, **{path: _joined_names(before.get(path, []), tags) for path, tags in more.items()}}


def _joined_properties(before: Json, more: Json) -> Json:
    return {**before, **more}


def _joined_names(before: list[str], more: list[str]) -> list[str]:
    return list(dict.fromkeys([*before, *more]))


def _joined_rules(before: list[Json], more: list[Json]) -> list[Json]:
    replaced = {rule["name"] for rule in more}
    return [*(rule for rule in before if rule["name"] not in replaced), *more]


def with_version(metadata: Json | None, version: int) -> Json:
    return merged_metadata(metadata or {}, {"properties": {VERSION_PROPERTY: str(version)}}) or {}


def properties_of(metadata: str | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    held: object = orjson.loads(metadata)
    found: object = cast("Json", held).get("properties") if isinstance(held, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
