"""For which hosts a gateway answers, and what its own clients are told."""

import pytest

from penstock.gateway.settings import GatewaySettings
from penstock.model import Endpoint


@pytest.mark.parametrize(
    ("listen", "names", "allowed", "refused"),
    [
        ("127.0.0.1", (), ["localhost", "127.0.0.1", "::1"], ["evil.example", "10.0.0.1", ""]),
        ("127.0.0.2", (), ["localhost", "127.0.0.2"], ["evil.example"]),
        ("::1", (), ["localhost", "::1"], ["evil.example"]),
        ("127.0.0.1", ("gate.example",), ["gate.example", "localhost"], ["evil.example"]),
        ("0.0.0.0", (), ["anything.example", "10.0.0.1"], []),
        ("0.0.0.0", ("gate.example",), ["gate.example", "10.0.0.1"], ["evil.example"]),
    ],
)
def test_hosts(listen: str, names: tuple[str, ...], allowed: list[str], refused: list[str]) -> None:
    settings = GatewaySettings("b:1", Endpoint(listen, 80), allowed_hosts=names)
    assert [host for host in (*allowed, *refused) if settings.allows_host(host)] == allowed


def test_the_gateways_own_clients_push_no_metrics_unless_they_are_told_to() -> None:
    assert GatewaySettings("b:1").properties["enable.metrics.push"] == "false"
    told = GatewaySettings("b:1", properties={"enable.metrics.push": "true", "sasl.username": "u"}).properties
    assert (told["enable.metrics.push"], told["sasl.username"], told["log_level"]) == ("true", "u", "0")
