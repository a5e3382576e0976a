"""`penstock cluster …` and the admin clients against a real cluster of four brokers."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer
from confluent_kafka import TopicPartition as Asked
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, TopicPartition
from tests.cluster.test_cluster_up import COMMAND, DEADLINE_S, cluster_up, consume, produce
from typer.testing import CliRunner

from penstock.cli.app import app

MESSAGES = 2000

Run = Callable[..., Any]


SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "3000",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What `cluster up` says of four brokers."""
    settings = [word for name, value in SETTINGS.items() for word in ("-o", f"{name}={value}")]
    with cluster_up(tmp_path_factory.mktemp("cluster"), "--nodes", "4", *settings) as up:
        yield up.read_json()


@pytest.fixture
def bootstrap(cluster: Any) -> str:
    return cluster["bootstrap"]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs a command in this process with --json; gives the document, or what was said if it failed."""

    def invoke(*arguments: str, code: int | None = 0) -> Any:
        result = CliRunner().invoke(app, [*arguments, "--json"], env={"PENSTOCK_BOOTSTRAP": bootstrap})
        assert code in (None, result.exit_code), f"{result.output}\n{result.exception!r}"
        return json.loads(result.stdout) if result.stdout else result.stderr

    return invoke


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of eight partitions, three replicas each, with messages in its first."""
    name = request.node.name[:60].replace("[", "-").replace("]", "")
    run("topics", "create", name, "-p", "8")
    yield name
    run("topics", "delete", name, "--yes")


def replicas(run: Run, topic: str) -> list[list[int]]:
    (described,) = run("topics", "describe", topic)
    return [one["replicas"] for one in described["partitions"]]


def test_a_broker_is_drained_and_gets_its_share_again(run: Run, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, MESSAGES)
    dry = run("cluster", "drain", "4", "--dry-run")
    assert dry["copies"] > 0
    assert run("cluster", "drain", "4", "--throttle", "50000000")["replicas"] == 0
    status = run("cluster", "status", "--check")
    assert [(one["replicas"], one["leaders"]) for one in status["brokers"] if one["id"] == 4] == [(0, 0)]
    assert (status["under_replicated"], status["moving"]) == (0, 0)
    assert all(4 not in nodes and len(nodes) == 3 for nodes in replicas(run, topic))
    assert consume(bootstrap, topic, MESSAGES) == list(range(MESSAGES))
    # Nothing of the throttle is left.
    (described,) = run("topics", "describe", topic)
    left = [*described["configs"], *(one["name"] for one in run("configs", "describe", "broker:1")["configs"])]
    assert not any("throttled" in name for name in left)

    done = run("cluster", "rebalance")
    assert done["moved"] > 0
    counts = [one["replicas"] for one in run("cluster", "status")["brokers"]]
    assert max(counts) - min(counts) <= 1
    leaders = [one["leaders"] for one in run("cluster", "status")["brokers"]]
    assert max(leaders) - min(leaders) <= 1
    assert run("cluster", "rebalance", "--dry-run")["copies"] == 0
    assert consume(bootstrap, topic, MESSAGES) == list(range(MESSAGES))


def test_a_plan_is_generated_executed_and_verified(run: Run, bootstrap: str, topic: str, tmp_path: Path) -> None:
    produce(bootstrap, topic, 0, MESSAGES)
    plan, before = tmp_path / "plan.json", tmp_path / "before.json"
    said = run("cluster", "reassign", "generate", "--topic", topic, "--brokers", "1,2,3", "--out", str(plan))
    assert said["proposed"] == json.loads(plan.read_text())
    run("cluster", "reassign", "execute", str(plan), "--save-current", str(before), "--throttle", "50000000")
    told = run("cluster", "reassign", "verify", str(plan), code=None)
    while not told["done"]:
        assert {one["state"] for one in told["partitions"]} <= {"moving", "done"}
        told = run("cluster", "reassign", "verify", str(plan), code=None)
    assert all(4 not in nodes for nodes in replicas(run, topic))
    run("cluster", "reassign", "execute", str(before), "--wait")
    assert run("cluster", "reassign", "verify", str(before))["done"]
    assert consume(bootstrap, topic, MESSAGES) == list(range(MESSAGES))


