"""How an alteration of settings or quotas changes what is stored: set, delete, append, subtract.

Called by controller. Plain functions from the stored overrides and the wish to the new overrides or an error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from penstock.cluster.layout import QuotaEntity
from penstock.config.setting import Scope
from penstock.config.validation import append_items, subtract_items, validate_change
from penstock.errors import InvalidConfig, InvalidRequest

VALUE_BYTES_MAX = 100_000
QUOTA_ENTITY_TYPES = frozenset({"user", "client-id", "ip"})
USER_QUOTAS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
ADDRESS_QUOTAS = frozenset({"connection_creation_rate"})


class ConfigOp(IntEnum):
    """As IncrementalAlterConfigs numbers them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """`name` is a topic, a group, a client metrics subscription, a broker's id, or "" for all brokers."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    op: ConfigOp
    value: str | None = None


def altered_configs(
    resource: ConfigResource, stored: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    """IncrementalAlterConfigs: the overrides after the changes; everything not named stays."""
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise InvalidRequest(f"a setting of {resource.scope.value} {resource.name!r} is named twice")
    configs = dict(stored)
    for change in changes:
        new = _altered_value(resource.scope, change, configs.get(change.name))
        # A setting this version does not know any more can still be taken away.
        if new is not None or change.name not in stored:
            validate_change(resource.scope, resource.name, change.name, new)
        if new is None:
            configs.pop(change.name, None)
        else:
            configs[change.name] = new
    return configs


def replaced_configs(resource: ConfigResource, configs: Mapping[str, str | None]) -> dict[str, str]:
    """AlterConfigs: the overrides are exactly those given; a setting without a value falls back to its default."""
    for name, value in configs.items():
        validate_change(resource.scope, resource.name, name, value)
    return {name: value for name, value in configs.items() if value is not None}


def altered_quotas(
    entity: QuotaEntity, stored: Mapping[str, float], changes: Mapping[str, float | None]
) -> dict[str, float]:
    """AlterClientQuotas: the limits after the changes; None takes one away."""
    types = [kind for kind, _ in entity]
    if not types or len(set(types)) != len(types) or not QUOTA_ENTITY_TYPES.issuperset(types):
        raise InvalidRequest("a quota is for a user, a client-id, both of them, or an ip")
    if "ip" in types and len(types) > 1:
        raise InvalidRequest("a quota of an ip cannot name a user or a client-id as well")
    known = ADDRESS_QUOTAS if "ip" in types else USER_QUOTAS
    quotas = dict(stored)
    for name, value in changes.items():
        if name not in known:
            raise InvalidRequest(
                f"{name!r} is no quota of {' and '.join(sorted(types))}: {', '.join(sorted(known))} are"
            )
        if value is None:
            quotas.pop(name, None)
        elif not 0 < value < float("inf"):
            raise InvalidRequest(f"quota {name} must be a number above 0, not {value}")
        else:
            quotas[name] = value
    return quotas


def _altered_value(scope: Scope, change: ConfigChange, stored: str | None) -> str | None:
    if change.op is ConfigOp.DELETE:
        return None
    if change.value is None:
        raise InvalidRequest(f"{change.name} is to be changed but has no value")
    if len(change.value) > VALUE_BYTES_MAX:
        raise InvalidConfig(f"the value of {change.name} is longer than {VALUE_BYTES_MAX} characters")
    match change.op:
        case ConfigOp.SET:
            return change.value
        case ConfigOp.APPEND:
            return append_items(scope, change.name, stored, change.value)
        case ConfigOp.SUBTRACT:
            return subtract_items(scope, change.name, stored, change.value)
