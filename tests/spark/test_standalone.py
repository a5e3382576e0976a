"""The same job on a Spark cluster of a master and two workers as on local[2]: the parts that cross machines."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Row, Topics
from standalone import StandaloneCluster, end_with_owner

JOB = Path(__file__).with_name("standalone_job.py")
# A driver, two executors with a JVM each, and their Python workers, on two cores.
JOB_DEADLINE_S = 240.0
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="module")
def orders(topics: Topics) -> str:
    name = topics.make(partitions=4)
    topics.produce(name, (Row(b"%d" % n, b"key-%d" % (n % 5), partition=n % 4) for n in range(1000)))
    return name


def run_job(command: list[str], cluster: StandaloneCluster) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON"}}
    if "spark-submit" in command[0]:
        environment["PYSPARK_PYTHON"] = sys.executable
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_DEADLINE_S,
        check=False,
        preexec_fn=end_with_owner,
    )
    assert done.returncode == 0, f"{done.stderr}\n--- executors\n{cluster.executor_logs()}"
    return done.stdout


def counts(topics: Topics, topic: str) -> dict[bytes | None, int]:
    found = Counter({message.key(): int(message.value() or 0) for message in topics.read(topic)})
    return dict(found)


EXPECTED = {b"key-%d" % number: 200 for number in range(5)}


def test_a_stream_runs_on_both_workers_of_a_cluster(
    cluster: StandaloneCluster, topics: Topics, orders: str, tmp_path: Path
) -> None:
    target = topics.make()
    command = [sys.executable, str(JOB), "stream", topics.bootstrap, orders, target, str(tmp_path / "c")]
    said = run_job([*command, cluster.master], cluster)
    assert counts(topics, target) == EXPECTED
    assert len(topics.read(target)) == len(EXPECTED)
    assert f"ran on {cluster.master}" in said
    assert "work-0" in said
    assert "work-1" in said


def test_a_batch_runs_by_spark_submit_with_penstock_only_installed(
    cluster: StandaloneCluster, topics: Topics, orders: str, tmp_path: Path
) -> None:
    import pyspark

    target = topics.make()
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.master]
    submit += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m"]
    said = run_job([*submit, str(JOB), "batch", topics.bootstrap, orders, target, str(tmp_path / "c")], cluster)
    assert counts(topics, target) == EXPECTED
    assert f"ran on {cluster.master}" in said
