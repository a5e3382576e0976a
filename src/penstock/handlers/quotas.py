"""Client quotas as clients see and set them: DescribeClientQuotas, AlterClientQuotas.

Called by server.dispatch. Which quotas exist is in the cluster image; what they do is in security.quotas.
"""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from ipaddress import ip_address
from typing import Any

from penstock.cluster.layout import QuotaEntity
from penstock.errors import InvalidRequest, PenstockError, UnsupportedVersion
from penstock.handlers.context import HandlerContext, Request
from penstock.security.quotas import CLIENT_ID, IP, USER, validate_quota

Body = Mapping[str, Any]

ENTITY_TYPES = (USER, CLIENT_ID, IP)


class Match(IntEnum):
    """How a filter matches the name of one type of entity."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


def handle_describe_client_quotas(context: HandlerContext, request: Request) -> Body:
    try:
        wanted = _parse_filter(request.body.components)
    except PenstockError as error:
        return {"error_code": error.code, "error_message": str(error), "entries": None}
    is_strict: bool = request.body.strict
    entries: list[Body] = []
    for entity, values in context.image.client_quotas.items():
        if _matches(dict(entity), wanted, is_strict=is_strict):
            entries.append({
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity)],
                "values": [{"key": key, "value": value} for key, value in sorted(values.items())],
            })  # fmt: skip
    return {"entries": entries}


def _parse_filter(components: Any) -> dict[str, tuple[Match, str | None]]:
    wanted: dict[str, tuple[Match, str | None]] = {}
    for component in components:
        kind, name = component.entity_type, component.match
        if not kind:
            raise InvalidRequest("a filter without a type of entity")
        if kind in wanted:
            raise InvalidRequest(f"{kind!r} occurs twice in the filter")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersion(f"{kind!r} is no type of entity; {', '.join(ENTITY_TYPES)} are")
        if component.match_type not in set(Match):
            raise InvalidRequest(f"{component.match_type} is no way to match an entity")
        match = Match(component.match_type)
        if (name is not None) != (match is Match.EXACT):
            raise InvalidRequest(f"the filter for {kind!r} names an entity exactly where it must not, or fails to")
        wanted[kind] = match, _canonical(kind, name)
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest("quotas of an ip have neither user nor client-id: filter for one or the other")
    return wanted


def _matches(
    entity: Mapping[str, str | None], wanted: Mapping[str, tuple[Match, str | None]], *, is_strict: bool
) -> bool:
    for kind, (match, name) in wanted.items():
        if kind not in entity or (match is not Match.ANY and entity[kind] != name):
            return False
    return not is_strict or len(entity) == len(wanted)


async def handle_alter_client_quotas(context: HandlerContext, request: Request) -> Body:
    body = request.body
    entities = [
        frozenset((part.entity_type, _canonical(part.entity_type, part.entity_name)) for part in entry.entity)
        for entry in body.entries
    ]
    times = Counter(entities)
    entries: list[Body] = []
    for entry, entity in zip(body.entries, entities, strict=True):
        # Told back as it was sent: clients look their futures up by it.
        named = [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity]
        try:
            if times[entity] > 1:
                raise InvalidRequest("an entity occurs twice in one request")
            changes = _parse_changes(entry, entity)
            await context.controller.alter_client_quotas(entity, changes, validate_only=body.validate_only)
            entries.append({"entity": named})
        except PenstockError as error:
            entries.append({"error_code": error.code, "error_message": str(error), "entity": named})
    return {"entries": entries}


def _parse_changes(entry: Any, entity: QuotaEntity) -> dict[str, float | None]:
    if len({part.entity_type for part in entry.entity}) != len(entry.entity):
        raise InvalidRequest("an entity has each type once at most")
    for kind, name in entity:
        if name == "":
            raise InvalidRequest(f"the {kind} of a quota is empty; null stands for all that have none of their own")
    changes: dict[str, float | None] = {}
    for change in entry.ops:
        if change.key in changes:
            raise InvalidRequest(f"{change.key!r} occurs twice for one entity")
        if not change.remove:
            validate_quota(entity, change.key, change.value)
        changes[change.key] = None if change.remove else change.value
    return changes


def _canonical(kind: str, name: str | None) -> str | None:
    """An address in the form the kernel gives a peer's, or its quota would never be found."""
    if kind != IP or name is None:
        return name
    try:
        return str(ip_address(name))
    except ValueError:
        return name
