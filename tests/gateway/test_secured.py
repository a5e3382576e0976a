"""A gateway before three brokers that want TLS and SCRAM: every part of it gets in, and one that may not says why.

penstock's brokers speak neither yet, so each stands behind a door that does (that of the Spark tests). Brokers find
each other through the same addresses, in the clear; the door lets nobody else in that way.
"""

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.replication.fetcher import CLIENT_ID as REPLICA
from penstock.testing import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "spark"))

from guarded_door import APART, GuardedDoor, make_certificates

USER, PASSWORD = "gateway", "pen=cil,s"
NODES = 3
DEADLINE_S = 60
TLS_HELLO = b"\x16"
PIECE_BYTES = 64 * 1024


class ClusterDoor(GuardedDoor):
    """The door of one broker of several. It counts who is turned away, so strangers must not find it."""

    def __init__(self, **how: Any) -> None:
        super().__init__(host=APART, **how)
        self.turned_away: list[str] = []

    @property
    def address(self) -> str:
        return f"{APART}:{self.port}"

    def _serve(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError):
            first = raw.recv(1, socket.MSG_PEEK)
            if first == TLS_HELLO:
                super()._serve(raw)
            elif first:  # else somebody only looked whether anybody listens
                self._let_broker_through(raw)

    def _let_broker_through(self, raw: socket.socket) -> None:
        assert self.upstream is not None
        head = raw.recv(4 + 8 + 2 + 100, socket.MSG_PEEK)
        (length,) = struct.unpack_from(">h", head, 12)
        name = head[14 : 14 + length].decode()
        if not name.startswith((REPLICA, "broker-")):
            self.turned_away.append(name)
            raw.close()
            return
        with raw, socket.create_connection(self.upstream) as broker:
            back = threading.Thread(target=_carry, args=(broker, raw), daemon=True)
            back.start()
            _carry(raw, broker)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


class Secured:
    def __init__(self, doors: list[ClusterDoor], certificate: Path) -> None:
        self.doors = doors
        self.bootstrap = ",".join(door.address for door in doors)
        self.properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(certificate),
        }

    @property
    def connections(self) -> int:
        return sum(door.connections for door in self.doors)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    root = tmp_path_factory.mktemp("secured")
    certificates = make_certificates(root)
    with contextlib.ExitStack() as closing:
        doors: list[ClusterDoor] = []
        for node in range(1, NODES + 1):
            made = ClusterDoor(certificates=certificates, mechanisms=("SCRAM-SHA-512",), users={USER: PASSWORD})
            door = closing.enter_context(made)
            settings = {
                "node.id": str(node),
                "listeners": f"{APART}:0",
                "advertised.listeners": door.address,
                "penstock.metadata": f"sqlite:{root / 'metadata.db'}",
                "default.replication.factor": str(NODES),
                "offsets.topic.replication.factor": str(NODES),
                "transaction.state.log.replication.factor": str(NODES),
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
            }
            broker = closing.enter_context(EmbeddedBroker(root / f"broker-{node}", settings))
            host, port = broker.bootstrap.rsplit(":", 1)
            door.upstream = host, int(port)
            doors.append(door)
        yield Secured(doors, certificates[0])


def test_every_part_gets_in(secured: Secured, gateway_factory: Any) -> None:
    gateway = gateway_factory(secured.bootstrap, properties=secured.properties).wait_until_ready()
    http: httpx.Client = gateway.http

    def ask(method: str, path: str, status: int = 200, **what: Any) -> Any:
        answer = http.request(method, path, **what)
        assert answer.status_code == status, answer.text
        return answer.json()

    # REST: a topic on all three, a record in, and out again.
    cluster = f"/v3/clusters/{ask('GET', '/v3/clusters')['data'][0]['cluster_id']}"
    assert len(ask("GET", f"{cluster}/brokers")["data"]) == NODES
    wanted = {"topic_name": "orders", "partitions_count": NODES, "replication_factor": NODES}
    ask("POST", f"{cluster}/topics", 201, json=wanted)
    for partition in range(NODES):
        record = {"partition_id": partition, "value": {"type": "JSON", "data": {"item": partition}}}
        made = ask("POST", f"{cluster}/topics/orders/records", json=record)
        assert (made["partition_id"], made["offset"]) == (partition, 0)
    found: set[int] = set()
    with http.stream("GET", f"{cluster}/topics/orders/records:stream", params={"from": "earliest"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and "item" in line:
                found.add(json.loads(line.removeprefix("data:"))["value"]["data"]["item"])
            if len(found) == NODES:
                break
    assert found == set(range(NODES))
    # The registry writes with a transaction, and reads its topic back.
    schema = {"schema": '"string"'}
    made = ask("POST", "/subjects/orders-value/versions", json=schema)
    assert ask("GET", f"/schemas/ids/{made['id']}")["schema"] == schema["schema"]
    # The console, and what its page of topics asks.
    assert "text/html" in http.get("/console/topics").headers["content-type"]
    assert "orders" in {row["name"] for row in ask("GET", "/api/topics")["topics"]}
    assert [door.turned_away for door in secured.doors] == [[]] * NODES


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sasl.password": "chalk"}, "SASL authentication error: Authentication failed"),
        ({"ssl.ca.location": ""}, "certificate verify failed"),
    ],
    ids=["a wrong password", "a stranger's certificate"],
)
def test_one_that_is_not_let_in_says_why_once_and_waits(secured: Secured, wrong: dict[str, str], told: str) -> None:
    properties = {name: value for name, value in (secured.properties | wrong).items() if value}
    command = [sys.executable, "-m", "penstock", "gateway", "--bootstrap", secured.bootstrap, "--listen", "127.0.0.1:0"]
    command += [part for name, value in properties.items() for part in ("-X", f"{name}={value}")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        url = process.stdout.readline().split()[1].rstrip("/")
        line = next(line for line in process.stderr if "does not let the gateway in" in line)
        assert told in line
        assert "check -X (sasl.*, ssl.*)" in line
        # Whoever asks hears the same at once, and no thread of the gateway waits for a time-out.
        with httpx.Client(base_url=url, timeout=DEADLINE_S) as http:
            ready = http.get("/health/ready")
            assert ready.status_code == 503
            assert told in ready.json()["message"]
            refused = http.get("/topics")
            assert refused.status_code == 401
            assert told in refused.json()["message"]
            assert http.get("/console/topics").status_code == 200
        process.terminate()
        _, rest = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    assert "Traceback" not in rest
    assert told not in rest, "it is said once"
    assert "chalk" not in line + rest
