"""Where a broker's settings come from: the file, flags and overrides; and the addresses it listens on."""

from pathlib import Path

import pytest

from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig
from penstock.model import Endpoint


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
