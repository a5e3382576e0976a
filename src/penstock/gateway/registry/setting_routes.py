"""/config and /mode, of a subject, a context or the registry; and what the registry says of itself.

Made by routes.py.
"""

from importlib.metadata import version as installed_version

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.registry import asking, deciding, scope
from penstock.gateway.registry.answers import answer
from penstock.gateway.registry.refusals import compatibility_not_configured, mode_not_configured, unavailable
from penstock.gateway.registry.registry import Registry
from penstock.gateway.registry.scope import config_in_scope, mode_in_scope, parse_config, parse_mode, settings_key


class SettingRoutes:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def config(self, request: Request) -> Response:
        wanted, state = asking.scope_of(request), self._registry.state
        key = settings_key(wanted)
        if key is None or asking.switch(request, "defaultToGlobal"):
            return answer(config_in_scope(state, wanted))
        config = state.configs.get(key)
        if config is None:
            raise compatibility_not_configured(key)
        return answer(config)

    async def set_config(self, request: Request) -> Response:
        wanted = asking.scope_of(request)
        changes = parse_config(await asking.body_of(request))
        return answer(await self._registry.decide(lambda state: deciding.set_config(state, wanted, changes)))

    async def delete_config(self, request: Request) -> Response:
        wanted = asking.scope_of(request)
        gone = await self._registry.decide(lambda state: deciding.delete_config(state, wanted))
        return answer(gone or {scope.LEVEL: scope.DEFAULT_LEVEL})

    async def mode(self, request: Request) -> Response:
        wanted, state = asking.scope_of(request), self._registry.state
        key = settings_key(wanted)
        # An override of the registry holds for every subject, so every subject has a mode then.
        has_mode = key is None or key in state.modes or mode_in_scope(state, None) is scope.Mode.READONLY_OVERRIDE
        if key is not None and not has_mode and not asking.switch(request, "defaultToGlobal"):
            raise mode_not_configured(key)
        return answer({"mode": mode_in_scope(state, wanted)})

    async def set_mode(self, request: Request) -> Response:
        wanted, force = asking.scope_of(request), asking.switch(request, "force")
        mode = parse_mode(await asking.body_of(request))
        done = await self._registry.decide(lambda state: deciding.set_mode(state, wanted, mode, force=force))
        return answer({"mode": done})

    async def delete_mode(self, request: Request) -> Response:
        wanted = asking.scope_of(request)
        return answer({"mode": await self._registry.decide(lambda state: deciding.delete_mode(state, wanted))})

    async def cluster_id(self, request: Request) -> Response:
        cluster_id = self._registry.cluster_id()
        if cluster_id is None:
            raise unavailable("The cluster has not answered yet, so its id is not known.")
        return answer(
            {
                "scope": {
                    "path": [],
                    "clusters": {"kafka-cluster": cluster_id, "schema-registry-cluster": "schema-registry"},
                },
                "id": "",
            }
        )

    async def version(self, request: Request) -> Response:
        return answer({"version": installed_version("penstock"), "commitId": ""})
