"""Settings as DescribeConfigs shows them: value, where it comes from, what else could have given it.

Called by handlers/admin.py. A sensitive value never leaves here.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.config.broker_config import BrokerConfig
from penstock.config.broker_settings import BROKER_SETTINGS
from penstock.config.client_metrics_settings import CLIENT_METRICS_SETTINGS
from penstock.config.group_settings import GROUP_SETTINGS
from penstock.config.setting import Dynamic, Scope, Setting
from penstock.config.topic_config import TOPIC_SETTINGS
from penstock.config.validation import readable


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    type_code: int
    documentation: str
    # Every place that sets this value, the one in force first.
    synonyms: tuple[ConfigSynonym, ...]


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of a topic, or those of `names` that exist."""

    overrides = readable(TOPIC_SETTINGS, overrides)

    def entry(setting: Setting) -> ConfigEntry:
        chain = _broker_chain(broker, [name for name, _ in setting.broker_names])
        if setting.name in overrides:
            value = setting.render(overrides[setting.name])
            chain.insert(0, ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_TOPIC))
        else:
            value = _default_of(broker, setting)
        return _entry(setting, value, chain)

    return _describe(TOPIC_SETTINGS, names, entry)


def describe_broker(broker: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """All settings of this broker, or those of `names` that exist."""

    def entry(setting: Setting) -> ConfigEntry:
        return _entry(setting, broker.value_text(setting.name), _broker_chain(broker, [setting.name]))

    return _describe(BROKER_SETTINGS, names, entry)


def describe_cluster(cluster_dynamic: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The dynamic settings all brokers share, which is what a broker resource without a name stands for."""

    cluster_dynamic = readable(BROKER_SETTINGS, cluster_dynamic)

    def entry(setting: Setting) -> ConfigEntry:
        value = setting.render(cluster_dynamic[setting.name])
        return _entry(setting, value, [ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)])

    known = {name: setting for name, setting in BROKER_SETTINGS.items() if name in cluster_dynamic}
    return _describe(known, names, entry)


def describe_group(
    broker: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of a group, or those of `names` that exist."""

    overrides = readable(GROUP_SETTINGS, overrides)

    def entry(setting: Setting) -> ConfigEntry:
        chain = _broker_chain(broker, [name for name, _ in setting.broker_names])
        if setting.name in overrides:
            value = setting.render(overrides[setting.name])
            chain.insert(0, ConfigSynonym(setting.name, value, ConfigSource.GROUP))
        else:
            value = _default_of(broker, setting)
        if not setting.broker_names:
            chain.append(ConfigSynonym(setting.name, setting.default_text, ConfigSource.DEFAULT))
        return _entry(setting, value, chain)

    return _describe(GROUP_SETTINGS, names, entry)


def describe_client_metrics(overrides: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """All settings of a client metrics subscription, or those of `names` that exist."""

    overrides = readable(CLIENT_METRICS_SETTINGS, overrides)

    def entry(setting: Setting) -> ConfigEntry:
        chain = [ConfigSynonym(setting.name, setting.default_text, ConfigSource.DEFAULT)]
        if setting.name in overrides:
            value = setting.render(overrides[setting.name])
            chain.insert(0, ConfigSynonym(setting.name, value, ConfigSource.CLIENT_METRICS))
        return _entry(setting, chain[0].value, chain)

    return _describe(CLIENT_METRICS_SETTINGS, names, entry)


def _describe(
    settings: Mapping[str, Setting], names: Collection[str] | None, entry: Callable[[Setting], ConfigEntry]
) -> list[ConfigEntry]:
    wanted = settings if names is None else set(names)
    return [entry(settings[name]) for name in sorted(settings) if name in wanted]


def _entry(setting: Setting, value: str | None, chain: list[ConfigSynonym]) -> ConfigEntry:
    if setting.sensitive:
        value = None
        chain = [ConfigSynonym(synonym.name, None, synonym.source) for synonym in chain]
    return ConfigEntry(
        name=setting.name,
        value=value,
        source=chain[0].source if chain else ConfigSource.DEFAULT,
        read_only=setting.scope is Scope.BROKER and setting.dynamic is Dynamic.READ_ONLY,
        is_sensitive=setting.sensitive,
        type_code=int(setting.kind),
        documentation=setting.doc,
        synonyms=tuple(chain),
    )


def _broker_chain(broker: BrokerConfig, names: list[str]) -> list[ConfigSynonym]:
    chain: list[ConfigSynonym] = []
    for layer, source in (
        (broker.node_dynamic, ConfigSource.DYNAMIC_BROKER),
        (broker.cluster_dynamic, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (broker.static, ConfigSource.STATIC_BROKER),
    ):
        chain += [ConfigSynonym(n, BROKER_SETTINGS[n].render(layer[n]), source) for n in names if n in layer]
    for name in names:
        default = BROKER_SETTINGS[name].default_text
        if default is not None:
            chain.append(ConfigSynonym(name, default, ConfigSource.DEFAULT))
    return chain


def _default_of(broker: BrokerConfig, setting: Setting) -> str | None:
    for name, unit in setting.broker_names:
        text = broker.value_text(name)
        if text is not None:
            return str(int(text) * unit) if unit != 1 and int(text) > 0 else text
    return setting.default_text
