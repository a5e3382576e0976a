"""The broker for tests keeps its port over restarts, whatever it tells clients."""

from pathlib import Path

from penstock.testing import EmbeddedBroker


def test_it_listens_where_it_did_though_clients_are_told_another_address(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, {"advertised.listeners": "127.0.0.1:1"}) as broker:
        address = broker.bootstrap
        assert address == str(broker.broker.bound) != "127.0.0.1:1"
        assert str(broker.broker.endpoint) == "127.0.0.1:1"
        broker.crash_and_restart()
        assert broker.bootstrap == str(broker.broker.bound) == address
