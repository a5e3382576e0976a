"""The broker's configuration: the table filled from defaults, a TOML file, the command line and the cluster's metadata.

Called by broker.py, which makes one and hands it to the parts; they read attributes when they need them, so that a
change made while the broker runs is seen without a restart.
Invariants:
- A value comes from the first layer that has it: this broker's dynamic settings, the cluster's, what was given at
  start, the table.
- Attributes change in change_dynamic() only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from penstock.config.addresses import WILDCARDS, parse_endpoint, parse_overrides
from penstock.config.broker_settings import BROKER_SETTINGS, BrokerSettings
from penstock.config.group_settings import GROUP_SETTINGS, GroupSettings
from penstock.config.setting import Dynamic, Setting, Value, render_value
from penstock.config.topic_config import TOPIC_SETTINGS, TopicConfig
from penstock.config.validation import find_setting, readable, validate_all
from penstock.errors import InvalidConfig
from penstock.model import Endpoint

# What metadata says of any other setting is not obeyed: paths and addresses come from whoever starts the broker.
_DYNAMIC_SETTINGS = {name: s for name, s in BROKER_SETTINGS.items() if s.dynamic is not Dynamic.READ_ONLY}


class BrokerConfig(BrokerSettings):
    __slots__ = ("cluster_dynamic", "node_dynamic", "static", "topic_defaults")

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """`static`: settings given at start, by Kafka name. Raises InvalidConfig naming every bad one."""
        super().__init__()
        self.static = dict(static or {})
        self.cluster_dynamic: dict[str, str] = {}
        self.node_dynamic: dict[str, str] = {}
        validate_all(self.static)
        self._fill(BROKER_SETTINGS.values())
        self.topic_defaults = self._resolve_topic_defaults()
        self._check_together()

    @classmethod
    def load(
        cls,
        path: Path | None = None,
        overrides: Sequence[str] = (),
        *,
        data_dir: Path | None = None,
        listen: str | None = None,
        advertise: str | None = None,
        http: str | None = None,
        gateway: str | None = None,
        node_id: int | None = None,
        rack: str | None = None,
        metadata: str | None = None,
        cluster: str | None = None,
    ) -> "BrokerConfig":
        """From a TOML file, then the command line's flags, then `name=value` overrides; the later wins."""
        static = _read_toml(path) if path is not None else {}
        flags = {
            "log.dirs": data_dir,
            "listeners": listen,
            "advertised.listeners": advertise,
            "penstock.http.listen": http,
            "penstock.gateway.listen": gateway,
            "node.id": node_id,
            "broker.rack": rack,
            "penstock.metadata": metadata,
            "penstock.cluster": cluster,
        }
        static |= {name: str(value) for name, value in flags.items() if value is not None}
        for override in overrides:
            name, equals, value = override.partition("=")
            if not equals:
                raise InvalidConfig(f"{override!r} is not of the form name=value")
            static[name.strip()] = value
        return cls(static)

    @property
    def data_dir(self) -> Path:
        return Path(self.log_dirs[0])

    @property
    def listen(self) -> Endpoint:
        return parse_endpoint(self.listeners[0])

    @property
    def advertise(self) -> Endpoint:
        """What clients are told. Port 0 stands for the port the listener got."""
        return parse_endpoint((self.advertised_listeners or self.listeners)[0])

    @property
    def http(self) -> Endpoint | None:
        return parse_endpoint(self.penstock_http_listen) if self.penstock_http_listen else None

    @property
    def gateway(self) -> Endpoint | None:
        return parse_endpoint(self.penstock_gateway_listen) if self.penstock_gateway_listen else None

    @property
    def connection_limits(self) -> dict[str, int]:
        """Addresses with a limit of their own."""
        return parse_overrides(self.max_connections_per_ip_overrides)

    def topic(self, stored: Mapping[str, str]) -> TopicConfig:
        """One topic's settings in force: its own, as the metadata holds them, over the broker's."""
        return self._topic(readable(TOPIC_SETTINGS, stored)) if stored else self.topic_defaults

    def check_topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The same for settings somebody asks for; raises InvalidConfig."""
        for name in overrides:
            find_setting(TOPIC_SETTINGS, name)
        config = self._topic(overrides)
        config.check_together()
        return config

    def group(self, stored: Mapping[str, str]) -> GroupSettings:
        """One group's settings in force: its own over the broker's, and within the broker's limits.

        They were so when they were set; the limits may have changed since.
        """
        config = self._group(readable(GROUP_SETTINGS, stored))
        sessions, heartbeats = self._group_limits()
        return replace(
            config,
            consumer_session_timeout_ms=min(max(config.consumer_session_timeout_ms, sessions[0]), sessions[1]),
            consumer_heartbeat_interval_ms=min(
                max(config.consumer_heartbeat_interval_ms, heartbeats[0]), heartbeats[1]
            ),
        )

    def check_group(self, overrides: Mapping[str, str]) -> None:
        """Refuse settings somebody asks for; raises InvalidConfig."""
        for name in overrides:
            find_setting(GROUP_SETTINGS, name)
        config = self._group(overrides)
        sessions, heartbeats = self._group_limits()
        for name, value, (low, high) in (
            ("session.timeout.ms", config.consumer_session_timeout_ms, sessions),
            ("heartbeat.interval.ms", config.consumer_heartbeat_interval_ms, heartbeats),
        ):
            if not low <= value <= high:
                raise InvalidConfig(
                    f"consumer.{name} = {value}: it must be from {low} (group.consumer.min.{name}) "
                    f"to {high} (group.consumer.max.{name})"
                )
        _check_consumer_times("", config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms)

    def change_dynamic(self, cluster: Mapping[str, str], node: Mapping[str, str]) -> frozenset[str]:
        """Take the dynamic settings the metadata holds now; gives the names whose value changed."""
        cluster, node = readable(_DYNAMIC_SETTINGS, cluster), readable(_DYNAMIC_SETTINGS, node)
        touched = self.cluster_dynamic.keys() | self.node_dynamic.keys() | cluster.keys() | node.keys()
        settings = [BROKER_SETTINGS[name] for name in touched]
        before = {setting.name: getattr(self, setting.attribute) for setting in settings}
        self.cluster_dynamic, self.node_dynamic = cluster, node
        self._fill(settings)
        self.topic_defaults = self._resolve_topic_defaults()
        return frozenset(s.name for s in settings if getattr(self, s.attribute) != before[s.name])

    def value_text(self, name: str) -> str | None:
        """The value in force, as text; None where nothing is set."""
        setting = BROKER_SETTINGS[name]
        for layer in (self.node_dynamic, self.cluster_dynamic, self.static):
            if name in layer:
                return setting.render(layer[name])
        return setting.default_text

    def is_set(self, name: str) -> bool:
        """Whether somebody chose the value in force, be it the default's."""
        return any(name in layer for layer in (self.node_dynamic, self.cluster_dynamic, self.static))

    def _fill(self, settings: Iterable[Setting]) -> None:
        for setting in settings:
            value: Value = setting.default
            for layer in (self.static, self.cluster_dynamic, self.node_dynamic):
                if setting.name in layer:
                    value = setting.parse(layer[setting.name])
            setattr(self, setting.attribute, value)

    def _resolve_topic_defaults(self) -> TopicConfig:
        values: dict[str, Any] = {}
        for setting in TOPIC_SETTINGS.values():
            for name, unit in setting.broker_names:
                value = getattr(self, BROKER_SETTINGS[name].attribute)
                if value is not None:
                    # -1 is "no limit" in every unit.
                    values[setting.attribute] = value * unit if unit != 1 and value > 0 else value
                    break
        return TopicConfig(**values)

    def _topic(self, overrides: Mapping[str, str]) -> TopicConfig:
        own: dict[str, Any] = {}
        for name, text in overrides.items():
            setting = TOPIC_SETTINGS[name]
            own[setting.attribute] = setting.parse(text)
        return replace(self.topic_defaults, **own)

    def _group(self, overrides: Mapping[str, str]) -> GroupSettings:
        values: dict[str, Any] = {}
        for setting in GROUP_SETTINGS.values():
            if setting.name in overrides:
                values[setting.attribute] = setting.parse(overrides[setting.name])
            elif setting.broker_names:
                values[setting.attribute] = getattr(self, BROKER_SETTINGS[setting.broker_names[0][0]].attribute)
        return GroupSettings(**values)

    def _group_limits(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and the most for a group's session time-out and for its heartbeat interval."""
        return (
            (self.group_consumer_min_session_timeout_ms, self.group_consumer_max_session_timeout_ms),
            (self.group_consumer_min_heartbeat_interval_ms, self.group_consumer_max_heartbeat_interval_ms),
        )

    def _check_together(self) -> None:
        self.topic_defaults.check_together()
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise InvalidConfig("group.min.session.timeout.ms is more than group.max.session.timeout.ms")
        sessions, heartbeats = self._group_limits()
        for name, value, (low, high) in (
            ("session.timeout.ms", self.group_consumer_session_timeout_ms, sessions),
            ("heartbeat.interval.ms", self.group_consumer_heartbeat_interval_ms, heartbeats),
        ):
            if not low <= value <= high:
                raise InvalidConfig(
                    f"group.consumer.{name} ({value}) must lie between group.consumer.min.{name} ({low}) and "
                    f"group.consumer.max.{name} ({high})"
                )
        _check_consumer_times(
            "group.", self.group_consumer_session_timeout_ms, self.group_consumer_heartbeat_interval_ms
        )
        if not self.listeners:
            raise InvalidConfig("listeners is empty; give it an address, as 127.0.0.1:9092")
        if self.advertise.host in WILDCARDS:
            raise InvalidConfig(
                f"clients cannot connect to {self.advertise.host or 'an empty host'!r}: "
                "set advertised.listeners (--advertise) to an address they can reach"
            )


def _check_consumer_times(prefix: str, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
    if session_timeout_ms <= heartbeat_interval_ms:
        raise InvalidConfig(
            f"{prefix}consumer.session.timeout.ms ({session_timeout_ms}) must be more than "
            f"{prefix}consumer.heartbeat.interval.ms ({heartbeat_interval_ms}), or members time out between two reports"
        )


def _read_toml(path: Path) -> dict[str, str]:
    # Only here: a broker without a file starts without the parser.
    import tomllib

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as fault:
        raise InvalidConfig(f"cannot read {path}: {fault.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        hint = (
            ""
            if "overwrite" not in str(fault)
            else '; where one name begins another, quote both: "max.connections" = 5'
        )
        raise InvalidConfig(f"{path} is not TOML: {fault}{hint}") from None
    return dict(_flatten(document, ""))


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    """`[log] retention.ms = 1`, `log.retention.ms = 1` and `"log.retention.ms" = 1` are one setting."""
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flatten(cast(dict[str, Any], value), name + ".")
        elif isinstance(value, list):
            yield name, ",".join(str(item) for item in cast(list[object], value))
        elif isinstance(value, bool | int | float | str):
            yield name, render_value(value) or ""
        else:
            raise InvalidConfig(f"{name}: {value!r} is neither text, a number, true, false nor a list of these")
