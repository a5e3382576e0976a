"""/schemas and /contexts: schemas by id, wherever they are registered.

Made by routes.py. An answer for an id is kept, as bytes, for as long as the state stays as it is: consumers of every
topic begin by asking for one.
"""

from collections import OrderedDict

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.registry import asking, questions
from penstock.gateway.registry.answers import Json, answer, content_fields, raw_schema, version_fields
from penstock.gateway.registry.formats import text_in
from penstock.gateway.registry.questions import SCHEMAS_MAX, SUBJECTS_MAX, page
from penstock.gateway.registry.refusals import MEDIA_TYPE, schema_not_found
from penstock.gateway.registry.registry import Registry
from penstock.gateway.registry.scope import aliased
from penstock.schemas.schema import KINDS
from penstock.schemas.stored.content import Content
from penstock.schemas.stored.names import whole_context

ANSWERS_BYTES_MAX = 16 << 20


class SchemaRoutes:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()
        self._answers_bytes = 0
        self._answers_epoch = -1

    async def by_id(self, request: Request) -> Response:
        state = self._registry.state
        if state.epoch != self._answers_epoch:
            self._answers.clear()
            self._answers_epoch, self._answers_bytes = state.epoch, 0
        place: bytes = request.scope["raw_path"] + b"?" + request.scope["query_string"]
        body = self._answers.get(place)
        if body is None:
            response = await self._by_id(request)
            self._keep(place, bytes(response.body), state.epoch)
            return response
        self._answers.move_to_end(place)
        return Response(body, media_type=MEDIA_TYPE)

    async def schema_by_id(self, request: Request) -> Response:
        context, content = self._content(request)
        text = await text_in(self._registry, whole_context(context), content, request)
        return raw_schema(content.text if text is None else text)

    async def subjects_of_id(self, request: Request) -> Response:
        names = list(dict.fromkeys(one.subject for one in self._holders(request)))
        return answer(names[self._page(request)])

    async def versions_of_id(self, request: Request) -> Response:
        found = [{"subject": one.subject, "version": one.version} for one in self._holders(request)]
        return answer(found[self._page(request)])

    async def by_guid(self, request: Request) -> Response:
        guid: str = request.path_params["guid"]
        found = questions.content_by_guid(self._registry.state, guid)
        if not found:
            raise schema_not_found(guid[:100])
        context, content = found[0]
        return answer(content_fields(content, await text_in(self._registry, whole_context(context), content, request)))

    async def ids_of_guid(self, request: Request) -> Response:
        found = questions.content_by_guid(self._registry.state, request.path_params["guid"])
        return answer([{"context": context, "id": content.id} for context, content in found])

    async def list_all(self, request: Request) -> Response:
        """Every version of every subject with a prefix, in parts."""
        state = self._registry.state
        part = page(asking.number(request, "offset", 0), asking.number(request, "limit", -1), SCHEMAS_MAX)
        latest_only = asking.switch(request, "latestOnly")
        found: list[Json] = []
        schemas = questions.schemas(
            state, asking.prefix_of(request), asking.deleted_of(request), latest_only=latest_only
        )
        for place, version in enumerate(schemas):
            if place >= part.stop:
                break
            if place >= part.start:
                found.append(version_fields(version))
        return answer(found)

    async def types(self, request: Request) -> Response:
        return answer(sorted(KINDS))

    async def contexts(self, request: Request) -> Response:
        return answer(self._registry.state.context_names()[self._page(request)])

    async def _by_id(self, request: Request) -> Response:
        context, content = self._content(request)
        told = content_fields(content, await text_in(self._registry, whole_context(context), content, request))
        if asking.switch(request, "fetchMaxId"):
            told["maxId"] = self._registry.state.next_id(context) - 1
        return answer(told)

    def _keep(self, place: bytes, body: bytes, epoch: int) -> None:
        # While a format was made the state may have moved on.
        if epoch != self._answers_epoch or len(body) > ANSWERS_BYTES_MAX // 8:
            return
        self._answers[place] = body
        self._answers_bytes += len(body) + len(place)
        while self._answers_bytes > ANSWERS_BYTES_MAX:
            gone, old = self._answers.popitem(last=False)
            self._answers_bytes -= len(old) + len(gone)

    def _content(self, request: Request) -> tuple[str, Content]:
        identifier = asking.identifier_of(request)
        hint = aliased(self._registry.state, asking.subject_hint(request))
        found = None if identifier is None else questions.content_by_id(self._registry.state, identifier, hint)
        if found is None:
            raise schema_not_found(request.path_params["id"][:20])
        return found

    def _holders(self, request: Request) -> list[questions.Version]:
        identifier = asking.identifier_of(request)
        if identifier is None:
            raise schema_not_found(request.path_params["id"][:20])
        deleted = asking.switch(request, "deleted")
        hint = asking.subject_hint(request)
        return questions.holders_of(self._registry.state, identifier, hint, deleted=deleted)

    def _page(self, request: Request) -> slice:
        return page(asking.number(request, "offset", 0), asking.number(request, "limit", -1), SUBJECTS_MAX)
