"""Pipelines for real: the two worked examples end to end, restarts, and sources that change places."""

import importlib.util
import json
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from helpers import Topics, run_once, wait_until

from penstock.spark.pipeline.failures import QueryFailed
from penstock.spark.pipeline.loading import load_pipeline, parse_pipeline
from penstock.spark.pipeline.running import PipelineRun
from penstock.spark.pipeline.schemas import schemas_of
from penstock.spark.pipeline.status import status_of
from penstock.spark.pipeline.writing import ConsoleRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str, module: str) -> ModuleType:
    """Both examples have a load.py."""
    found = importlib.util.spec_from_file_location(f"{name}_{module}", EXAMPLES / name / f"{module}.py")
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_orders_are_priced_once_each_and_added_up_per_minute(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    load, show = example("orders", "load"), example("orders", "show")
    environment = {
        "PENSTOCK_BOOTSTRAP": topics.bootstrap,
        "ORDERS_CHECKPOINT": str(tmp_path / "checkpoint"),
        "ORDERS_TABLE": str(tmp_path / "revenue"),
    }
    loaded = load_pipeline(EXAMPLES / "orders" / "pipeline.yaml", environment=environment)
    sent = load.load(topics.bootstrap, load.TOPIC, 4000, seed=7)

    run = run_once(spark, loaded)

    found = {
        (row["minute"], row["category"]): (row["orders"], row["pieces"], row["revenue"])
        for row in show.read_rows(tmp_path)
    }
    assert found == {key: tuple(total) for key, total in load.expected(4000, seed=7).items()}
    (progress,) = run.progress
    assert (progress.state, progress.rows_in, progress.rows_out) == ("finished", sent, len(found))

    # Again, with nothing new: nothing is written twice. And the status knows it, by the checkpoint and the broker.
    run_once(spark, loaded)
    assert len(show.read_rows(tmp_path)) == len(found)
    status = status_of(loaded.checkpoint, {"bootstrap.servers": topics.bootstrap})
    assert status.lag_problem is None
    assert [(sink.checkpoint.sink, sink.lag_rows) for sink in status.sinks] == [("revenue", 0)]
    assert sum(status.sinks[0].checkpoint.offsets.values()) == sent
    assert not status.is_running


def test_web_events_become_sessions_and_poison_becomes_dead_letters(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    load = example("sessions", "load")
    topics.make("web-sessions", 2)
    topics.make("web-events-dead")
    environment = {"PENSTOCK_BOOTSTRAP": topics.bootstrap, "SESSIONS_CHECKPOINT": str(tmp_path / "checkpoint")}
    loaded = load_pipeline(EXAMPLES / "sessions" / "pipeline.yaml", environment=environment)
    load.load(topics.bootstrap, load.TOPIC, 20, seed=11)
    sessions, poison = load.expected(20, seed=11)

    run_once(spark, loaded)

    messages = topics.read("web-sessions")
    found = [json.loads(message.value() or b"") for message in messages]
    assert sorted(_session(load, one) for one in found) == sessions
    assert [(message.key() or b"").decode() for message in messages] == [one["user"] for one in found]
    dead = topics.read("web-events-dead")
    # A dead letter may come twice after a retry, by its nature; where it was says which are the same.
    unique = {_where(message): message.value() for message in dead}
    assert sorted(value or b"" for value in unique.values()) == sorted(poison)
    assert all(dict(message.headers() or [])["penstock.dead.reason"] for message in dead)


def _session(load: Any, one: dict[str, Any]) -> Any:
    started, ended = (datetime.fromisoformat(one[name].replace("Z", "+00:00")) for name in ("started", "ended"))
    return load.Session(one["user"], started, ended, one["pages"], one["first_page"], one["last_page"])


def _where(message: Any) -> tuple[Any, ...]:
    headers = dict(message.headers())
    return tuple(headers[f"penstock.dead.{name}"] for name in ("topic", "partition", "offset"))


PLAIN = """\
name: plain
checkpoint: checkpoint
restarts: {{attempts: 3, first_pause: 10ms}}
kafka: {{bootstrap: "{bootstrap}"}}
sources:
  numbers:
    topic: {topic}
    format: json
    schema: n INT
  names:
    files: {{path: names.csv, format: csv, schema: "n INT, name STRING"}}
steps:
  named:
    join:
      left: numbers
      right: names
      on: numbers.value.n = names.n
      type: left
      select: [value.n, name, timestamp]
  checked:
    python: steps:check
    args: {{marker: "{marker}"}}
sinks:
  out: {{input: checked, console: }}
"""

# Fails until the marker is there: it stands for whatever is down for a while.
STEPS = """\
from pathlib import Path


def check(named, marker):
    def look(batches):
        if not Path(marker).exists():
            Path(marker + ".tried").touch()
            raise LookupError("the marker is not there")
        yield from batches

    return named.mapInArrow(look, named.schema)
"""


def test_a_pipeline_goes_on_after_failures_and_stops_when_it_is_asked_to(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    topic = topics.make("plain-numbers")
    topics.produce(topic, [json.dumps({"n": n}) for n in range(5)])
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "names.csv").write_text("n,name\n1,one\n3,three\n")
    marker = tmp_path / "marker"
    text = PLAIN.format(bootstrap=topics.bootstrap, topic=topic, marker=marker)
    loaded = parse_pipeline(text, tmp_path, "p.yaml")
    columns = schemas_of(spark, loaded)
    assert [tuple(column) for column in columns["checked"]] == [
        ("n", "int"),
        ("name", "string"),
        ("timestamp", "timestamp"),
    ]
    assert ("value", "struct<n:int>") in [tuple(column) for column in columns["numbers"]]

    # Without another try the failure is told as the one sentence that was raised in a worker.
    never = parse_pipeline(text, tmp_path, "p.yaml", settings={"restarts": "0", "checkpoint": "elsewhere"})
    with pytest.raises(QueryFailed, match=r"^sink `out`: LookupError: the marker is not there$"):
        run_once(spark, never)

    shown: list[ConsoleRows] = []
    states: list[str] = []

    with PipelineRun(loaded, spark, on_rows=shown.append) as run:

        def watch(_: object) -> None:
            (progress,) = run.progress
            states.append(progress.state)
            if progress.restarts and not marker.exists():
                marker.touch()
            if shown:
                run.ask_to_stop()

        run.wait(watch)
    assert sorted(row[0] for rows in shown for row in rows.rows) == [0, 1, 2, 3, 4]
    assert {row[0]: row[1] for rows in shown for row in rows.rows}[3] == "three"
    # Not as this machine's local time, which would not say so.
    assert all(datetime.fromisoformat(row[2]).tzinfo is not None for rows in shown for row in rows.rows)
    assert "waiting" in states
    (progress,) = run.progress
    assert progress.state == "stopped"
    assert progress.restarts >= 1
    # The batch that was shown was also committed before the query was stopped.
    wait_until(lambda: status_of(loaded.checkpoint, None).sinks[0].checkpoint.done_batch == 0)


def test_sources_that_change_places_under_a_checkpoint_are_refused_not_read_again(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    first, second = topics.make("swapped-first"), topics.make("swapped-second")
    for topic in (first, second):
        topics.produce(topic, ["1", "2"])
    text = f"""\
name: swapped
checkpoint: checkpoint
restarts: {{attempts: 3, first_pause: 10ms}}
kafka: {{bootstrap: "{topics.bootstrap}"}}
sources:
  first: {{topic: {first}}}
  second: {{topic: {second}}}
steps:
  both: {{sql: SELECT topic FROM first UNION ALL SELECT topic FROM second}}
sinks:
  out: {{input: both, console: }}
"""
    run_once(spark, parse_pipeline(text, tmp_path, "p.yaml"))
    # The file's list of sources stays as it is, so only the offsets tell.
    swapped = text.replace(
        "FROM first UNION ALL SELECT topic FROM second", "FROM second UNION ALL SELECT topic FROM first"
    )
    with pytest.raises(QueryFailed, match=r"its checkpoint .* cannot follow \(the checkpoint is of another source"):
        run_once(spark, parse_pipeline(swapped, tmp_path, "p.yaml"))
