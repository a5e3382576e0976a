"""Data contracts: metadata and rules that travel with a schema. Clients execute them; the registry keeps them.

Called by deciding.py. Laws:
- What is registered with a schema is kept as it was given; without any, a version inherits those of the one before.
- A subject's `defaultMetadata` and `defaultRuleSet` fill in, its `overrideMetadata` and `overrideRuleSet` have the last
  word, as in Confluent's registry.
"""

from typing import Any, cast

import orjson

from penstock.gateway.registry.refusals import bad_request, invalid_rule_set

Json = dict[str, Any]

CONTRACT_BYTES_MAX = 256 * 1024
RULES_MAX = 1000
VERSION_PROPERTY = "confluent:version"
RULE_LISTS = ("migrationRules", "domainRules", "encodingRules")


def checked_metadata(given: object) -> Json | None:
    if given is None:
        return None
    if not isinstance(given, dict) or len(orjson.dumps(given)) > CONTRACT_BYTES_MAX:
        raise bad_request(f"metadata is to be a JSON object of at most {CONTRACT_BYTES_MAX} bytes.")
    metadata = cast("Json", given)
    for name, kind in (("tags", dict), ("properties", dict), ("sensitive", list)):
        if not isinstance(metadata.get(name), kind | None):
            raise bad_request(f"metadata.{name} is to be a JSON {'array' if kind is list else 'object'}.")
    properties: Json = metadata.get("properties") or {}
    if not all(isinstance(value, str) for value in properties.values()):
        raise bad_request("Every value of metadata.properties is to be text.")
    return metadata


def checked_rule_set(given: object) -> Json | None:
    if given is None:
        return None
    if not isinstance(given, dict) or len(orjson.dumps(given)) > CONTRACT_BYTES_MAX:
        raise invalid_rule_set(f"it is to be a JSON object of at most {CONTRACT_BYTES_MAX} bytes")
    rule_set = cast("Json", given)
    for field in RULE_LISTS:
        rules: object = rule_set.get(field)
        if rules is None:
            continue
        if not isinstance(rules, list) or len(cast("list[Any]", rules)) > RULES_MAX:
            raise invalid_rule_set(f"{field} is to be a list of at most {RULES_MAX} rules")
        names: set[str] = set()
        for rule in cast("list[Any]", rules):
            name: object = cast("Json", rule).get("name") if isinstance(rule, dict) else None
            if not isinstance(name, str) or not name:
                raise invalid_rule_set(f"every rule of {field} is to be an object with a name")
            if name in names:
                raise invalid_rule_set(f"the rule {name!r} stands twice in {field}")
            names.add(name)
    return rule_set


def merged_metadata(*layers: Json | None) -> Json | None:
    """Later layers win, property by property; tags and sensitive names are joined."""
    merged: Json | None = None
    for layer in layers:
        if layer is None:
            continue
        if merged is None:
            merged = dict(layer)
            continue
        if layer.get("tags"):
            before: dict[str, list[str]] = merged.get("tags") or {}
            tags = {name: list(held) for name, held in before.items()}
            more: dict[str, list[str]] = layer["tags"]
            for name, held in more.items():
                tags[name] = list(dict.fromkeys([*tags.get(name, []), *held]))
            merged["tags"] = tags
        if layer.get("properties"):
            merged["properties"] = {**(merged.get("properties") or {}), **layer["properties"]}
        if layer.get("sensitive"):
            merged["sensitive"] = list(dict.fromkeys([*(merged.get("sensitive") or []), *layer["sensitive"]]))
    return merged


def merged_rule_set(*layers: Json | None) -> Json | None:
    """Later layers win, rule by rule."""
    merged: Json | None = None
    for layer in layers:
        if layer is None:
            continue
        if merged is None:
            merged = dict(layer)
            continue
        for field in RULE_LISTS:
            rules: list[Json] | None = layer.get(field)
            if rules:
                names = {rule["name"] for rule in rules}
                before: list[Json] = merged.get(field) or []
                merged[field] = [*(rule for rule in before if rule["name"] not in names), *rules]
    return merged


def with_version(metadata: Json | None, version: int) -> Json:
    return merged_metadata(metadata or {}, {"properties": {VERSION_PROPERTY: str(version)}}) or {}


def properties_of(metadata: str | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    held: object = orjson.loads(metadata)
    found: object = cast("Json", held).get("properties") if isinstance(held, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
