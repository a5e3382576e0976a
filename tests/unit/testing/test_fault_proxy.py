"""The fault proxy between a sender and a server that echoes: each fault does what it says, and heals."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from penstock.model import Endpoint
from penstock.testing.fault_proxy import CLIENTS, Door, FaultProxy, Hold

DEADLINE_S = 10.0
SILENCE_S = 0.3
PRODUCE, METADATA = 0, 3


class EchoServer:
    """Sends back what it gets, and remembers it by connection."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytearray] = []
        self.arrived = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(*self.listener.getsockname()[:2])

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.heard.append(bytearray())
            threading.Thread(target=self._echo, args=(connection, self.heard[-1]), daemon=True).start()

    def _echo(self, connection: socket.socket, heard: bytearray) -> None:
        try:
            while data := connection.recv(65536):
                with self.arrived:
                    heard += data
                    self.arrived.notify_all()
                connection.sendall(data)
        except OSError:
            pass

    def wait_for(self, expected: list[bytes]) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: [bytes(part) for part in self.heard] == expected, DEADLINE_S), (
                self.heard
            )


@pytest.fixture
def server() -> Iterator[EchoServer]:
    echo = EchoServer()
    yield echo
    echo.listener.close()


@pytest.fixture
def door(server: EchoServer) -> Iterator[tuple[FaultProxy, Door]]:
    proxy = FaultProxy()
    opened = Door(1, lambda peer: CLIENTS)
    opened.server = server.endpoint
    proxy.open_door(opened, "127.0.0.1")
    yield proxy, opened
    proxy.close()


def connect(door: Door) -> socket.socket:
    return socket.create_connection((door.address.host, door.address.port), DEADLINE_S)


def frame(api_key: int, body: bytes) -> bytes:
    return struct.pack(">iH", len(body) + 2, api_key) + body


def read(connection: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        data = connection.recv(count - len(got))
        assert data, "the connection ended"
        got += data
    return bytes(got)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SILENCE_S)
    try:
        return connection.recv(1) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(DEADLINE_S)


def test_bytes_go_through_both_ways(door: tuple[FaultProxy, Door]) -> None:
    proxy, opened = door
    big = bytes(range(256)) * 40_000
    with connect(opened) as connection:
        writer = threading.Thread(target=connection.sendall, args=(big,))
        writer.start()
        assert read(connection, len(big)) == big
        writer.join()
    assert proxy.carried_bytes[CLIENTS, 1] == len(big)


def test_a_cut_is_silent_and_what_was_sent_meanwhile_arrives_when_it_is_healed(door: tuple[FaultProxy, Door]) -> None:
    proxy, opened = door
    with connect(opened) as connection:
        connection.sendall(b"one")
        assert read(connection, 3) == b"one"
        assert proxy.cut(CLIENTS, 1) == 1
        connection.sendall(b"two")
        assert is_silent(connection)
        proxy.heal()
        assert read(connection, 3) == b"two"


def test_a_cut_of_the_way_back_lets_requests_through(door: tuple[FaultProxy, Door], server: EchoServer) -> None:
    proxy, opened = door
    with connect(opened) as connection:
        connection.sendall(b"one")
        assert read(connection, 3) == b"one"
        proxy.cut(1, CLIENTS)
        connection.sendall(b"two")
        server.wait_for([b"onetwo"])
        assert is_silent(connection)
        proxy.heal()
        assert read(connection, 3) == b"two"


def test_a_connection_made_during_a_cut_is_answered_after_it(door: tuple[FaultProxy, Door]) -> None:
    proxy, opened = door
    proxy.cut(1, CLIENTS)
    with connect(opened) as connection:
        connection.sendall(b"hello")
        assert is_silent(connection)
        proxy.heal()
        assert read(connection, 5) == b"hello"


def test_a_reset_comes_in_the_middle_of_what_is_sent(door: tuple[FaultProxy, Door], server: EchoServer) -> None:
    proxy, opened = door
    proxy.reset(CLIENTS, 1)
    with connect(opened) as connection:
        connection.sendall(b"x" * 100)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert proxy.counts["resets"] == 1
    with connect(opened) as connection:
        connection.sendall(b"y")
        assert read(connection, 1) == b"y"
    assert len(server.heard[0]) in (0, 50)


def test_a_held_request_arrives_after_its_retry_on_a_new_connection(
    door: tuple[FaultProxy, Door], server: EchoServer
) -> None:
    proxy, opened = door
    proxy.hold(Hold(CLIENTS, 1, frozenset({PRODUCE}), SILENCE_S, 1))
    asked, wanted = frame(METADATA, b"who leads"), frame(PRODUCE, b"record")
    with connect(opened) as connection:
        connection.sendall(asked + wanted)
        with pytest.raises(ConnectionResetError):
            read(connection, 1 << 20)
    with connect(opened) as connection:
        connection.sendall(wanted)
        assert read(connection, len(wanted)) == wanted
    server.wait_for([asked + wanted, wanted])
    assert proxy.counts["delivered late"] == 1


def test_a_request_of_another_kind_is_not_held(door: tuple[FaultProxy, Door]) -> None:
    proxy, opened = door
    proxy.hold(Hold(CLIENTS, 1, frozenset({PRODUCE}), DEADLINE_S, 1))
    with connect(opened) as connection:
        connection.sendall(frame(METADATA, b"who leads"))
        assert read(connection, 15) == frame(METADATA, b"who leads")
    assert proxy.counts["held"] == 0


def test_delayed_bytes_keep_their_order(door: tuple[FaultProxy, Door]) -> None:
    proxy, opened = door
    proxy.delay(CLIENTS, 1, 10 * SILENCE_S)  # many times as long as we listen, or a busy machine would hear it
    with connect(opened) as connection:
        connection.sendall(b"one")
        assert is_silent(connection)
        proxy.delay(CLIENTS, 1, 0)
        connection.sendall(b"two")
        assert read(connection, 6) == b"onetwo"


def test_a_server_that_is_away_breaks_the_connection(door: tuple[FaultProxy, Door], server: EchoServer) -> None:
    proxy, opened = door
    server.listener.shutdown(socket.SHUT_RDWR)
    server.listener.close()
    # The proxy may be quicker than connect(), which then tells of the reset itself.
    with pytest.raises(ConnectionResetError), connect(opened) as connection:
        read(connection, 1)
    assert proxy.pipes == set()
