"""Which path of the registry belongs to which handler, and how the gateway joins the registry in.

Called by gateway.app: routes(), start(), stop(), not_ready().
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from penstock.gateway.registry.asking import check_accept
from penstock.gateway.registry.registry import Registry
from penstock.gateway.registry.schema_routes import SchemaRoutes
from penstock.gateway.registry.setting_routes import SettingRoutes
from penstock.gateway.registry.subject_routes import SubjectRoutes

if TYPE_CHECKING:
    from penstock.gateway.app import Services

Handler = Callable[[Request], Awaitable[Response]]


def routes(services: "Services") -> list[BaseRoute]:
    kafka = services.kafka
    settings = services.settings
    registry = services.registry = Registry(
        settings.bootstrap, settings.properties, settings.schemas_topic, cluster_id=lambda: kafka.cluster_id
    )
    _measure(services, registry)
    return registry_routes(registry)


async def start(services: "Services") -> None:
    assert services.registry is not None
    await services.registry.start()


async def stop(services: "Services") -> None:
    assert services.registry is not None
    await services.registry.close()


def not_ready(services: "Services") -> str | None:
    registry = services.registry
    return None if registry is None or registry.is_loaded else registry.trouble


def registry_routes(registry: Registry) -> list[BaseRoute]:
    found: list[BaseRoute] = []
    for method, path, handler in table(registry):
        found.append(_route(method, path, handler))
        # Every path may stand in a context, except those that are about the registry as a whole.
        if not path.startswith(("/v1/", "/contexts", "/schemas/types", "/schemas/guids")):
            found.append(_route(method, f"/contexts/{{context}}{path}", handler))
    return found


def table(registry: Registry) -> list[tuple[str, str, Handler]]:
    subjects, schemas, settings = SubjectRoutes(registry), SchemaRoutes(registry), SettingRoutes(registry)
    version = "/subjects/{subject}/versions/{version}"
    return [
        ("GET", "/schemas/ids/{id}", schemas.by_id),
        ("GET", "/schemas/ids/{id}/schema", schemas.schema_by_id),
        ("GET", "/schemas/ids/{id}/subjects", schemas.subjects_of_id),
        ("GET", "/schemas/ids/{id}/versions", schemas.versions_of_id),
        ("GET", "/schemas/guids/{guid}", schemas.by_guid),
        ("GET", "/schemas/guids/{guid}/ids", schemas.ids_of_guid),
        ("GET", "/schemas/types", schemas.types),
        ("GET", "/schemas", schemas.list_all),
        ("GET", "/subjects", subjects.list_all),
        ("GET", version, subjects.version),
        ("GET", "/subjects/{subject}/versions", subjects.list_versions),
        ("POST", "/subjects/{subject}/versions", subjects.register),
        ("POST", "/subjects/{subject}", subjects.look_up),
        ("DELETE", "/subjects/{subject}", subjects.delete),
        ("GET", "/subjects/{subject}/metadata", subjects.latest_with_metadata),
        ("DELETE", version, subjects.delete_version),
        ("GET", f"{version}/schema", subjects.version_schema),
        ("GET", f"{version}/referencedby", subjects.referenced_by),
        ("POST", "/compatibility/subjects/{subject}/versions", subjects.test_compatibility),
        ("POST", f"/compatibility{version}", subjects.test_compatibility),
        ("GET", "/config", settings.config),
        ("PUT", "/config", settings.set_config),
        ("DELETE", "/config", settings.delete_config),
        ("GET", "/config/{subject}", settings.config),
        ("PUT", "/config/{subject}", settings.set_config),
        ("DELETE", "/config/{subject}", settings.delete_config),
        ("GET", "/mode", settings.mode),
        ("PUT", "/mode", settings.set_mode),
        ("DELETE", "/mode", settings.delete_mode),
        ("GET", "/mode/{subject}", settings.mode),
        ("PUT", "/mode/{subject}", settings.set_mode),
        ("DELETE", "/mode/{subject}", settings.delete_mode),
        ("GET", "/contexts", schemas.contexts),
        ("GET", "/v1/metadata/id", settings.cluster_id),
        ("GET", "/v1/metadata/version", settings.version),
    ]


def _route(method: str, path: str, handler: Handler) -> Route:
    async def handle(request: Request) -> Response:
        check_accept(request)
        return await handler(request)

    return Route(path, handle, methods=[method])


def _measure(services: "Services", registry: Registry) -> None:
    metrics = services.metrics

    def told(read: Callable[[], float]) -> Callable[[], float]:
        return lambda: read() if registry.is_loaded else 0

    metrics.gauge("mq_registry_subjects", "Subjects, deleted ones too.", told(lambda: len(registry.state.subjects)))
    metrics.gauge(
        "mq_registry_versions", "Versions of subjects, deleted ones too.", told(lambda: registry.state.versions_held)
    )
    metrics.gauge(
        "mq_registry_unreadable_records",
        "Records of the schemas topic that were passed over.",
        told(lambda: registry.state.unreadable + registry.state.conflicts),
    )
    metrics.gauge("mq_registry_ready", "1 when the schemas topic has been read.", lambda: int(registry.is_loaded))
