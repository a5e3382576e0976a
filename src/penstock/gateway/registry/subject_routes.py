"""/subjects and /compatibility: what is registered under a name, and what may be.

Made by routes.py.
"""

from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.registry import asking, deciding, finding, questions, registering
from penstock.gateway.registry.answers import answer, content_fields, raw_schema, version_fields
from penstock.gateway.registry.formats import text_in
from penstock.gateway.registry.questions import SUBJECTS_MAX, page, parse_version
from penstock.gateway.registry.registry import Registry
from penstock.schemas.stored.content import Version

METADATA_PAIRS_MAX = 100


class SubjectRoutes:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list_all(self, request: Request) -> Response:
        found = questions.subjects(self._registry.state, asking.prefix_of(request), asking.deleted_of(request))
        part = page(asking.number(request, "offset", 0), asking.number(request, "limit", -1), SUBJECTS_MAX)
        names: list[str] = []
        for place, name in enumerate(found):
            if place >= part.stop:
                break
            if place >= part.start:
                names.append(name)
        return answer(names)

    async def list_versions(self, request: Request) -> Response:
        found = questions.versions(self._registry.state, asking.subject_of(request), asking.deleted_of(request))
        part = page(asking.number(request, "offset", 0), asking.number(request, "limit", -1), SUBJECTS_MAX)
        return answer([one.version for one in found[part]])

    async def version(self, request: Request) -> Response:
        held = self._version(request, deleted=asking.switch(request, "deleted"))
        return answer(version_fields(held, await text_in(self._registry, held.subject, held.content, request)))

    async def version_schema(self, request: Request) -> Response:
        held = self._version(request, deleted=asking.switch(request, "deleted"))
        text = await text_in(self._registry, held.subject, held.content, request)
        return raw_schema(held.content.text if text is None else text)

    async def referenced_by(self, request: Request) -> Response:
        held = self._version(request, deleted=True)
        found = questions.referrer_ids(self._registry.state, held.subject, held.version)
        part = page(asking.number(request, "offset", 0), asking.number(request, "limit", -1), SUBJECTS_MAX)
        return answer(found[part])

    async def latest_with_metadata(self, request: Request) -> Response:
        # Clients encode these twice: once themselves, once as part of a query.
        keys = [unquote(key) for key in request.query_params.getlist("key")[:METADATA_PAIRS_MAX]]
        values = [unquote(value) for value in request.query_params.getlist("value")[:METADATA_PAIRS_MAX]]
        wanted = dict(zip(keys, values, strict=False))
        deleted = asking.switch(request, "deleted")
        held = questions.latest_with(self._registry.state, asking.subject_of(request), wanted, deleted=deleted)
        return answer(version_fields(held, await text_in(self._registry, held.subject, held.content, request)))

    async def register(self, request: Request) -> Response:
        candidate = asking.candidate_of(request, await asking.body_of(request), asking.subject_of(request))
        done = await self._registry.add(candidate)
        told: dict[str, object] = {"id": done.id}
        # Older clients fail on fields they do not know; newer ones say that they do not.
        if done.is_changed:
            told |= {"version": done.version, **content_fields(done.content)}
        elif request.headers.get("confluent-accept-unknown-properties", "").lower() == "true":
            # Without the schema: clients keep what comes here, and have sent protobuf in another format.
            told |= {"version": done.version, "guid": done.content.guid}
        return answer(told)

    async def look_up(self, request: Request) -> Response:
        registry = self._registry
        candidate = asking.candidate_of(request, await asking.body_of(request), asking.subject_of(request))
        deleted = asking.switch(request, "deleted")
        held = await finding.look_up(registry.state, registry.parser, candidate, deleted=deleted)
        return answer(version_fields(held, await text_in(registry, held.subject, held.content, request)))

    async def delete(self, request: Request) -> Response:
        subject, permanent = asking.subject_of(request), asking.switch(request, "permanent")
        return answer(
            await self._registry.decide(lambda state: deciding.delete_subject(state, subject, permanent=permanent))
        )

    async def delete_version(self, request: Request) -> Response:
        subject, permanent = asking.subject_of(request), asking.switch(request, "permanent")
        wanted = parse_version(request.path_params["version"])
        return answer(
            await self._registry.decide(
                lambda state: deciding.delete_version(state, subject, wanted, permanent=permanent)
            )
        )

    async def test_compatibility(self, request: Request) -> Response:
        registry = self._registry
        text = request.path_params.get("version")
        wanted = None if text is None else parse_version(text)
        candidate = asking.candidate_of(request, await asking.body_of(request), asking.subject_of(request))
        found = await registering.test_compatibility(registry.state, registry.parser, candidate, wanted)
        told: dict[str, object] = {"is_compatible": not found}
        if asking.switch(request, "verbose"):
            told["messages"] = [f"{one.kind} at {one.path or '/'}: {one.message}" for one in found]
        return answer(told)

    def _version(self, request: Request, *, deleted: bool) -> Version:
        wanted = parse_version(request.path_params["version"])
        return questions.version(self._registry.state, asking.subject_of(request), wanted, deleted=deleted)
