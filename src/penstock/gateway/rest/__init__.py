"""Confluent's REST proxy, v2 and v3, streams and sockets, and the OpenAPI document of all of it.

A part of the gateway (see gateway.app): `routes` gives what it serves, `stop` closes the consumers it holds.
"""

from importlib.metadata import version

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from penstock.gateway.app import Services
from penstock.gateway.errors import JSON
from penstock.gateway.rest.events import Events
from penstock.gateway.rest.instances import Instances
from penstock.gateway.rest.openapi import document
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.socket import Sockets
from penstock.gateway.rest.table import Row, Socket
from penstock.gateway.rest.v2_consumer_records import V2ConsumerRecords
from penstock.gateway.rest.v2_consumer_rows import consumer_rows
from penstock.gateway.rest.v2_consumers import V2Consumers
from penstock.gateway.rest.v2_produce import V2Produce
from penstock.gateway.rest.v2_topics import V2Topics
from penstock.gateway.rest.v3_cluster import V3Cluster
from penstock.gateway.rest.v3_configs import V3Configs
from penstock.gateway.rest.v3_groups import V3Groups
from penstock.gateway.rest.v3_lags import V3Lags
from penstock.gateway.rest.v3_partitions import V3Partitions
from penstock.gateway.rest.v3_records import V3Records
from penstock.gateway.rest.v3_topics import V3Topics


def rows(services: Services) -> list[Row]:
    """What is called most comes first: routes are tried in order."""
    codecs = SchemaCodecs(services)
    instances = Instances(services.clock, services.settings.consumer_idle_s)
    services.closing.append(instances.close)
    return [
        *V2Produce(services, codecs).rows(),
        *V3Records(services, codecs).rows(),
        *Events(services, codecs).rows(),
        *Sockets(services, codecs).rows(),
        *consumer_rows(V2Consumers(services, instances), V2ConsumerRecords(services, codecs, instances)),
        *V2Topics(services).rows(),
        *V3Topics(services).rows(),
        *V3Partitions(services).rows(),
        *V3Groups(services).rows(),
        *V3Lags(services).rows(),
        *V3Configs(services).rows(),
        *V3Cluster(services).rows(),
    ]


def routes(services: Services) -> list[BaseRoute]:
    served = rows(services)
    # Made once: it is the same for every caller.
    text = orjson.dumps(document(served, version("penstock")))

    async def openapi(_: Request) -> Response:
        return Response(text, media_type=JSON)

    return [*(_route(row) for row in served), Route("/openapi.json", openapi, methods=["GET"])]


def _route(row: Row) -> BaseRoute:
    if isinstance(row, Socket):
        return WebSocketRoute(row.path, row.handler)
    return Route(row.path, row.handler, methods=[row.method])
