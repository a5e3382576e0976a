"""Settings: what is accepted, what is refused and with which words, which layer wins, what clients are shown."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import (
    SETTINGS,
    BrokerConfig,
    ConfigSource,
    Dynamic,
    Kind,
    Scope,
    Setting,
    TopicConfig,
    append_items,
    describe_broker,
    describe_cluster,
    describe_group,
    describe_topic,
    subtract_items,
    validate,
    validate_change,
)
from penstock.config import describe as describe_module
from penstock.errors import ErrorCode, InvalidConfig
from penstock.model import Endpoint

ALL_SETTINGS = [setting for settings in SETTINGS.values() for setting in settings.values()]
REPOSITORY = Path(__file__).parents[2]

# Kafka 4.3's topic settings with their defaults, as its documentation lists them.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def entry_of(entries: list[describe_module.ConfigEntry], name: str) -> describe_module.ConfigEntry:
    return next(entry for entry in entries if entry.name == name)


# The tables.


def test_a_topic_shows_every_kafka_setting_with_kafkas_default_and_ours_besides():
    shown = {entry.name: entry.value for entry in describe_topic(BrokerConfig(), {})}
    assert {name: shown[name] for name in KAFKA_TOPIC_DEFAULTS} == KAFKA_TOPIC_DEFAULTS
    ours = {
        "penstock.durability": "fsync",
        "penstock.decompression.ratio.max": "32",
        "penstock.schema.validation": "off",
        "penstock.schema.key.validation": "off",
        "penstock.schema.validation.on.failure": "reject",
        "penstock.schema.dead.letter.topic": "",
        "penstock.schema.subject.strategy": "topic",
    }
    assert {name: value for name, value in shown.items() if name not in KAFKA_TOPIC_DEFAULTS} == ours


def test_defaults_derived_from_the_broker_are_the_topic_tables_own():
    assert BrokerConfig().topic_defaults == TopicConfig()


@pytest.mark.parametrize("setting", ALL_SETTINGS, ids=lambda setting: f"{setting.scope.value}:{setting.name}")
def test_a_default_passes_its_own_check_and_shows_as_it_is_written(setting: Setting):
    if setting.default_text is not None:
        assert setting.parse(setting.default_text) == setting.default
        assert setting.render(setting.default_text) == setting.default_text


def test_settings_that_are_not_kafkas_carry_our_prefix():
    own = {s.name for s in ALL_SETTINGS if s.name.startswith("penstock.")}
    assert own == {
        "penstock.cluster",
        "penstock.decompression.ratio.max",
        "penstock.durability",
        "penstock.frame.timeout.ms",
        "penstock.gateway.listen",
        "penstock.http.listen",
        "penstock.metadata",
        "penstock.metadata.connect.timeout.ms",
        "penstock.metadata.password",
        "penstock.metadata.tls.ca",
        "penstock.metadata.tls.cert",
        "penstock.metadata.tls.key",
        "penstock.metadata.user",
        "penstock.schema.dead.letter.topic",
        "penstock.schema.key.validation",
        "penstock.schema.subject.strategy",
        "penstock.schema.topic",
        "penstock.schema.validation",
        "penstock.schema.validation.on.failure",
        "penstock.tracing.endpoint",
        "penstock.tracing.sample.ratio",
        "penstock.tracing.service.name",
    }


def test_nothing_that_names_a_path_an_address_or_a_program_can_be_set_from_the_wire():
    words = ("dir", "path", "file", "listen", "location", "class", "url", "rack", "host")
    for setting in SETTINGS[Scope.BROKER].values():
        if any(word in part for word in words for part in setting.name.split(".")):
            assert setting.dynamic is Dynamic.READ_ONLY, setting.name


# Values.


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "1_000"),
        ("retention.ms", "1.5"),
        ("retention.ms", "\u0663"),
        ("retention.ms", "9223372036854775808"),
        ("retention.ms", "9" * 5000),
        ("retention.ms", "-2"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "1023"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "1.01"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("cleanup.policy", "delete,shred"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", "delete,"),
        ("compression.type", "LZ4"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("message.timestamp.type", "createtime"),
        ("remote.storage.enable", "true"),
    ],
)
def test_a_bad_value_is_refused_with_the_setting_and_what_is_allowed(name: str, value: str):
    with pytest.raises(InvalidConfig) as refusal:
        validate(Scope.TOPIC, name, value)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert name in str(refusal.value)
    assert SETTINGS[Scope.TOPIC][name].allowed in str(refusal.value)
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " +5 "),
        ("preallocate", "TRUE"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", ""),
        ("compression.gzip.level", "-1"),
        ("min.cleanable.dirty.ratio", "1"),
    ],
)
def test_a_value_kafka_takes_is_taken(name: str, value: str):
    validate(Scope.TOPIC, name, value)


def test_an_unknown_name_is_answered_with_the_nearest_right_one():
    with pytest.raises(InvalidConfig, match=r"did you mean cleanup\.policy\?"):
        validate(Scope.TOPIC, "clean.policy", "delete")
    with pytest.raises(InvalidConfig, match=r"did you mean log\.retention\.ms\?"):
        BrokerConfig({"log.retenton.ms": "1"})


def test_a_topics_name_given_to_a_broker_is_answered_with_the_brokers_name_for_it():
    with pytest.raises(InvalidConfig, match=r"one of topics; its default for all topics is log\.segment\.bytes"):
        BrokerConfig({"segment.bytes": "1048576"})
    with pytest.raises(InvalidConfig, match=r"for a topic it is retention\.ms"):
        validate(Scope.TOPIC, "log.retention.hours", "1")


def test_a_name_of_a_megabyte_is_refused_with_a_short_answer():
    with pytest.raises(InvalidConfig) as refusal:
        validate(Scope.TOPIC, "x" * 1_000_000, "1")
    assert len(str(refusal.value)) < 400


def test_all_that_is_wrong_at_start_is_told_at_once():
    with pytest.raises(InvalidConfig) as refusal:
        BrokerConfig({"node.id": "one", "log.dir": "here", "num.partitions": "0"})
    assert [name for name in ("node.id", "log.dir", "num.partitions") if name in str(refusal.value)] == [
        "node.id",
        "log.dir",
        "num.partitions",
    ]


def test_values_right_alone_and_wrong_together_are_refused():
    with pytest.raises(
        InvalidConfig, match=r"min\.compaction\.lag\.ms \(5\) is more than max\.compaction\.lag\.ms \(4\)"
    ):
        BrokerConfig().check_topic({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    with pytest.raises(InvalidConfig, match=r"group\.min\.session"):
        BrokerConfig({"group.min.session.timeout.ms": "10", "group.max.session.timeout.ms": "9"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        BrokerConfig({"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "4"})


def test_a_secret_that_fails_its_check_does_not_come_back_in_the_error():
    secret = Setting(
        name="x.password", kind=Kind.PASSWORD, default=None, doc="", sensitive=True, check=lambda _: "too short"
    )
    with pytest.raises(InvalidConfig) as refusal:
        secret.parse("hunter2")
    assert "hunter2" not in str(refusal.value)


# Loading.


def test_dotted_keys_tables_and_quoted_names_in_a_file_are_one_thing(tmp_path: Path):
    path = tmp_path / "broker.toml"
    path.write_text(
        """
        num.partitions = 4
        auto.create.topics.enable = false
        "max.connections" = 7
        "max.connections.per.ip" = 3
        [log]
        retention.ms = 5000
        cleanup.policy = ["compact", "delete"]
        [log.cleaner]
        min.cleanable.ratio = 0.25
        """
    )
    config = BrokerConfig.load(path)
    assert config.num_partitions == 4
    assert config.auto_create_topics_enable is False
    assert (config.max_connections, config.max_connections_per_ip) == (7, 3)
    assert config.topic_defaults.retention_ms == 5000
    assert config.topic_defaults.cleanup_policy == {"compact", "delete"}
    assert config.topic_defaults.min_cleanable_dirty_ratio == 0.25


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("num.partitions = ", "is not TOML"),
        ("max.connections = 1\nmax.connections.per.ip = 2", "quote both"),
        ("node.id = 2020-01-01", "neither text, a number"),
        ("node.idd = 1", r"did you mean node\.id"),
    ],
)
def test_a_bad_file_is_refused_with_what_is_wrong(tmp_path: Path, content: str, complaint: str):
    path = tmp_path / "broker.toml"
    path.write_text(content)
    with pytest.raises(InvalidConfig, match=complaint):
        BrokerConfig.load(path)


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(InvalidConfig, match=r"nowhere\.toml"):
        BrokerConfig.load(tmp_path / "nowhere.toml")


def test_flags_win_over_the_file_and_overrides_over_flags(tmp_path: Path):
    path = tmp_path / "broker.toml"
    path.write_text('node.id = 1\nlisteners = "127.0.0.1:1"\nlog.dirs = "a"\nnum.partitions = 2')
    config = BrokerConfig.load(
        path,
        ["node.id=3", "num.partitions = 9"],
        node_id=2,
        listen="127.0.0.1:2",
        data_dir=tmp_path,
        advertise="broker.example:9",
        http="",
    )
    assert config.node_id == 3
    assert config.num_partitions == 9
    assert config.listen == Endpoint("127.0.0.1", 2)
    assert config.advertise == Endpoint("broker.example", 9)
    assert config.data_dir == tmp_path
    assert config.http is None


def test_an_override_without_an_equals_sign_is_refused():
    with pytest.raises(InvalidConfig, match="name=value"):
        BrokerConfig.load(overrides=["node.id"])


def test_the_defaults_just_work():
    config = BrokerConfig()
    assert config.listen == config.advertise == Endpoint("127.0.0.1", 9092)
    assert config.http == Endpoint("127.0.0.1", 9644)


@pytest.mark.parametrize(
    "listeners", ["", "9092", "host:", "host:x", "host:65536", "SSL://host:9093", "::1:9092", "a:1,b:2"]
)
def test_a_bad_listener_is_refused(listeners: str):
    with pytest.raises(InvalidConfig):
        BrokerConfig({"listeners": listeners})


def test_an_ipv6_listener_is_written_in_brackets():
    assert BrokerConfig({"listeners": "PLAINTEXT://[::1]:9092"}).listen == Endpoint("::1", 9092)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", ""])
def test_an_address_nobody_can_connect_to_is_not_advertised(host: str):
    with pytest.raises(InvalidConfig, match=r"advertised\.listeners"):
        BrokerConfig({"listeners": f"{host}:9092"})
    reachable = BrokerConfig({"listeners": f"{host}:9092", "advertised.listeners": "broker.example:9092"})
    assert reachable.advertise.host == "broker.example"


def test_limits_of_single_addresses_are_keyed_as_the_kernel_writes_them():
    config = BrokerConfig({"max.connections.per.ip.overrides": "127.0.0.1:5,[0:0::1]:7"})
    assert config.connection_limits == {"127.0.0.1": 5, "::1": 7}
    for bad in ("localhost:1", "127.0.0.1", "127.0.0.1:-1", "127.0.0.1:x"):
        with pytest.raises(InvalidConfig, match="address:count"):
            BrokerConfig({"max.connections.per.ip.overrides": bad})


# Layers.


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_finer_unit_of_retention_wins(static: dict[str, str], retention_ms: int):
    assert BrokerConfig(static).topic_defaults.retention_ms == retention_ms


def test_a_topics_own_setting_wins_over_the_brokers():
    config = BrokerConfig({"log.segment.bytes": "2000000", "log.roll.hours": "1"})
    topic = config.topic({"segment.bytes": "3000000"})
    assert (topic.segment_bytes, topic.segment_ms) == (3_000_000, 3_600_000)
    assert config.topic({}) is config.topic_defaults


def test_this_brokers_dynamic_setting_wins_over_the_clusters_and_that_over_the_file():
    config = BrokerConfig({"log.retention.ms": "1", "message.max.bytes": "1000"})
    assert config.change_dynamic({"log.retention.ms": "2", "message.max.bytes": "2000"}, {"log.retention.ms": "3"}) == {
        "log.retention.ms",
        "message.max.bytes",
    }
    assert (config.topic_defaults.retention_ms, config.topic_defaults.max_message_bytes) == (3, 2000)
    assert config.change_dynamic({"log.retention.ms": "2"}, {}) == {"log.retention.ms", "message.max.bytes"}
    assert (config.topic_defaults.retention_ms, config.topic_defaults.max_message_bytes) == (2, 1000)
    assert config.change_dynamic({"log.retention.ms": "2"}, {}) == frozenset()
    assert config.change_dynamic({}, {}) == {"log.retention.ms"}
    assert config.log_retention_ms == 1


def test_a_read_only_setting_found_in_the_metadata_is_not_obeyed():
    config = BrokerConfig()
    assert config.change_dynamic({"log.dirs": "/etc"}, {"listeners": "evil.example:1"}) == frozenset()
    assert config.data_dir == Path("penstock-data")
    assert config.listen.host == "127.0.0.1"


def test_stored_settings_of_another_version_are_left_out_and_the_rest_is_obeyed():
    config = BrokerConfig()
    stored = {"a.newer.setting": "1", "segment.bytes": "huge", "retention.ms": "5"}
    assert config.topic(stored).retention_ms == 5
    assert config.topic(stored).segment_bytes == 1 << 30
    assert entry_of(describe_topic(config, stored), "segment.bytes").source is ConfigSource.DEFAULT
    assert config.change_dynamic({"a.newer.setting": "1", "log.segment.bytes": "huge"}, {}) == frozenset()
    with pytest.raises(InvalidConfig):
        config.check_topic({"a.newer.setting": "1"})


# Changes over the wire.


def test_a_read_only_setting_cannot_be_changed_over_the_wire():
    for resource in ("", "1"):
        with pytest.raises(InvalidConfig, match="read-only"):
            validate_change(Scope.BROKER, resource, "log.dirs", "/etc")
        with pytest.raises(InvalidConfig, match="read-only"):
            validate_change(Scope.BROKER, resource, "log.dirs", None)


def test_a_setting_of_single_brokers_cannot_be_given_to_all():
    validate_change(Scope.BROKER, "1", "leader.replication.throttled.rate", "5")
    with pytest.raises(InvalidConfig, match="one broker at a time"):
        validate_change(Scope.BROKER, "", "leader.replication.throttled.rate", "5")


def test_taking_away_a_setting_needs_its_name_only():
    validate_change(Scope.TOPIC, "orders", "retention.ms", None)
    with pytest.raises(InvalidConfig, match="did you mean"):
        validate_change(Scope.TOPIC, "orders", "retention.mss", None)


def test_items_are_added_to_and_taken_from_lists_only():
    assert append_items(Scope.TOPIC, "cleanup.policy", None, "compact") == "delete,compact"
    assert append_items(Scope.TOPIC, "cleanup.policy", "compact", "compact") == "compact"
    assert subtract_items(Scope.TOPIC, "cleanup.policy", "compact,delete", "delete, other") == "compact"
    for change in (append_items, subtract_items):
        with pytest.raises(InvalidConfig, match="not a list"):
            change(Scope.TOPIC, "retention.ms", "1", "2")


# What clients are shown.


def test_a_list_is_shown_in_the_order_it_was_set():
    shown = entry_of(describe_topic(BrokerConfig(), {"cleanup.policy": "delete, compact"}), "cleanup.policy")
    assert (shown.value, shown.source, shown.type_code) == ("delete,compact", ConfigSource.DYNAMIC_TOPIC, 7)


def test_a_topics_entry_lists_every_place_that_sets_it_the_one_in_force_first():
    config = BrokerConfig({"log.retention.hours": "1"})
    config.change_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "6"})
    shown = entry_of(describe_topic(config, {"retention.ms": "7"}), "retention.ms")
    assert [(s.name, s.value, s.source) for s in shown.synonyms] == [
        ("retention.ms", "7", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "6", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "1", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert not shown.read_only


@pytest.mark.parametrize(
    ("static", "cluster", "value", "source"),
    [
        ({}, {}, "604800000", ConfigSource.DEFAULT),
        ({"log.retention.minutes": "1"}, {}, "60000", ConfigSource.STATIC_BROKER),
        ({"log.retention.minutes": "1"}, {"log.retention.ms": "2"}, "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    ],
)
def test_a_topics_value_and_source_follow_the_broker(
    static: dict[str, str], cluster: dict[str, str], value: str, source: ConfigSource
):
    config = BrokerConfig(static)
    config.change_dynamic(cluster, {})
    shown = entry_of(describe_topic(config, {}), "retention.ms")
    assert (shown.value, shown.source) == (value, source)
    assert int(value) == config.topic_defaults.retention_ms


def test_only_the_names_asked_for_are_shown():
    names = [entry.name for entry in describe_topic(BrokerConfig(), {}, ["retention.ms", "no.such", "cleanup.policy"])]
    assert names == ["cleanup.policy", "retention.ms"]
    assert describe_broker(BrokerConfig(), []) == []


def test_a_brokers_entries_say_what_is_read_only_and_what_is_unset():
    entries = describe_broker(BrokerConfig({"node.id": "4"}))
    node = entry_of(entries, "node.id")
    assert (node.value, node.source, node.read_only) == ("4", ConfigSource.STATIC_BROKER, True)
    unset = entry_of(entries, "log.retention.ms")
    assert (unset.value, unset.source, unset.read_only, unset.synonyms) == (None, ConfigSource.DEFAULT, False, ())
    assert len(entries) == len(SETTINGS[Scope.BROKER])


def test_the_cluster_resource_shows_what_was_set_for_all_brokers_and_nothing_else():
    (shown,) = describe_cluster({"log.retention.ms": "5"})
    assert (shown.name, shown.value, shown.source) == ("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_a_groups_entries_show_its_own_values_over_the_defaults():
    entries = describe_group(BrokerConfig(), {"consumer.session.timeout.ms": "9000"})
    own = entry_of(entries, "consumer.session.timeout.ms")
    assert (own.value, own.source) == ("9000", ConfigSource.GROUP)
    assert entry_of(entries, "share.auto.offset.reset").source is ConfigSource.DEFAULT


def test_a_group_without_values_of_its_own_has_the_brokers():
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "50000"})
    shown = entry_of(describe_group(broker, {}), "consumer.session.timeout.ms")
    assert (shown.value, shown.source) == ("50000", ConfigSource.STATIC_BROKER)
    assert broker.group({}).consumer_session_timeout_ms == 50_000
    own = {"consumer.session.timeout.ms": "55000", "a.newer.setting": "1"}
    assert broker.group(own).consumer_session_timeout_ms == 55_000


def test_a_groups_values_stay_within_limits_that_came_later():
    broker = BrokerConfig()
    group = broker.group({"consumer.session.timeout.ms": "61000", "consumer.heartbeat.interval.ms": "100"})
    assert (group.consumer_session_timeout_ms, group.consumer_heartbeat_interval_ms) == (60_000, 5_000)


@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("consumer.session.timeout.ms", "44999", "group.consumer.min.session.timeout.ms"),
        ("consumer.session.timeout.ms", "60001", "group.consumer.max.session.timeout.ms"),
        ("consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat.interval.ms"),
        ("consumer.heartbeat.interval.ms", "15001", "group.consumer.max.heartbeat.interval.ms"),
    ],
)
def test_a_group_may_not_ask_for_more_than_the_broker_allows(name: str, value: str, limit: str):
    with pytest.raises(InvalidConfig, match=limit):
        BrokerConfig().check_group({name: value})
    BrokerConfig().check_group({"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "15000"})


def test_a_session_must_outlast_a_heartbeat():
    wide = {"group.consumer.min.session.timeout.ms": "1"}
    with pytest.raises(InvalidConfig, match="time out between two reports"):
        BrokerConfig(wide).check_group({"consumer.session.timeout.ms": "5000"})
    with pytest.raises(InvalidConfig, match="time out between two reports"):
        BrokerConfig({**wide, "group.consumer.session.timeout.ms": "5000"})


def test_the_brokers_own_times_for_groups_lie_within_its_limits():
    with pytest.raises(InvalidConfig, match=r"group\.consumer\.min\.session"):
        BrokerConfig({"group.consumer.session.timeout.ms": "9000"})
    with pytest.raises(InvalidConfig, match=r"group\.consumer\.max\.heartbeat"):
        BrokerConfig({"group.consumer.heartbeat.interval.ms": "20000"})


def test_a_broker_needs_an_assignor():
    with pytest.raises(InvalidConfig, match="needs an assignor"):
        BrokerConfig({"group.consumer.assignors": ""})
    assert BrokerConfig({"group.consumer.assignors": "range"}).group_consumer_assignors == ("range",)


def test_a_sensitive_value_is_never_shown(monkeypatch: pytest.MonkeyPatch):
    secret = Setting(name="x.password", kind=Kind.PASSWORD, default=None, doc="", scope=Scope.GROUP, sensitive=True)
    monkeypatch.setattr(describe_module, "GROUP_SETTINGS", {"x.password": secret})
    (shown,) = describe_group(BrokerConfig(), {"x.password": "hunter2"})
    assert shown.is_sensitive
    assert "hunter2" not in repr(shown)


def test_a_brokers_settings_do_not_show_in_a_repr():
    assert "127.0.0.1" not in repr(BrokerConfig())


def test_the_page_of_settings_is_up_to_date():
    script = REPOSITORY / "scripts" / "configuration_table.py"
    check = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr
