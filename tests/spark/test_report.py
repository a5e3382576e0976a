"""`penstock report --deep`: Spark reads every record. What needs no Spark is in tests/unit/spark/report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from helpers import Row, Topics
from typer.testing import CliRunner

from penstock.cli.app import CommandGroup
from penstock.cli.report import report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)
app.command("report")(report)
app.command("other")(lambda: None)  # with one command alone, typer would take its name for an argument


@pytest.fixture(scope="module", autouse=True)
def filled(topics: Topics) -> None:
    topics.make("sized", 2)
    topics.make("nothing")
    topics.produce("sized", [Row(b"x" * size, f"k{size % 50}".encode()) for size in range(1, 101)], "lz4")
    topics.produce("sized", [Row(None, b"k0"), Row(b"y" * 1000), Row(b"", None)])


def test_every_record_read_tells_keys_sizes_and_nulls(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = [
        "report",
        "-b",
        topics.bootstrap,
        "--deep",
        "--json",
        "--days",
        "2",
        "--hours",
        "2",
        "--out",
        str(page),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = {one["topic"]["name"]: one for one in json.loads(result.stdout)["topics"]}
    deep = found["sized"]["deep"]
    assert deep["rows"] == 103
    assert deep["null_keys"] == 2
    assert deep["null_values"] == 1
    assert deep["keys_about"] == pytest.approx(50, abs=3)
    assert deep["value_bytes"] == 5050 + 1000
    assert deep["value_bytes_mean"] == pytest.approx(6050 / 102)
    assert deep["value_bytes_percentiles"]["max"] == 1000
    assert deep["value_bytes_percentiles"]["p50"] == pytest.approx(50, abs=2)
    assert deep["compression_ratio"] == pytest.approx(
        (deep["key_bytes"] + deep["value_bytes"]) / found["sized"]["topic"]["bytes"]
    )
    assert found["nothing"]["deep"] is None
    assert "Every record read" in page.read_text()
