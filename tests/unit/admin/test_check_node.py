"""Why a client does not get an answer, told apart."""

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from penstock.admin.check_node import check_connection, check_ready
from penstock.admin.cluster import Cluster
from penstock.admin.finding import Report
from penstock.testing import EmbeddedBroker

Talk = Callable[[socket.socket], None]


@contextmanager
def listener(talk: Talk) -> Generator[str]:
    """An address where `talk` answers, one connection at a time."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    talk(connection)
                except OSError:
                    continue

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def connect(bootstrap: str, holder: int | None = None, timeout_s: float = 5.0) -> tuple[bool, Report]:
    report = Report()
    return check_connection(Cluster(bootstrap, {}, timeout_s, as_json=False), report, holder), report


def test_a_broker_answers(penstock_broker: EmbeddedBroker) -> None:
    answered, report = connect(penstock_broker.bootstrap)
    assert answered
    assert report.findings == []


def test_nothing_listens() -> None:
    answered, report = connect("127.0.0.1:1")
    assert not answered
    (finding,) = report.findings
    assert "connection refused" in finding.what
    assert "penstock serve" in finding.todo


def test_a_process_has_the_directory_but_listens_elsewhere() -> None:
    _, report = connect("127.0.0.1:1", holder=77)
    (finding,) = report.findings
    assert "Process 77" in finding.why
    assert "--listen" in finding.todo


def test_one_address_of_several_is_enough(penstock_broker: EmbeddedBroker) -> None:
    answered, report = connect(f"127.0.0.1:1,{penstock_broker.bootstrap}")
    assert answered
    assert len(report.findings) == 1


def test_a_process_that_accepts_and_says_nothing() -> None:
    def listen_only(connection: socket.socket) -> None:
        while connection.recv(1000):
            pass

    with listener(listen_only) as address:
        answered, report = connect(address, timeout_s=0.3)
    assert not answered
    assert "says nothing" in report.findings[0].what


def test_a_listener_that_hangs_up() -> None:
    with listener(lambda connection: None) as address:
        _, report = connect(address)
    assert "hangs up at once" in report.findings[0].what


def test_a_port_where_something_else_is_served() -> None:
    def http(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listener(http) as address:
        _, report = connect(address)
    assert "does not speak Kafka" in report.findings[0].what


def test_readiness_is_the_brokers_own_word(penstock_broker: EmbeddedBroker) -> None:
    report = Report()
    check_ready(penstock_broker.http, 5.0, report)
    assert report.findings == []
    assert "says it is ready" in report.sound[0]


def test_the_reasons_of_a_broker_that_is_not_ready_are_passed_on() -> None:
    def not_ready(connection: socket.socket) -> None:
        connection.recv(1000)
        body = b'{"status": "not ready", "problems": ["orders-0: fsync failed"]}'
        connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    report = Report()
    with listener(not_ready) as address:
        check_ready(address, 5.0, report)
    assert report.findings[0].what == "the broker says it is not ready: orders-0: fsync failed"


def test_an_address_without_health_is_found() -> None:
    report = Report()
    check_ready("127.0.0.1:1", 5.0, report)
    assert "cannot be asked" in report.findings[0].what
