"""On a Spark cluster of a master and two workers as on local[2]: one pipeline file, and a job of spark-submit."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import adbc_driver_postgresql.dbapi as dbapi
import pytest
from helpers import Row, Topics
from postgres import running_postgres
from pyspark.sql import SparkSession
from standalone import StandaloneCluster, end_with_owner

from penstock.spark.pipeline.loading import load_pipeline
from penstock.spark.pipeline.running import PipelineRun

HERE = Path(__file__).parent
FILE = HERE / "lives" / "pipeline.yaml"
ROWS = 1000
# A driver, two executors with a JVM each, and their Python workers, on two cores; twice.
DEADLINE_S = 480.0
# A short life: less to compile, no collector threads.
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# No task before both workers are there, so that each of them gets some.
BOTH = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",
}
CONF = {**BOTH, "spark.executor.memory": "512m", "spark.executor.defaultJavaOptions": QUICK}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def postgres() -> Iterator[str]:
    with running_postgres() as url:
        yield url


class Job:
    """A driver, with nothing in its environment that would show Python the way to penstock."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir()
        self._out, self._err = folder / "out", folder / "err"
        clean = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON"}}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, env=clean | environment, stdout=out, stderr=err, preexec_fn=end_with_owner
            )

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)

    def result(self, cluster: StandaloneCluster) -> str:
        code = self.process.wait(DEADLINE_S)
        assert code == 0, f"{self._err.read_text()[-5000:]}\n--- executors\n{cluster.executor_logs()}"
        return self._out.read_text()


def lives_of(topics: Topics, source: str, copy: str, postgres: str, folder: Path) -> dict[str, str]:
    """What the file asks of its environment."""
    return {
        "LIVES_BROKERS": topics.bootstrap,
        "LIVES_CHECKPOINT": str(folder / "checkpoint"),
        "LIVES_SOURCE": source,
        "LIVES_TARGET": copy,
        "LIVES_POSTGRES": postgres,
    }


def check_written(topics: Topics, copy: str, postgres: str) -> set[str]:
    """Every row once in the topic and in the table; the folders that the rows' workers stood in."""
    numbers = [f"{n:06d}" for n in range(ROWS)]
    assert sorted(json.loads(value or b"")["number"] for value in topics.values(copy)) == numbers
    with dbapi.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT number, place FROM stored ORDER BY number")
        stored = cursor.fetchall()
    assert [number for number, _ in stored] == numbers
    return {place for _, place in stored}


def test_the_pipeline_file_of_the_cluster_runs_in_a_local_session(
    spark: SparkSession, topics: Topics, postgres: str, tmp_path: Path
) -> None:
    source, copy = topics.make(partitions=4), topics.make(partitions=2)
    topics.produce(source, (Row(b"%06d" % n, partition=n % 4) for n in range(ROWS)))
    limit = {"sources.rows.options.maxOffsetsPerTrigger": str(ROWS * 2 // 3)}
    loaded = load_pipeline(FILE, limit, lives_of(topics, source, copy, postgres, tmp_path))
    with PipelineRun(loaded, spark, is_once=True) as run:
        run.wait()
    assert {one.sink: (one.state, one.rows_in, one.rows_out) for one in run.progress} == dict.fromkeys(
        ("copy", "stored"), ("finished", ROWS, ROWS)
    )
    assert len(check_written(topics, copy, postgres)) == 1


@pytest.mark.timeout(600)
def test_a_pipeline_file_and_a_submitted_job_run_on_both_workers_with_penstock_only_installed(
    cluster: StandaloneCluster, topics: Topics, postgres: str, tmp_path: Path
) -> None:
    import pyspark

    source, copy, counted = topics.make(partitions=4), topics.make(partitions=2), topics.make()
    topics.produce(source, (Row(b"%06d" % n, b"key-%d" % (n % 5), partition=n % 4) for n in range(ROWS)))
    lives = lives_of(topics, source, copy, postgres, tmp_path)
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", str(FILE)]
    command += ["--once", "--json", "--master", cluster.master]
    command += ["--set", f"sources.rows.options.maxOffsetsPerTrigger={ROWS * 2 // 3}"]
    for name, value in CONF.items():
        command += ["--set", f"spark.conf.{name}={value}"]
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.master]
    for name, value in {**CONF, "spark.driver.host": "127.0.0.1", "spark.driver.defaultJavaOptions": QUICK}.items():
        submit += ["--conf", f"{name}={value}"]
    submit += [str(HERE / "standalone_job.py"), topics.bootstrap, source, counted]
    # Side by side: one has the workers while the other one's driver starts.
    with (
        closing(Job(command, tmp_path / "pipeline", lives)) as pipeline,
        closing(Job(submit, tmp_path / "job", {"PYSPARK_PYTHON": sys.executable})) as job,
    ):
        told, job_told = pipeline.result(cluster), job.result(cluster)

    said = [json.loads(line) for line in told.splitlines()]
    last = {one["sink"]: (one["state"], one["rows_in"], one["rows_out"], one["lag_rows"]) for one in said}
    assert last == dict.fromkeys(("copy", "stored"), ("finished", ROWS, ROWS, 0))
    # The user's own module was on both of them.
    places = check_written(topics, copy, postgres)
    assert {Path(place).relative_to(cluster.folder).parts[0] for place in places} == {"work-0", "work-1"}

    assert f"ran on {cluster.master}" in job_told
    messages = topics.read(counted)
    assert len(messages) == 5
    assert Counter({message.key(): int(message.value() or 0) for message in messages}) == Counter(
        {b"key-%d" % number: ROWS // 5 for number in range(5)}
    )
