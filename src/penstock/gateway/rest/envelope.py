"""REST v3's resources: kind, metadata with links, then the data itself.

Called by the v3 modules, each of which makes one Links per request.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from starlette.requests import HTTPConnection

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, KafkaFailed
from penstock.gateway.rest.table import STRING, Schema, list_of, nullable, structure

CLUSTER_NOT_FOUND = 40401
CLUSTER_ID: Schema = {"type": "string", "minLength": 1, "maxLength": 100}
METADATA = structure(("self",), self=STRING, resource_name=nullable(STRING), next=nullable(STRING))
RELATED = structure(("related",), related=STRING)


class Links:
    """Addresses of resources as the caller can reach them, and their names."""

    def __init__(self, base: str, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._clusters = f"{base}/v3/clusters"

    def clusters(self) -> str:
        return self._clusters

    def to(self, *segments: object) -> str:
        """Below the cluster; every segment is quoted whole."""
        path = "".join(f"/{quote(str(segment), safe=':-')}" for segment in segments)
        return f"{self._clusters}/{quote(self._cluster_id, safe='')}{path}"

    def related(self, *segments: object) -> dict[str, str]:
        return {"related": self.to(*segments)}

    def name(self, *pairs: tuple[str, object]) -> str:
        return f"crn:///kafka={self._cluster_id}" + "".join(f"/{kind}={value}" for kind, value in pairs)

    def resource(self, kind: str, url: str, name: str, /, **data: Any) -> dict[str, Any]:
        metadata = {"self": url, "resource_name": name}
        return {"kind": kind, "metadata": metadata, "cluster_id": self._cluster_id, **data}

    def collection(self, kind: str, url: str, items: Iterable[Any]) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"self": url, "next": None}, "data": list(items)}


async def links_for(connection: HTTPConnection, services: Services) -> Links:
    """For the cluster in the path; 404 where it is another."""
    from penstock.gateway.rest.names import base_url

    known = await cluster_id(services)
    asked = connection.path_params.get("cluster_id", known)
    if asked != known:
        raise HttpProblem(404, CLUSTER_NOT_FOUND, f"This gateway serves the cluster {known!r} and no other.")
    return Links(base_url(connection, services.settings), known)


async def cluster_id(services: Services) -> str:
    found = services.kafka.cluster_id
    if found is None:
        raise KafkaFailed(-195, "_TRANSPORT", "The cluster has not answered yet: try again later.", True)
    return found


def resource_schema(required: tuple[str, ...], /, **properties: Schema) -> Schema:
    own = {"kind": STRING, "metadata": METADATA, "cluster_id": STRING, **properties}
    return structure(("kind", "metadata", "cluster_id", *required), **own)


def collection_schema(item: Schema) -> Schema:
    return structure(("kind", "metadata", "data"), kind=STRING, metadata=METADATA, data=list_of(item))
