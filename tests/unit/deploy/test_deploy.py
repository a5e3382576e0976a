"""Rules, dashboards and routes are what their programs can read, and speak only of metrics that a broker has."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.metrics import BrokerMetrics
from penstock.testing import EmbeddedBroker

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = sorted((DEPLOY / "prometheus" / "alerts").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
DEADLINE_S = 30
NAME = re.compile(r"\b(mq_\w+|process_\w+|penstock:[\w:]+)")

# Counted only when something goes wrong, or done by somebody else than one broker and one client: the page has them
# from then on, and the registry before.
RARE = {
    "mq_connections_closed_total",
    "mq_connections_refused_total",
    "mq_metadata_errors_total",
    "mq_throttle_ms_total",
    "mq_throttled_requests_total",
    "mq_replica_lag_records",
    "mq_topic_retention_bytes",
    "mq_telemetry_pushes_total",
}


def rules() -> list[dict[str, Any]]:
    return [rule for file in ALERTS for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions(board: dict[str, Any]) -> list[str]:
    found = [target["expr"] for panel in panels(board) for target in panel.get("targets", [])]
    found += [each["expr"] for each in board["annotations"]["list"]]
    found += [re.sub(r"label_values\((.*), \w+\)", r"\1", each["definition"]) for each in variables(board)[1:]]
    return [each.replace("$__rate_interval", "5m") for each in found]


def variables(board: dict[str, Any]) -> list[dict[str, Any]]:
    return board["templating"]["list"]


def run(program: str, *arguments: str | Path) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def metric_names(text: str) -> set[str]:
    known = {name for name, kind, _, _ in BrokerMetrics(_Clock()).registry.described() if kind == "histogram"}
    names = set(NAME.findall(text))
    return {
        match[0] if (match := [each for each in known if re.fullmatch(f"{each}_(bucket|sum|count)", name)]) else name
        for name in names
    }


class _Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def page(penstock_broker: EmbeddedBroker) -> set[str]:
    """The names on the page of a broker that was used: written to, read by a group, asked for what is not there."""
    settings = {"bootstrap.servers": penstock_broker.bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", 2), NewTopic("c", 1, config={"cleanup.policy": "compact"})])["t"].result(
        DEADLINE_S
    )
    producer = Producer(settings)
    producer.produce("t", b"value", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["t"])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    consumer.commit(message, asynchronous=False)
    with pytest.raises(KafkaException):
        consumer.get_watermark_offsets(TopicPartition("nowhere", 0), timeout=DEADLINE_S)
    reader = Consumer({**settings, "group.id": "h", "auto.offset.reset": "error"})
    reader.assign([TopicPartition("t", 0, 99)])
    assert reader.poll(DEADLINE_S).error() is not None  # an offset that is not there: an error in an answer
    with urllib.request.urlopen(f"{penstock_broker.http}/metrics", timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    reader.close()
    consumer.close()
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def test_every_metric_named_is_on_a_brokers_page(page: set[str]) -> None:
    used = {name for rule in rules() for name in metric_names(rule["expr"])}
    for file in DASHBOARDS:
        used |= metric_names(" ".join(expressions(json.loads(file.read_text()))))
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    declared = {name for name, *_ in BrokerMetrics(_Clock()).registry.described()}
    # What clients push is named by them; tests/clients holds those names against a real one.
    ours = {name for name in used if not name.startswith("mq_client_")}
    assert ours - recorded - page - RARE == set()
    assert declared >= RARE
    assert page <= declared, "the registry knows all that is shown"


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) >= 40
    for rule in alerts:
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
        assert all(text.endswith(".") for text in rule["annotations"].values()), rule["alert"]
    assert {rule["labels"]["severity"] for rule in alerts} == {"critical", "warning", "info"}
    routes = (DEPLOY / "alertmanager" / "alertmanager.yml").read_text()
    assert set(re.findall(r"Penstock\w+", routes)) <= {rule["alert"] for rule in alerts}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_has_panels_of_their_own_and_a_data_source_to_choose(file: Path) -> None:
    board = json.loads(file.read_text())
    assert next(each["name"] for each in variables(board)) == "datasource"
    numbers = [panel["id"] for panel in panels(board)]
    assert len(set(numbers)) == len(numbers) > 10
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels(board)]
    assert len(set(places)) == len(places)
    known = {each["name"] for each in variables(board)} | {"__all", "__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", file.read_text())) <= known
    for panel in panels(board):
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
            assert panel["targets"], panel["title"]


def test_there_is_a_dashboard_for_each_subject() -> None:
    assert [file.stem for file in DASHBOARDS] == ["broker", "client", "replication", "topic"]
    boards = [json.loads(file.read_text()) for file in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len(boards)


def test_prometheus_reads_its_configuration_and_rules() -> None:
    run("promtool", "check", "config", DEPLOY / "prometheus" / "prometheus.yml")


def test_the_rules_fire_when_they_should_and_only_then() -> None:
    run("promtool", "test", "rules", DEPLOY / "prometheus" / "tests" / "alerts_test.yml")


def test_prometheus_reads_every_expression_of_the_dashboards(tmp_path: Path) -> None:
    asked = [each for file in DASHBOARDS for each in expressions(json.loads(file.read_text()))]
    made = [{"record": f"asked:number{number}", "expr": expression} for number, expression in enumerate(asked)]
    file = tmp_path / "asked.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "asked", "rules": made}]}))
    run("promtool", "check", "rules", file)


def test_alertmanager_reads_its_configuration() -> None:
    run("amtool", "check-config", DEPLOY / "alertmanager" / "alertmanager.yml")


@pytest.mark.parametrize("secret", ["password:", "api_url:", "routing_key:", "service_key:"])
def test_no_secret_stands_in_what_is_shipped(secret: str) -> None:
    for file in DEPLOY.rglob("*"):
        if file.is_file():
            assert secret not in file.read_text(), file
