"""REST v3's resources: kind, metadata with links, then the data itself.

Called by the v3 modules, each of which makes one Links per request.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from starlette.requests import HTTPConnection
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, KafkaFailed, json_response
from penstock.gateway.rest.names import base_url
from penstock.gateway.rest.shapes import STRING, Schema, list_of, nullable, structure

CLUSTER_NOT_FOUND = 40401
METADATA = structure(("self",), self=STRING, resource_name=nullable(STRING), next=nullable(STRING))
RELATED = structure(("related",), related=STRING)


class Links:
    """Addresses of resources as the caller can reach them, and their names."""

    def __init__(self, base: str, cluster_id: str) -> None:
        self._cluster_id = cluster_id
        self._clusters = f"{base}/v3/clusters"

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

    def answer_list(self, kind: str, items: Iterable[Any], *segments: object) -> Response:
        """All there is of a kind, at these segments below the cluster. Nothing is paged: `next` is null."""
        return self._list(kind, items, self.to(*segments))

    def answer_clusters(self, cluster: Any) -> Response:
        """The only collection that lies above a cluster."""
        return self._list("KafkaCluster", [cluster], self._clusters)

    def _list(self, kind: str, items: Iterable[Any], url: str) -> Response:
        return json_response({"kind": f"{kind}List", "metadata": {"self": url, "next": None}, "data": list(items)})


def links_for(connection: HTTPConnection, services: Services) -> Links:
    """For the cluster in the path; 404 where it is another."""
    known = cluster_id(services)
    asked = connection.path_params.get("cluster_id", known)
    if asked != known:
        raise HttpProblem(404, CLUSTER_NOT_FOUND, f"This gateway serves the cluster {known!r} and no other.")
    return Links(base_url(connection, services.settings), known)


def cluster_id(services: Services) -> str:
    found = services.kafka.cluster_id
    if found is None:
        reason = services.kafka.refusal or "The cluster has not answered yet: try again later."
        raise KafkaFailed(-195, "_TRANSPORT", reason, True)
    return found


def resource_schema(required: tuple[str, ...], /, **properties: Schema) -> Schema:
    own = {"kind": STRING, "metadata": METADATA, "cluster_id": STRING, **properties}
    return structure(("kind", "metadata", "cluster_id", *required), **own)


def collection_schema(item: Schema) -> Schema:
    return structure(("kind", "metadata", "data"), kind=STRING, metadata=METADATA, data=list_of(item))
