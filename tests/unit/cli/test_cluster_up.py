"""A laptop's cluster: what its brokers are told, and what is refused before any starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.cli.cluster_up import plan_cluster


def refuse(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["cluster", "up", *arguments])
    assert result.exit_code == 2, result.output
    return result.output


def test_topics_get_three_replicas_where_there_are_three_brokers(tmp_path: Path) -> None:
    for nodes, factor in ((1, "1"), (2, "2"), (3, "3"), (5, "3")):
        plans = plan_cluster(tmp_path, nodes, 9092, (), "info")
        assert [plan.settings["default.replication.factor"] for plan in plans] == [factor] * nodes


def test_a_setting_that_was_given_wins(tmp_path: Path) -> None:
    (plan,) = plan_cluster(tmp_path, 1, 0, ["default.replication.factor=1"], "info")
    assert "default.replication.factor" not in plan.settings
    assert plan.arguments == ("--log-level", "info", "-o", "default.replication.factor=1")


def test_free_ports_are_free_ports_for_everything(tmp_path: Path) -> None:
    for plan in plan_cluster(tmp_path, 3, 0, (), "info"):
        assert plan.settings["listeners"] == plan.settings["penstock.http.listen"] == "127.0.0.1:0"


def test_a_misspelt_setting_is_told_before_anything_starts(tmp_path: Path) -> None:
    assert "log.retention.ms" in refuse("--data-dir", str(tmp_path / "d"), "-o", "log.retention.mss=1")
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(("trace", "asked", "held"), [("metadata.db", "etcd", "sqlite"), ("etcd", "sqlite", "etcd")])
def test_a_directory_is_not_started_with_another_store(tmp_path: Path, trace: str, asked: str, held: str) -> None:
    (tmp_path / trace).mkdir()
    assert f"--metadata {held}" in refuse("--data-dir", str(tmp_path), "--metadata", asked)
    assert [path.name for path in tmp_path.iterdir()] == [trace]


@pytest.mark.parametrize(
    "arguments", [("--nodes", "0"), ("--nodes", "17"), ("--base-port", "70000"), ("--metadata", "x")]
)
def test_options_that_cannot_be_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    refuse("--data-dir", str(tmp_path), *arguments)
    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_nothing_starts() -> None:
    assert "--data-dir" in refuse()
