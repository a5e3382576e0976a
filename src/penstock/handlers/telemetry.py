"""Client metrics on the wire (KIP-714): GetTelemetrySubscriptions and PushTelemetry.

Called by server.dispatch. What is asked of whom, and what becomes of it, is in telemetry.
"""

from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.handlers.context import HandlerContext, Request
from penstock.telemetry import ACCEPTED_CODECS, Client

Body = Mapping[str, Any]


def handle_get_telemetry_subscriptions(context: HandlerContext, request: Request) -> Body:
    try:
        instance = context.telemetry.ask(request.body.client_instance_id, _client(request))
    except PenstockError as error:
        return {"error_code": error.code}
    return {
        "client_instance_id": instance.id,
        "subscription_id": instance.wish.id,
        "accepted_compression_types": list(ACCEPTED_CODECS),
        "push_interval": instance.wish.interval_ms,
        "telemetry_max_bytes": context.telemetry.bytes_max,
        # Prometheus wants what there was since the client began; a lost push of differences could not be made up for.
        "delta_temporality": False,
        "requested_metrics": list(instance.wish.metrics),
    }


async def handle_push_telemetry(context: HandlerContext, request: Request) -> Body:
    body = request.body
    try:
        await context.telemetry.push(
            body.client_instance_id,
            _client(request),
            body.subscription_id,
            body.compression_type,
            body.metrics,
            is_last=body.terminating,
        )
    except PenstockError as error:
        return {"error_code": error.code}
    return {}


def _client(request: Request) -> Client:
    connection = request.connection
    return Client(
        request.client_id or "",
        connection.software_name,
        connection.software_version,
        connection.client_host,
        connection.client_port,
    )
