"""Schemas: subjects, versions side by side, what may follow, and registering a new version.

Called through the console's routes; 501 where the gateway has no registry. Everything is answered from its memory.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.console.asking import body_of, field, flag_of, refuse, text_of
from penstock.gateway.console.listing import choose, wanted_of
from penstock.gateway.console.service import Console
from penstock.gateway.errors import NOT_SERVED, HttpProblem, json_response
from penstock.gateway.registry import Registry, deciding
from penstock.gateway.registry.deciding import delete_config, set_config
from penstock.gateway.registry.scope import config_in_scope, level_in_scope
from penstock.schemas.schema import (
    KINDS,
    SCHEMA_BYTES_MAX,
    Level,
    ParsedSchema,
    Reference,
    SchemaError,
    first_incompatible,
    parse,
)

SORTS = ("name", "versions")
REFERENCES_MAX = 200
VERSIONS_SHOWN_MAX = 200
FIELDS_SHOWN_MAX = 500


def registry_of(console: Console) -> Registry:
    if console.registry is None:
        raise HttpProblem(501, NOT_SERVED, "this gateway has no schema registry")
    return console.registry


async def list_subjects(console: Console, request: Request) -> Response:
    registry = registry_of(console)
    shows_deleted = flag_of(request, "deleted")
    counts = {
        name: len(registry.versions(name, deleted=shows_deleted)) for name in registry.subjects(deleted=shows_deleted)
    }
    wanted = wanted_of(request, SORTS)
    chosen, figures = choose(counts, wanted, lambda name: name, {"versions": lambda name: counts[name]})
    rows: list[dict[str, Any]] = []
    for name in chosen:
        latest = await registry.latest(name)
        rows.append(
            {
                "name": name,
                "versions": counts[name],
                "kind": latest.kind if latest is not None else None,
                "id": latest.id if latest is not None else None,
                "latest": latest.version if latest is not None else None,
                "level": level_in_scope(registry.state, name).value,
            }
        )
    return json_response({**figures, "level": level_in_scope(registry.state, None).value, "subjects": rows})


async def show_subject(console: Console, request: Request) -> Response:
    registry = registry_of(console)
    name = text_of(request, "name")
    numbers: list[int] = registry.versions(name)[-VERSIONS_SHOWN_MAX:]
    own = registry.state.configs.get(name, {})
    versions: list[dict[str, Any]] = []
    for number in reversed(numbers):
        found = await registry.version(name, number)
        if found is not None:
            references = [reference._asdict() for reference in found.references]
            told = {"version": found.version, "id": found.id, "kind": found.kind, "text": found.text}
            versions.append({**told, "references": references})
    latest = await registry.latest(name)
    fields = await asyncio.to_thread(_fields, latest.parsed) if latest is not None else []
    return json_response(
        {
            "name": name,
            "level": level_in_scope(registry.state, name).value,
            "is_own_level": "compatibilityLevel" in own,
            "settings": {
                key: value for key, value in config_in_scope(registry.state, name).items() if value is not None
            },
            "versions": versions,
            "fields": fields,
        }
    )


def _fields(parsed: ParsedSchema) -> list[dict[str, Any]]:
    return [one._asdict() for one in parsed.fields()[:FIELDS_SHOWN_MAX]]


async def check_schema(console: Console, request: Request) -> Response:
    """Whether a text could be the subject's next version, and if not, why not. Changes nothing."""
    registry = registry_of(console)
    name, kind, text, references = await _candidate(request)
    older: list[ParsedSchema] = []
    numbers: list[int] = registry.versions(name) if name in registry.subjects() else []
    for number in numbers:
        found = await registry.version(name, number)
        if found is not None:
            older.append(found.parsed)
    used: list[tuple[str, ParsedSchema]] = []
    for reference in references:
        found = await registry.version(reference.subject, reference.version)
        if found is None:
            raise refuse(f"the registry has no version {reference.version} of {reference.subject}")
        used.append((reference.name, found.parsed))
    level: Level = level_in_scope(registry.state, name)
    try:
        candidate = await asyncio.to_thread(parse, kind, text, used)
    except SchemaError as fault:
        return json_response({"is_valid": False, "problem": str(fault), "level": level.value})
    clash = await asyncio.to_thread(first_incompatible, level, candidate, older)
    return json_response(
        {
            "is_valid": True,
            "is_compatible": clash is None,
            "level": level.value,
            "against": None if clash is None else numbers[clash[0]],
            "differences": [] if clash is None else [one._asdict() for one in clash[1]],
        }
    )


async def register_schema(console: Console, request: Request) -> Response:
    registry = registry_of(console)
    name, kind, text, references = await _candidate(request)
    return json_response({"id": await registry.register(name, kind, text, references)})


async def set_level(console: Console, request: Request) -> Response:
    """How the subject's versions must get along; null takes the registry's own level again."""
    registry = registry_of(console)
    body = await body_of(request)
    name: str = field(body, "name", str)
    level: str | None = field(body, "level", (str, type(None)))
    if level is None:
        await registry.decide(lambda state: delete_config(state, name))
    elif level in Level.__members__:
        await registry.decide(lambda state: set_config(state, name, {"compatibilityLevel": level}))
    else:
        raise refuse(f"level is to be one of {', '.join(Level)}")
    return json_response({"level": level_in_scope(registry.state, name).value})


async def delete_subject(console: Console, request: Request) -> Response:
    """All versions, softly: data written with them stays readable, and their ids are never given again."""
    registry = registry_of(console)
    name: str = field(await body_of(request), "name", str)
    versions = await registry.decide(lambda state: deciding.delete_subject(state, name, permanent=False))
    return json_response({"versions": versions})


def _objects(given: list[Any]) -> list[Mapping[str, Any]]:
    if not all(isinstance(one, dict) for one in given):
        raise refuse("references are objects with name, subject and version")
    return given


async def _candidate(request: Request) -> tuple[str, str, str, Sequence[Reference]]:
    body = await body_of(request)
    kind = field(body, "kind", str)
    if kind not in KINDS:
        raise refuse(f"kind is to be one of {', '.join(KINDS)}")
    references: list[Any] = field(body, "references", list, [])
    if len(references) > REFERENCES_MAX:
        raise refuse(f"a schema has at most {REFERENCES_MAX} references")
    named = [
        Reference(field(one, "name", str), field(one, "subject", str), field(one, "version", int))
        for one in _objects(references)
    ]
    return field(body, "name", str), kind, field(body, "text", str, length_max=SCHEMA_BYTES_MAX), named