def test_a_plan_that_names_what_is_not_there_is_refused(run: Run, topic: str, tmp_path: Path) -> None:
    def plan(name: str, nodes: list[int]) -> str:
        document = {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": nodes}]}
        (tmp_path / "plan.json").write_text(json.dumps(document))
        return str(tmp_path / "plan.json")

    assert "no partition nowhere-0" in run("cluster", "reassign", "execute", plan("nowhere", [1]), code=1)
    assert "no broker 9" in run("cluster", "reassign", "execute", plan(topic, [9]), code=1)
    assert "there is no broker 9" in run("cluster", "drain", "9", code=1)
    assert "there is no topic nowhere" in run("cluster", "reassign", "generate", "--topic", "nowhere", code=1)


def test_load_tells_what_each_broker_holds_and_takes(run: Run, bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, 0, MESSAGES)
    rows = run("cluster", "load", "--interval", "0.2")
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    assert sum(row["leaders"] for row in rows) >= 8
    assert all(row["size_bytes"] is not None and row["usable_bytes"] > 0 for row in rows)


def test_leaders_go_back_to_the_preferred_brokers(run: Run, bootstrap: str, topic: str) -> None:
    """By our command, by librdkafka and by kafka-python; a change of order moves a preferred leader, and no data."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    librdkafka = AdminClient({"bootstrap.servers": bootstrap})
    try:
        for number in range(3):
            first, *rest = replicas(run, topic)[0]
            at = TopicPartition(topic, 0)
            assert admin.alter_partition_reassignments({at: [*rest, first]}) == {at: None}
            assert admin.list_partition_reassignments() == {}
            if number == 0:
                assert {"topic": topic, "partition": 0, "elected": True, "error": None} in run(
                    "cluster", "elect", topic
                )
            elif number == 1:
                done = librdkafka.elect_leaders(ElectionType.PREFERRED, [Asked(topic, 0)]).result(DEADLINE_S)
                assert [error for error in done.values() if error is not None] == []
            else:
                admin.elect_leaders(0, {topic: [0]})
            (described,) = run("topics", "describe", topic)
            assert described["partitions"][0]["leader"] == rest[0]
        assert run("cluster", "elect", topic) == []
        unclean = run("cluster", "elect", "--unclean", "--yes", topic)
        assert unclean == []
    finally:
        admin.close()


def test_kafka_python_sees_who_decides(bootstrap: str, run: Run) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        told = admin.describe_metadata_quorum()
    finally:
        admin.close()
    text = json.dumps(told, default=str)
    assert "__cluster_metadata" in text
    assert run("cluster", "status")["controller"] in (1, 2, 3, 4)


def test_people_get_tables(bootstrap: str, topic: str) -> None:
    def read(*arguments: str) -> str:
        return CliRunner().invoke(app, ["cluster", *arguments, "-b", bootstrap]).stdout

    said = read("status")
    assert "controller" in said
    assert "partitions: all led and in sync." in said
    assert "ON DISK" in read("load", "--interval", "0.1")
    assert "Proposed partition reassignment configuration" in read("reassign", "generate", "--topic", topic)


def test_a_move_that_its_throttle_holds_up_is_taken_back(run: Run, bootstrap: str, topic: str, tmp_path: Path) -> None:
    produce(bootstrap, topic, 0, 20 * MESSAGES)
    before = replicas(run, topic)[0]
    (other,) = {1, 2, 3, 4} - set(before)
    target = [*before[:2], other]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": target}]}))
    run("cluster", "reassign", "execute", str(plan), "--throttle", "1")
    told = run("cluster", "reassign", "verify", str(plan), code=1)
    assert [one["state"] for one in told["partitions"]] == ["moving"]
    assert run("cluster", "status")["moving"] == 1
    assert "being moved already" in run("cluster", "drain", "1", code=1)
    assert "being moved already" in run("cluster", "reassign", "execute", str(plan), code=1)
    assert run("cluster", "reassign", "cancel", str(plan))["cancelled"] == [{"topic": topic, "partition": 0}]
    assert replicas(run, topic)[0] == before
    told = run("cluster", "reassign", "verify", str(plan), code=1)
    assert [one["state"] for one in told["partitions"]] == ["not as planned"]
    # Without the throttle, which went with the move, it is quick.
    run("cluster", "reassign", "execute", str(plan), "--wait")
    assert replicas(run, topic)[0] == target
    assert consume(bootstrap, topic, 20 * MESSAGES) == list(range(20 * MESSAGES))


def test_a_broker_that_is_gone_is_drained_from_the_copies_of_the_others(run: Run, cluster: Any, topic: str) -> None:
    bootstrap = ",".join(one["endpoint"] for one in cluster["brokers"][:3])
    produce(bootstrap, topic, 0, MESSAGES)
    os.kill(cluster["brokers"][3]["process_id"], signal.SIGSTOP)
    try:
        status: Any = ""
        # First it is gone, then others lead what it led. If it was the controller nobody answers until another one is.
        while isinstance(status, str) or all(one["present"] for one in status["brokers"]) or status["without_leader"]:
            status = run("cluster", "status", "-b", bootstrap, code=None)
        # Two of three are in sync, so everything goes on.
        status = run("cluster", "status", "--check", "-b", bootstrap)
        assert status["under_replicated"] > 0
        assert "not there: 4" in run("cluster", "rebalance", "-b", bootstrap, code=1)
        run("cluster", "drain", "4", "-b", bootstrap)
        assert run("cluster", "status", "--check", "-b", bootstrap)["under_replicated"] == 0
        assert consume(bootstrap, topic, MESSAGES) == list(range(MESSAGES))
    finally:
        os.kill(cluster["brokers"][3]["process_id"], signal.SIGCONT)
    while not [one for one in run("cluster", "status", "-b", bootstrap)["brokers"] if one["id"] == 4]:
        pass
    run("cluster", "rebalance", "-b", bootstrap)


def test_producers_notice_nothing_of_a_drain(run: Run, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    failures: list[Any] = []
    drain = subprocess.Popen(
        [*COMMAND, "cluster", "drain", "3", "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    sent = 0
    while drain.poll() is None:
        producer.produce(topic, str(sent), partition=0, on_delivery=lambda error, _: error and failures.append(error))
        sent += 1
        producer.poll(0.001)
    assert drain.returncode == 0, drain.communicate(timeout=DEADLINE_S)[0]
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []
    assert consume(bootstrap, topic, sent) == list(range(sent))
    run("cluster", "rebalance")
