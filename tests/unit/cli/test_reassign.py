"""cli.reassign: plans in Kafka's format, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.admin.cluster_view import ClusterView, Partition
from penstock.admin.failures import ASKED_WRONGLY, CommandFailed
from penstock.cli import reassign
from penstock.cli.reassign import plan_document, read_plan
from penstock.model import TopicPartition


def written(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_plan_that_was_written_is_read_as_it_was(tmp_path: Path) -> None:
    plan = {TopicPartition("orders", 1): (3, 1), TopicPartition("bills", 0): (2,)}
    assert read_plan(written(tmp_path, plan_document(plan))) == plan


def test_a_plan_of_kafkas_own_tool_is_read(tmp_path: Path) -> None:
    entry = {"topic": "orders", "partition": 0, "replicas": [2, 3], "log_dirs": ["any", "any"]}
    assert read_plan(written(tmp_path, {"version": 1, "partitions": [entry]})) == {TopicPartition("orders", 0): (2, 3)}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("{", "is not JSON"),
        ([], "no list of partitions"),
        ({"partitions": "orders"}, "no list of partitions"),
        ({"partitions": [7]}, "no list of partitions"),
        ({"version": 2, "partitions": []}, "only version 1"),
        ({"partitions": []}, "plans nothing"),
        ({"partitions": [{"topic": "orders", "partition": 0}]}, "entry 1 needs a topic"),
        ({"partitions": [{"topic": "orders", "partition": True, "replicas": [1]}]}, "entry 1 needs a topic"),
        ({"partitions": [{"topic": "orders", "partition": 0, "replicas": []}]}, "orders-0 must be one broker's id"),
        ({"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 1]}]}, "each once"),
        ({"partitions": [{"topic": "orders", "partition": 0, "replicas": ["1"]}]}, "orders-0 must be"),
        ({"partitions": [{"topic": "orders", "partition": 0, "replicas": [-1]}]}, "orders-0 must be"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}] * 2}, "a-0 is planned twice"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said(tmp_path: Path, document: Any, expected: str) -> None:
    with pytest.raises(CommandFailed, match=expected) as failure:
        read_plan(written(tmp_path, document))
    assert failure.value.exit_code == ASKED_WRONGLY


def test_a_plan_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"nowhere\.json: No such file"):
        read_plan(tmp_path / "nowhere.json")


def test_a_move_that_ends_while_it_is_looked_at_is_not_taken_for_something_unplanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = TopicPartition("orders", 0)
    views = [seen(at, (1, 2, 3, 4)), seen(at, (1, 2, 3))]  # the first: neither a move any more, nor its result yet
    monkeypatch.setattr(reassign, "view_cluster", lambda _: views.pop(0))
    monkeypatch.setattr(reassign, "unthrottle", lambda *_: False)
    monkeypatch.setattr(reassign, "NEWS_TRAVEL_S", 0)
    plan = written(tmp_path, plan_document({at: (1, 2, 3)}))
    result = CliRunner().invoke(reassign.app, ["verify", str(plan), "--json"])
    assert json.loads(result.stdout)["done"]
    assert views == []


def seen(at: TopicPartition, replicas: tuple[int, ...]) -> ClusterView:
    return ClusterView("cluster", 1, {}, {at: Partition(at, 1, replicas, replicas)}, knows_moves=True)
