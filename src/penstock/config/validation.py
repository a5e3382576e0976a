"""Whether a name is a setting and a text is a value of it, in words that help.

Called by BrokerConfig for what is given at start and by handlers for what comes over the wire.
"""

import logging
from collections.abc import Mapping

from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.client_metrics_settings import CLIENT_METRICS_SETTINGS
from penstock.config.group_settings import GROUP_SETTINGS
from penstock.config.setting import Dynamic, Kind, Scope, Setting
from penstock.config.topic_config import TOPIC_SETTINGS
from penstock.errors import InvalidConfig

log = logging.getLogger(__name__)

SETTINGS: Mapping[Scope, Mapping[str, Setting]] = {
    Scope.BROKER: BROKER_SETTINGS,
    Scope.TOPIC: TOPIC_SETTINGS,
    Scope.GROUP: GROUP_SETTINGS,
    Scope.CLIENT_METRICS: CLIENT_METRICS_SETTINGS,
}
# Comparing names costs time that grows with them, and the wire lets a name be long.
NAME_LENGTH_MAX = 200


def find_setting(settings: Mapping[str, Setting], name: str) -> Setting:
    """The setting of that name, or InvalidConfig with the nearest right one."""
    setting = settings.get(name)
    if setting is None:
        raise InvalidConfig(_unknown(settings, name))
    return setting


def validate(scope: Scope, name: str, value: str) -> None:
    """Refuse a name or a value the table does not allow."""
    find_setting(SETTINGS[scope], name).parse(value)


def validate_change(scope: Scope, resource: str, name: str, value: str | None) -> None:
    """Refuse a change asked for over the wire; value None takes the setting away.

    `resource` is the topic's or group's name, a broker's id, or "" for all brokers.
    """
    setting = find_setting(SETTINGS[scope], name)
    if scope is Scope.BROKER:
        if setting.dynamic is Dynamic.READ_ONLY:
            raise InvalidConfig(f"{name} is read-only: set it where the broker is started")
        if setting.dynamic is Dynamic.PER_BROKER and not resource:
            raise InvalidConfig(f"{name} is set for one broker at a time: name the broker")
    if value is not None:
        setting.parse(value)


def validate_all(values: Mapping[str, str]) -> None:
    """Refuse a broker's settings, naming all that is wrong with them at once."""
    faults: list[str] = []
    for name, value in values.items():
        try:
            validate(Scope.BROKER, name, value)
        except InvalidConfig as fault:
            faults.append(str(fault))
    if faults:
        raise InvalidConfig("\n".join(faults))


def readable(settings: Mapping[str, Setting], stored: Mapping[str, str]) -> dict[str, str]:
    """Stored values this version understands. What a newer one wrote must not keep this one from starting."""
    understood: dict[str, str] = {}
    for name, value in stored.items():
        try:
            find_setting(settings, name).parse(value)
        except InvalidConfig as fault:
            log.warning("stored setting left out: %s", fault)
        else:
            understood[name] = value
    return understood


def append_items(scope: Scope, name: str, current: str | None, added: str) -> str:
    """A list setting's text with items added, as IncrementalAlterConfigs APPEND asks; current None is the default."""
    items = _items(scope, name, current)
    return ",".join(items + [item for item in _split(added) if item not in items])


def subtract_items(scope: Scope, name: str, current: str | None, removed: str) -> str:
    """A list setting's text without some items, as IncrementalAlterConfigs SUBTRACT asks."""
    gone = _split(removed)
    return ",".join(item for item in _items(scope, name, current) if item not in gone)


def _items(scope: Scope, name: str, current: str | None) -> list[str]:
    setting = find_setting(SETTINGS[scope], name)
    if setting.kind is not Kind.LIST:
        raise InvalidConfig(f"{name} is not a list: nothing can be appended to it or subtracted from it")
    return _split((setting.default_text or "") if current is None else current)


def _split(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _unknown(settings: Mapping[str, Setting], name: str) -> str:
    shown = repr(name if len(name) <= NAME_LENGTH_MAX else name[:NAME_LENGTH_MAX] + "…")
    scope = next(iter(settings.values())).scope
    message = f"{shown} is not a {scope.value} setting"
    if scope is Scope.BROKER and name in TOPIC_SETTINGS:
        brokers = " or ".join(broker_name for broker_name, _ in TOPIC_SETTINGS[name].broker_names)
        return f"{message} but one of topics" + (f"; its default for all topics is {brokers}" if brokers else "")
    if scope is Scope.TOPIC:
        for setting in TOPIC_SETTINGS.values():
            if any(broker_name == name for broker_name, _ in setting.broker_names):
                return f"{message} but one of brokers; for a topic it is {setting.name}"
    # Only here: most brokers never meet a wrong name.
    from difflib import get_close_matches

    nearest = get_close_matches(name, settings, n=1, cutoff=0.5) if len(name) <= NAME_LENGTH_MAX else []
    return f"{message}; did you mean {nearest[0]}?" if nearest else f"{message}; docs/configuration.md lists them"
