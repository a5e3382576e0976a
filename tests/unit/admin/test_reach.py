"""Why a connection cannot be made."""

import socket

from penstock.admin.reach import Reached, reach
from penstock.model import Endpoint


def test_an_address_that_listens_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
        assert reach(endpoint).state is Reached.YES


def test_refused_and_unknown_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert reach(Endpoint("127.0.0.1", port)).state is Reached.REFUSED
    attempt = reach(Endpoint("no-such-host.invalid", 1))
    assert attempt.state is Reached.UNKNOWN_HOST
    assert "no-such-host.invalid:1" in str(attempt)


def test_a_peer_that_drops_packets_is_given_up_on() -> None:
    # A full backlog drops new connections without a word, as a firewall does.
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        endpoint = Endpoint("127.0.0.1", deaf.getsockname()[1])
        waiting = [socket.socket() for _ in range(8)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex((endpoint.host, endpoint.port))
            assert reach(endpoint, 0.2).state is Reached.NO_ANSWER
        finally:
            for one in waiting:
                one.close()
