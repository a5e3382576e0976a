"""Who is asked for which metrics: the subscriptions of the cluster, put together for one client.

Called by handlers.telemetry. A subscription is a resource of type CLIENT_METRICS in the cluster's settings.
Invariant: the id of a wish is the same on every broker and in every process, so that a client may push to another one.
"""

import zlib
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.config.client_matching import Pattern, compile_match
from penstock.config.client_metrics_settings import (
    ALL_METRICS,
    CLIENT_METRICS_SETTINGS,
    INTERVAL_MS_DEFAULT,
    client_metrics_settings,
)
from penstock.config.validation import readable

Facts = Mapping[str, str]  # what is known of a client, by the names a `match` uses


class Wish(NamedTuple):
    """What one client is asked for: beginnings of names, `*` for all of them, nothing if nobody subscribes."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Source(Protocol):
    """Where subscriptions are kept: the cluster's image."""

    client_metrics_configs: dict[str, dict[str, str]]
    client_metrics_revision: int


class _Subscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Pattern]


class Subscriptions:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._compiled: tuple[int, list[_Subscription]] = (-1, [])

    @property
    def is_empty(self) -> bool:
        return not self._source.client_metrics_configs

    @property
    def revision(self) -> int:
        return self._source.client_metrics_revision

    def wish_for(self, instance_id: UUID, facts: Facts) -> Wish:
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        for each in self._current():
            if all(pattern.fullmatch(facts.get(name, "")) is not None for name, pattern in each.match.items()):
                metrics.update(each.metrics)
                interval_ms = min(interval_ms, each.interval_ms)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        # Of the client too, as in Kafka: else one with another's id would be taken for it.
        crc = zlib.crc32(f"{interval_ms}\n{','.join(names)}\n{instance_id.hex}".encode())
        return Wish(crc - (1 << 32) if crc >= 1 << 31 else crc, names, interval_ms)

    def _current(self) -> list[_Subscription]:
        revision, compiled = self._compiled
        if revision != self.revision:
            compiled = [_compile(stored) for stored in self._source.client_metrics_configs.values()]
            self._compiled = (self.revision, compiled)
        return compiled


def _compile(stored: Mapping[str, str]) -> _Subscription:
    settings = client_metrics_settings(readable(CLIENT_METRICS_SETTINGS, stored))
    return _Subscription(settings.metrics, settings.interval_ms, compile_match(settings.match))
