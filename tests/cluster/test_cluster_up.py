"""`penstock cluster up` and `serve --brokers`: real processes, started, used, stopped, killed and found again."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.cli.scheduler_slice import scheduling_of
from penstock.testing.etcd import etcd_binary

COMMAND = (sys.executable, "-m", "penstock")
DEADLINE_S = 60
MESSAGES = 500
# Older kernels have one slice for all threads.
KERNEL = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
SHORT_SLICE_NS = 100_000


class Up:
    """A running `penstock …`, and every process it started."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.family: set[psutil.Process] = set()

    def read_json(self) -> Any:
        return json.loads(self.read_line())

    def read_line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.look()
        assert line, self.process.communicate(timeout=DEADLINE_S)[1]
        return line

    def look(self) -> None:
        self.family.update(psutil.Process(self.process.pid).children(recursive=True))

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Its exit code and what it said on stderr, once it has ended; none of its children is left then."""
        self.look()
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=DEADLINE_S)
        _, alive = psutil.wait_procs(self.family, timeout=DEADLINE_S)
        assert alive == []
        return self.process.returncode, said


@contextmanager
def started(*arguments: str) -> Generator[Up]:
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    up = Up(process)
    try:
        yield up
    finally:
        if process.poll() is None:
            up.look()
            process.kill()
            process.communicate(timeout=DEADLINE_S)
        psutil.wait_procs(up.family, timeout=DEADLINE_S)


def cluster_up(data_dir: Path, *more: str) -> Any:
    return started("cluster", "up", "--no-gateway", "--data-dir", str(data_dir), "--base-port", "0", "--json", *more)


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    failures: list[Any] = []
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=0, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def consume(bootstrap: str, topic: str, count: int) -> list[int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"{len(found)} of {count} messages"
        if message.error() is None:
            found.append(int(message.value()))
    consumer.close()
    return found


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return json.loads(result.stdout)


@pytest.mark.parametrize("metadata", ["sqlite", "etcd"])
def test_a_cluster_keeps_its_messages_from_one_start_to_the_next(tmp_path: Path, metadata: str) -> None:
    if metadata == "etcd" and etcd_binary() is None:
        pytest.skip("there is no etcd on this machine (Debian: etcd-server)")
    with cluster_up(tmp_path, "--metadata", metadata) as up:
        told = up.read_json()
        assert [broker["node_id"] for broker in told["brokers"]] == [1, 2, 3]
        run("topics", "create", "orders", "-b", told["bootstrap"])
        (topic,) = run("topics", "describe", "orders", "-b", told["bootstrap"])
        assert sorted(topic["partitions"][0]["replicas"]) == [1, 2, 3]
        assert topic["configs"]["min.insync.replicas"] == "2"
        produce(told["bootstrap"], "orders", 0, MESSAGES)
        assert consume(told["bootstrap"], "orders", MESSAGES) == list(range(MESSAGES))
        code, said = up.end(signal.SIGINT)
        assert code == 0, said
        assert "one after another" in said
    with cluster_up(tmp_path, "--metadata", metadata) as up:
        told = up.read_json()
        produce(told["bootstrap"], "orders", MESSAGES, MESSAGES)
        assert consume(told["bootstrap"], "orders", 2 * MESSAGES) == list(range(2 * MESSAGES))
        assert up.end(signal.SIGTERM)[0] == 0


def test_a_cluster_that_is_killed_takes_its_brokers_along_and_loses_nothing(tmp_path: Path) -> None:
    with cluster_up(tmp_path) as up:
        told = up.read_json()
        run("topics", "create", "orders", "-b", told["bootstrap"])
        produce(told["bootstrap"], "orders", 0, MESSAGES)
        up.end(signal.SIGKILL)
    with cluster_up(tmp_path) as up:
        assert consume(up.read_json()["bootstrap"], "orders", MESSAGES) == list(range(MESSAGES))


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    with cluster_up(tmp_path) as up:
        up.read_json()
        up.process.send_signal(signal.SIGINT)
        assert up.process.stderr is not None
        assert "a second signal ends at once" in up.process.stderr.readline()
        code, _ = up.end(signal.SIGINT)
        # It may have come to its end by itself in the meantime.
        assert code in (0, 128 + signal.SIGINT)


def test_a_broker_that_dies_is_started_again_where_it_was(tmp_path: Path) -> None:
    with cluster_up(tmp_path, "--nodes", "3", "-o", "broker.session.timeout.ms=2000") as up:
        told = up.read_json()
        run("topics", "create", "orders", "-b", told["bootstrap"])
        produce(told["bootstrap"], "orders", 0, MESSAGES)
        second = told["brokers"][1]
        os.kill(second["process_id"], signal.SIGKILL)
        assert up.process.stderr is not None
        assert "broker 2 ended (killed by SIGKILL)" in up.process.stderr.readline()
        assert "broker 2 is back" in up.process.stderr.readline()
        produce(told["bootstrap"], "orders", MESSAGES, MESSAGES)
        assert consume(second["endpoint"], "orders", 2 * MESSAGES) == list(range(2 * MESSAGES))
        assert up.end(signal.SIGINT)[0] == 0


def test_a_broker_that_cannot_start_ends_the_others_and_says_where_to_look(tmp_path: Path) -> None:
    (tmp_path / "broker-2").write_text("in the way")
    with cluster_up(tmp_path) as up:
        _, said = up.process.communicate(timeout=DEADLINE_S)
        assert up.process.returncode == 2
        assert "broker 2 did not start" in said
        assert "broker-2.log says why" in said
    assert str(tmp_path / "broker-2") in (tmp_path / "logs" / "broker-2.log").read_text()


def test_serve_with_several_brokers_is_one_cluster(tmp_path: Path) -> None:
    own = ("--no-gateway", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--http", "")
    with started("serve", "--brokers", "2", *own) as up:
        assert "2 brokers are ready" in up.read_line()
        bootstrap = up.read_line().split()[1]
        run("topics", "create", "orders", "-p", "2", "-b", bootstrap)
        status = run("cluster", "status", "--check", "-b", bootstrap)
        assert [(broker["id"], broker["leaders"]) for broker in status["brokers"]] == [(1, 1), (2, 1)]
        assert {broker["rack"] for broker in status["brokers"]} == {os.uname().nodename}
        produce(bootstrap, "orders", 0, MESSAGES)
        assert consume(bootstrap, "orders", MESSAGES) == list(range(MESSAGES))
        # Both have answered as leaders, so both have done what they do once they are ready.
        if KERNEL >= (6, 12):
            for broker in up.family:
                assert {scheduling_of(thread.id).slice_ns for thread in broker.threads()} == {SHORT_SLICE_NS}
        assert up.end(signal.SIGTERM)[0] == 0
