"""The tables of settings: Kafka's names and defaults, ours besides, and the page of the docs made from them."""

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.config import SETTINGS, BrokerConfig, Dynamic, Scope, Setting, TopicConfig, describe_topic

ALL_SETTINGS = [setting for settings in SETTINGS.values() for setting in settings.values()]
REPOSITORY = Path(__file__).parents[3]

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
        "penstock.scheduler.slice.us",
        "penstock.tracing.endpoint",
        "penstock.tracing.sample.ratio",
        "penstock.tracing.service.name",
    }


def test_nothing_that_names_a_path_an_address_or_a_program_can_be_set_from_the_wire():
    words = ("dir", "path", "file", "listen", "location", "class", "url", "rack", "host")
    for setting in SETTINGS[Scope.BROKER].values():
        if any(word in part for word in words for part in setting.name.split(".")):
            assert setting.dynamic is Dynamic.READ_ONLY, setting.name


def test_the_page_of_settings_is_up_to_date():
    script = REPOSITORY / "scripts" / "configuration_table.py"
    check = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout + check.stderr
