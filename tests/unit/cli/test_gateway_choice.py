"""The gateway beside a server: which one, and what is said where there can be none."""

import socket

import pytest

from penstock.cli import gateway_choice
from penstock.cli.gateway_choice import GatewayChoice, choose_gateway
from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig
from penstock.model import Endpoint


def choose(*overrides: str, gateway: str | None = None, is_refused: bool = False) -> GatewayChoice | None:
    return choose_gateway(BrokerConfig.load(None, overrides, gateway=gateway), is_refused)


def test_it_is_on_the_loopback_unless_something_else_was_said() -> None:
    assert choose() == GatewayChoice(Endpoint("127.0.0.1", 8080), is_asked=False)
    assert choose(gateway="127.0.0.1:0") == GatewayChoice(Endpoint("127.0.0.1", 0), is_asked=True)
    assert choose("penstock.gateway.listen=localhost:0") == GatewayChoice(Endpoint("localhost", 0), is_asked=True)


def test_there_is_none_where_none_is_wanted() -> None:
    assert choose(is_refused=True) is None
    assert choose(gateway="") is None
    assert choose("penstock.gateway.listen=") is None


def test_a_taken_port_stops_only_who_named_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidConfig, match=f"{address} is in use by another process; --gateway HOST:PORT puts"):
            choose(gateway=address)
        usual = GatewayChoice(Endpoint("127.0.0.1", taken.getsockname()[1]), is_asked=False)
        why = usual.why_not()
    assert why == f"{address} is in use by another process"
    said = usual.complaint(why)
    assert said.startswith("no gateway (console, REST, schema registry): ")
    assert "--no-gateway" in said
    assert usual.why_not() is None


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(InvalidConfig, match=r"192\.0\.2\.1:80 cannot be used"):
        choose(gateway="192.0.2.1:80")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_choice, "PACKAGES", ("socket", "no_such_package"))
    why = GatewayChoice(Endpoint("127.0.0.1", 0), is_asked=False).why_not()
    assert why == "no_such_package is not installed (pip install penstock)"


@pytest.mark.parametrize(
    ("listen", "shown"),
    [
        (Endpoint("0.0.0.0", 80), "http://127.0.0.1:80/"),
        (Endpoint("::", 80), "http://[::1]:80/"),
        (Endpoint("box", 80), "http://box:80/"),
        (Endpoint("127.0.0.1", 0), "a free port"),
    ],
)
def test_the_console_is_shown_at_an_address_a_browser_takes(listen: Endpoint, shown: str) -> None:
    assert GatewayChoice(listen, is_asked=False).line.startswith(f"  console   {shown}  (")
