"""What a request to the registry says: its subject, its version, its switches, its body.

Called by the handlers. Laws:
- A request is read in full and checked before anything is asked of the registry; what is wrong is told in one sentence.
- `/contexts/{context}/subjects/{subject}/…` and `/subjects/:.context:subject/…` mean the same.
"""

from typing import Any, cast

import orjson
from starlette.requests import Request

from penstock.gateway.limits import content_type
from penstock.gateway.registry.contracts import checked_metadata, checked_rule_set
from penstock.gateway.registry.finding import Candidate
from penstock.gateway.registry.questions import Deleted
from penstock.gateway.registry.refusals import MEDIA_TYPE, Refusal, bad_request, schema_too_large
from penstock.gateway.registry.subjects import checked_context, checked_subject
from penstock.schemas.schema import KINDS, REFERENCES_MAX, SCHEMA_BYTES_MAX, Reference
from penstock.schemas.stored.names import EVERY_CONTEXT, Qualified, whole_context
from penstock.schemas.stored.records import ID_MAX

MEDIA_TYPES = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream")
_ACCEPTED = ("*/*", "application/*", *MEDIA_TYPES, "text/plain", "text/*")
BODY_BYTES_MAX = 5 << 20
"""A schema of SCHEMA_BYTES_MAX, escaped, with its contracts."""
REFERENCE_CHARACTERS_MAX = 1000


def subject_of(request: Request) -> str:
    return checked_subject(_in_context(request, request.path_params["subject"]))


def scope_of(request: Request) -> str | None:
    """The subject or context that settings are for; None for the registry itself."""
    subject = request.path_params.get("subject")
    context = _context(request)
    if subject is None:
        return None if context is None else whole_context(context) or None
    name = _in_context(request, subject)
    # `:.:` is the default context as a whole, which is the registry.
    return None if name in (":.:", ":.") else checked_subject(name)


def prefix_of(request: Request) -> str:
    prefix = request.query_params.get("subjectPrefix")
    if _context(request) is None:
        return EVERY_CONTEXT if prefix is None else prefix
    return _in_context(request, prefix or "")


def subject_hint(request: Request) -> str:
    """Where an id is to be looked for."""
    return _in_context(request, request.query_params.get("subject", ""))


def identifier_of(request: Request) -> int | None:
    text: str = request.path_params["id"]
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= ID_MAX else None


def switch(request: Request, *names: str) -> bool:
    """On by any of its names: clients spell some of them in two ways."""
    return any(request.query_params.get(name, "").lower() == "true" for name in names)


def number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        raise bad_request(f"{name}={text[:40]} is no number.")
    return int(text)


def deleted_of(request: Request) -> Deleted:
    if switch(request, "deletedOnly", "deleted_only"):
        return Deleted.ONLY
    return Deleted.SHOWN if switch(request, "deleted") else Deleted.HIDDEN


def check_accept(request: Request) -> None:
    accept = request.headers.get("accept")
    if accept and not any(one.partition(";")[0].strip().lower() in _ACCEPTED for one in accept.split(",")):
        raise Refusal(406, 406, f"Answers are {MEDIA_TYPE}: accept that, or application/json.")


async def body_of(request: Request) -> Any:
    kind = content_type(request)
    # Without a content type browsers let any page send a body; programs seldom leave it out.
    if kind not in MEDIA_TYPES and (kind or "origin" in request.headers):
        raise Refusal(415, 415, f"The content type {kind[:100]!r} is not read here: send {MEDIA_TYPE}.")
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise Refusal(413, 413, f"The body is larger than {BODY_BYTES_MAX} bytes.")
        pieces.append(piece)
    try:
        return orjson.loads(b"".join(pieces))
    except orjson.JSONDecodeError as error:
        raise bad_request(f"The body is no valid JSON: {error}.") from None


def candidate_of(request: Request, body: object, subject: str) -> Candidate:
    if not isinstance(body, dict):
        raise bad_request('The body is to be a JSON object such as {"schema": "…", "schemaType": "AVRO"}.')
    given = cast("dict[str, Any]", body)
    text = given.get("schema")
    if not isinstance(text, str | None):
        raise bad_request("schema is to be text; put the schema's JSON into quotes.")
    text = text or ""
    if len(text) > SCHEMA_BYTES_MAX:
        raise schema_too_large(len(text), SCHEMA_BYTES_MAX)
    kind: object = given.get("schemaType") or "AVRO"
    if not isinstance(kind, str) or kind.upper() not in KINDS:
        raise Refusal(422, 42201, f"Invalid schema: schemaType is one of {', '.join(KINDS)}.")
    identifier = _integer(given, "id", -1)
    return Candidate(
        subject,
        kind.upper(),
        text,
        _references(given.get("references")),
        checked_metadata(given.get("metadata")),
        checked_rule_set(given.get("ruleSet")),
        None if identifier < 0 else identifier,
        _integer(given, "version", 0),
        switch(request, "normalize") or given.get("normalize") is True,
    )


def _references(given: object) -> tuple[Reference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(cast("list[Any]", given)) > REFERENCES_MAX:
        raise bad_request(f"references is to be a list of at most {REFERENCES_MAX}.")
    found: list[Reference] = []
    for one in cast("list[Any]", given):
        held = cast("dict[str, Any]", one) if isinstance(one, dict) else {}
        name, subject, version = held.get("name"), held.get("subject"), held.get("version")
        if (
            not isinstance(name, str)
            or not isinstance(subject, str)
            or not isinstance(version, int)
            or len(name) > REFERENCE_CHARACTERS_MAX
        ):
            raise bad_request("A reference has a name, a subject and a version (a number).")
        found.append(Reference(name, checked_subject(subject), version if 0 < version <= ID_MAX else -1))
    return tuple(found)


def _integer(given: dict[str, Any], name: str, default: int) -> int:
    value: object = given.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= ID_MAX:
        raise bad_request(f"{name} is to be a number from -1 to {ID_MAX}.")
    return value


def _context(request: Request) -> str | None:
    context = request.path_params.get("context")
    return None if context is None else checked_context(context)


def _in_context(request: Request, subject: str) -> str:
    context = _context(request)
    if context is None or subject.startswith((":.", EVERY_CONTEXT)):
        return subject
    return Qualified(context, subject).full
