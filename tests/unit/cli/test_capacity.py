"""`penstock capacity`: what it prints, whose numbers it takes, what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.capacity.measured import FILE_BYTES_MAX
from penstock.cli.app import app

LOAD = ("--rate", "1e9/day", "--size", "1KB", "--retention", "7d", "--peak", "1")
BENCH = {"benchmark": "produce", "bytes_per_s": 1e6, "brokers": 3, "partitions": 3, "replication_factor": 3}


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["capacity", *arguments])
    assert result.exit_code == code, result.output
    return result


def ask(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_each_figure_has_a_line_and_the_last_ones_say_what_limits() -> None:
    lines = run(*LOAD).stdout.splitlines()
    storage = next(line for line in lines if line.startswith("storage"))
    assert storage.split("  ")[0] == "storage"
    assert "21.2 TB" in storage
    assert "× 7 days × 3 copies" in storage
    assert "Of these machines what limits is disk." in lines[-2]
    assert "measured on 20" in lines[-1]
    assert "nothing limits but the copies" in run("--rate", "1").stdout


def test_the_document_holds_what_was_asked_and_what_came_of_it() -> None:
    found = ask(*LOAD, "--growth", "100", "--years", "1", "--network", "10Gbit", "--disk", "4TB")
    assert found["limited_by"] == "disk"
    assert {limit["limit"]: limit["brokers"] for limit in found["limits"]}["disk"] == found["brokers"] - 1
    assert found["machines"]["network_bytes_per_s"] == 1.25e9
    assert found["demand"]["growth_per_year"] == 1
    assert all(figure["how"] for figure in found["figures"])


def test_ones_own_numbers_take_the_place_of_the_packages(tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps(BENCH | {"client_limited": True}))
    result = run(*LOAD, "--measured", str(mine), "--number", "read_bytes_per_s=5e5", "--json")
    found = json.loads(result.stdout)
    assert found["measured"]["numbers"]["write_bytes_per_s_replicated"] == 1e6
    assert found["measured"]["numbers"]["read_bytes_per_s"] == 5e5
    assert "mine.json" in found["measured"]["origin"]
    assert found["limited_by"] == "writing"
    assert "the client was the limit" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--rate", "much"),
        ("--rate", "1", "--size", "0"),
        ("--rate", "1", "--retention", "week"),
        ("--rate", "1", "--retention", "0s"),
        ("--rate", "1", "--retention", "5300w"),
        ("--rate", "1", "--peak", "nan"),
        ("--rate", "1", "--years", "inf"),
        ("--rate", "1", "--compression", "0"),
        ("--rate", "1", "--replication-factor", "0"),
        ("--rate", "1", "--network", "fast"),
        ("--rate", "1", "--number", "colour=3"),
        ("--rate", "1", "--number", "start_s"),
        ("--rate", "1", "--measured", "no-such-file.json"),
    ],
)
def test_what_makes_no_sense_ends_with_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments, code=2).stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON of a benchmark"),
        (b'{"benchmark": "latency"}', "is no result of"),
        (json.dumps(BENCH).encode() + b" " * FILE_BYTES_MAX, "is larger than any result"),
    ],
    ids=["cut", "binary", "deep", "another", "large"],
)
def test_a_file_that_is_no_benchmark_is_named_in_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_bytes(content)
    refused = run("--rate", "1", "--measured", str(file), code=2)
    assert f"wrong.json {said}" in refused.stderr
    assert "Traceback" not in refused.output
