"""A Spark standalone cluster on loopback: one master, two workers, each a process that ends with its owner.

Used by test_standalone. The processes are started as an operator would start them, with Spark's own scripts and an
environment without PYTHONPATH, and ended by pid. A worker of one core and little memory keeps two of them small.
"""

import ctypes
import os
import re
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from helpers import wait_until

from penstock.spark.java import prepare_java

LOOPBACK = "127.0.0.1"
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
STOP_DEADLINE_S = 20.0
PR_SET_PDEATHSIG = 1


class StandaloneCluster:
    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.master = ""
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> Self:
        log = self._spawn("master", MASTER_CLASS, "--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        found = wait_until(
            lambda: re.search(r"Starting Spark master at (spark://\S+)", _text(log)), "the master's address"
        )
        self.master = found[1]
        logs = [
            self._spawn(
                f"worker-{number}",
                WORKER_CLASS,
                *("--host", LOOPBACK, "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self.folder / f"work-{number}"), self.master),
            )
            for number in range(self._workers)
        ]
        for log in logs:
            wait_until(lambda log=log: "Successfully registered with master" in _text(log), f"{log.name} to register")
        return self

    def stop(self) -> None:
        # Workers first: they end their executors, which the master would only be told of.
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_DEADLINE_S)
        self._processes.clear()

    def executor_logs(self) -> str:
        """What executors wrote to stderr, for the message of a test that failed."""
        return "\n".join(_text(path)[-2000:] for path in sorted(self.folder.glob("work-*/*/*/stderr")))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn(self, name: str, java_class: str, *arguments: str) -> Path:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self.folder / f"{name}.log"
        environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON"}}
        environment |= {
            "JAVA_HOME": str(prepare_java()),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        with log.open("wb") as file:
            # spark-class replaces itself by Java, so this pid is the JVM's.
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), java_class, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_owner,
            )
        self._processes.append(process)
        return log


def end_with_owner() -> None:
    """A run of tests that is killed takes its JVMs along, where the kernel knows how (Linux)."""
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
