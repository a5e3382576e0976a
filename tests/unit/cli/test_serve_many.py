"""Several brokers on one host: what each is told, and what is refused before any starts."""

import socket
from pathlib import Path

import pytest

from penstock.cli import serve
from penstock.cli.serve_many import counted, plan_brokers
from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig
from penstock.model import Endpoint


def config(tmp_path: Path, **settings: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig({"log.dirs": str(tmp_path), "listeners": "127.0.0.1:9092", **given})


def test_ports_ids_and_directories_count_up(tmp_path: Path) -> None:
    plans = plan_brokers(config(tmp_path, node_id="5", penstock_http_listen="127.0.0.1:9644"), 3, ["-o", "a=b"])
    assert [plan.node_id for plan in plans] == [5, 6, 7]
    assert [plan.settings["listeners"] for plan in plans] == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]
    assert [plan.settings["penstock.http.listen"] for plan in plans] == [f"127.0.0.1:{n}" for n in (9644, 9645, 9646)]
    assert [plan.data_dir for plan in plans] == [tmp_path / f"broker-{n}" for n in (5, 6, 7)]
    assert all(plan.arguments == ("-o", "a=b") for plan in plans)


def test_they_share_a_store_beside_their_directories_and_a_rack_that_is_this_host(tmp_path: Path) -> None:
    for plan in plan_brokers(config(tmp_path), 2, ()):
        assert plan.settings["penstock.metadata"] == f"sqlite:{tmp_path / 'metadata.db'}"
        assert plan.settings["broker.rack"] == socket.gethostname()


def test_a_store_and_a_rack_that_were_given_stay(tmp_path: Path) -> None:
    given = config(tmp_path, penstock_metadata="etcd://127.0.0.1:2379", broker_rack="cellar")
    for plan in plan_brokers(given, 2, ()):
        assert not {"penstock.metadata", "broker.rack"} & plan.settings.keys()


def test_an_advertised_address_counts_up_as_well(tmp_path: Path) -> None:
    given = config(tmp_path, listeners="0.0.0.0:0", advertised_listeners="broker.example.org:9092")
    plans = plan_brokers(given, 2, ())
    assert [plan.settings["listeners"] for plan in plans] == ["0.0.0.0:0"] * 2
    assert [plan.settings["advertised.listeners"] for plan in plans] == [
        "broker.example.org:9092",
        "broker.example.org:9093",
    ]


def test_ports_past_the_last_are_refused() -> None:
    assert counted(Endpoint("a", 65534), 1).port == 65535
    with pytest.raises(InvalidConfig, match="go beyond 65535"):
        counted(Endpoint("a", 65534), 2)


@pytest.mark.parametrize("number", ["0", "-1", "65", "many"])
def test_a_number_of_brokers_that_cannot_be_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        serve.main(["--brokers", number])
    assert ended.value.code == 2
    assert "no number from 1 to 64" in capsys.readouterr().err


def test_what_is_wrong_is_said_once_and_not_by_every_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve.main(["--brokers", "3", "--data-dir", str(tmp_path / "d"), "-o", "log.retention.mss=1"]) == 2
    assert capsys.readouterr().err.count("did you mean log.retention.ms?") == 1
    assert not (tmp_path / "d").exists()
