"""A report of a real broker: what it says must be what was produced. No Spark here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from penstock.cli.app import CommandGroup
from penstock.cli.report import report
from penstock.clock import SystemClock
from penstock.spark.report.facts import DAY_MS
from penstock.testing.embedded import EmbeddedBroker

app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
app.command("report")(report)
app.command("other")(lambda: None)  # with one command alone, typer would take its name for an argument

DAYS = 9


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        made = [
            NewTopic("orders", 2, 1, config={"retention.ms": str(20 * DAY_MS)}),
            NewTopic("state", 1, 1, config={"cleanup.policy": "compact"}),
            NewTopic("empty", 3, 1),
        ]
        for future in admin.create_topics(made).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        now_ms = SystemClock().now_ms()
        noon_ms = now_ms - now_ms % DAY_MS + DAY_MS // 2
        for back in range(DAYS, 0, -1):
            for number in range(10 * (DAYS - back + 1)):
                moment_ms = noon_ms - back * DAY_MS + number
                producer.produce("orders", b"x" * 100, partition=number % 2, timestamp=moment_ms)
        producer.produce("state", b"v", b"k", timestamp=now_ms)
        assert producer.flush(30) == 0
        yield running


def run(broker: EmbeddedBroker, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["report", "-b", broker.bootstrap, *arguments])


def test_days_rows_sizes_and_settings_are_those_of_the_log(broker: EmbeddedBroker) -> None:
    result = run(broker, "--json", "--days", "12", "--horizon", "7")
    assert result.exit_code == 0, result.output
    found = {one["topic"]["name"]: one for one in json.loads(result.stdout)["topics"]}
    assert list(found) == ["empty", "orders", "state"]
    orders = found["orders"]["topic"]
    assert orders["rows"] == 10 * DAYS * (DAYS + 1) // 2
    assert orders["partitions"] == 2
    assert orders["replicas"] == 1
    assert orders["stored_bytes"] == orders["bytes"] > 100 * orders["rows"]
    assert [day["rows"] for day in orders["days"]] == [0, 0, *range(10, 10 * DAYS + 1, 10), 0]
    # The first day with records is not whole, for nobody knows what was before them; today is not over.
    assert [day["is_complete"] for day in orders["days"]] == [False] * 3 + [True] * (DAYS - 1) + [False]
    assert sum(day["bytes"] for day in orders["days"]) == pytest.approx(orders["bytes"], abs=DAYS)
    assert orders["settings"] == {"cleanup_policy": "delete", "retention_ms": 20 * DAY_MS, "retention_bytes": None}
    trend = found["orders"]["trend"]
    assert trend["slope"] == pytest.approx(10 * orders["bytes"] / orders["rows"], rel=0.1)
    assert len(found["orders"]["forecast"]["disk_bytes"]) == 7
    assert found["empty"]["topic"]["rows"] == 0
    assert found["state"]["forecast"] is None


def test_the_page_and_a_table_are_written(broker: EmbeddedBroker, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\npartition_hour: 1\n")
    page = tmp_path / "page.html"
    result = run(broker, "orders", "--out", str(page), "--prices", str(prices))
    assert result.exit_code == 0, result.output
    assert "orders" in result.stdout
    assert "1,440.00 EUR" in result.stdout
    assert "empty" not in result.stdout
    assert page.read_text().startswith("<!doctype html>")
    assert "1,440.00 EUR" in page.read_text()


def test_what_is_wrong_is_one_sentence(broker: EmbeddedBroker, tmp_path: Path) -> None:
    missing = run(broker, "nowhere")
    assert missing.exit_code == 1
    assert "there is no topic nowhere" in missing.stderr
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nstorage: 1\n")
    wrong = run(broker, "--prices", str(prices))
    assert wrong.exit_code == 2
    assert "prices.yaml:2" in wrong.stderr
    unwritable = run(broker, "orders", "--out", str(tmp_path))
    assert unwritable.exit_code == 2
    assert "cannot be written" in unwritable.stderr
