"""The schema registry: Confluent's HTTP API over a compacted topic.

Joined in by gateway.app (routes, start, stop, not_ready); other parts of the gateway use `Registry`.
"""

from penstock.gateway.registry.registered import RegisteredSchema
from penstock.gateway.registry.registry import Registry
from penstock.gateway.registry.routes import not_ready, routes, start, stop

__all__ = ["RegisteredSchema", "Registry", "not_ready", "routes", "start", "stop"]
