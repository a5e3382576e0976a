"""Settings of a client metrics subscription (KIP-714): the table. What clients report, how often, and which of them.

Called by validate() and describe_client_metrics(); read by telemetry.subscriptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.config import setting
from penstock.config.client_matching import match_fault
from penstock.config.setting import Scope

ALL_METRICS = "*"
INTERVAL_MS_DEFAULT = 300_000

_items = partial(setting.items, scope=Scope.CLIENT_METRICS)
_integer = partial(setting.integer, scope=Scope.CLIENT_METRICS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetricsSettings:
    # A row reads as name, default, meaning, limits; one argument a line would hide the table.
    # fmt: off
    metrics: tuple[str, ...] = _items(
        "metrics", (), "What clients report: beginnings of metric names, as `org.apache.kafka.producer.`; `*` for all.")
    interval_ms: int = _integer(
        "interval.ms", INTERVAL_MS_DEFAULT, "How often they report.", low=100, high=3_600_000)
    match: tuple[str, ...] = _items(
        "match", (), "Which clients: NAME=PATTERN, all of which must fit; none for every client. Names are "
        "client_instance_id, client_id, client_software_name, client_software_version, client_source_address and "
        "client_source_port; patterns are regular expressions of RE2 for the whole value.", check=match_fault)
    # fmt: on


CLIENT_METRICS_SETTINGS = setting.settings_of(ClientMetricsSettings)


def client_metrics_settings(overrides: Mapping[str, str]) -> ClientMetricsSettings:
    """The settings of one subscription; `overrides` have passed validation."""
    rows = CLIENT_METRICS_SETTINGS
    values: dict[str, Any] = {
        rows[name].attribute: rows[name].parse(text) for name, text in overrides.items() if name in rows
    }
    return ClientMetricsSettings(**values)
