"""penstock's Spark source and sink beside Spark's own kafka connector: one broker, one Spark session, turn by turn.

Run by `python benchmarks/spark.py [--rows N] [--rounds N] [NAME …]`; prints tables, writes results/spark.json.
Needs the extra `spark`. The connector's jars come through `mvn dependency:copy`, once, into a folder for caches (or
--jars DIR); without Maven only penstock is measured. Spark 4.3's connector is not published yet: 4.2's runs on 4.3, and
the newest published part it needs (the token provider, which has no part in reading or writing) may be older still.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

import harness
from machine import describe_machine

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4
VALUE_BYTES = 100
TRANSACTION_ROWS = 10_000
BATCH_ROWS = 20
BATCHES = 40
# Coordinates to try in order; the first that can be had is taken.
JARS = (
    ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"),
    (
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.3.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    ),
    ("org.apache.kafka:kafka-clients:3.9.2",),
    ("org.apache.commons:commons-pool2:2.13.1", "org.apache.commons:commons-pool2:2.12.0"),
)
TOPICS = {"plain": "none", "lz4": "lz4", "zstd": "zstd", "transactional": "none"}


# What is measured


class Bench:
    """One broker, one session, and which sources there are to compare."""

    def __init__(
        self, spark: Any, running: harness.RunningBroker, formats: Sequence[str], rows: int, rounds: int
    ) -> None:
        self.spark = spark
        self.running = running
        self.formats = formats
        self.rows = rows
        self.rounds = rounds

    def read(self, topic: str) -> dict[str, Any]:
        """All of a topic to a sink that drops it."""

        def once(source: str) -> float:
            began = time.perf_counter()
            self._reader(self.spark.read, source, topic).load().write.format("noop").mode("overwrite").save()
            return self.rows / (time.perf_counter() - began)

        return self._compare(once, "rows_per_s")

    def written(self) -> dict[str, Any]:
        """Rows made by Spark itself into a topic; penstock's with and without transactions, Spark's has none."""
        count = self.rows // 2
        made = self.spark.range(0, count, 1, PARTITIONS).selectExpr(
            "CAST(id AS STRING) AS key", f"rpad(CAST(id AS STRING), {VALUE_BYTES}, 'abcdefgh') AS value"
        )
        numbers = iter(range(1_000_000))

        def once(variant: str) -> float:
            topic = f"target-{next(numbers)}"
            harness.create_topic(self.running, topic, PARTITIONS)
            writer = made.write.format(variant.split()[0]).option("kafka.bootstrap.servers", self.running.address)
            if variant.startswith("penstock"):
                writer = writer.option("delivery", variant.split()[1])
            began = time.perf_counter()
            writer.option("topic", topic).mode("append").save()
            return count / (time.perf_counter() - began)

        variants = [f"{name} {kind}" for name in self.formats for kind in _deliveries(name)]
        return self._compare(once, "rows_per_s", variants)

    def latency(self) -> dict[str, Any]:
        """Twenty rows at a time into a running query: how long a micro-batch takes, as Spark itself measures it."""
        found: dict[str, Any] = {}
        for source in self.formats:
            topic = f"trickle-{source}"
            harness.create_topic(self.running, topic, 1)
            found[source] = self._batches(source, topic)
        return found

    def _batches(self, source: str, topic: str) -> dict[str, Any]:
        producer = Producer({"bootstrap.servers": self.running.address, "linger.ms": 0})
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            stream = self._reader(self.spark.readStream, source, topic, startingOffsets="earliest").load()
            query = stream.writeStream.format("noop").option("checkpointLocation", folder).start()
            times: dict[int, dict[str, int]] = {}
            try:
                sent = 0
                while len(times) < BATCHES:
                    assert query.isActive, query.exception()
                    for _ in range(BATCH_ROWS):
                        producer.produce(topic, b"x" * VALUE_BYTES)
                    producer.flush(30)
                    sent += BATCH_ROWS
                    _wait(lambda sent=sent: _rows_done(query) >= sent, f"{source} to read {sent} rows")
                    for progress in query.recentProgress:
                        if progress["numInputRows"]:
                            times[progress["batchId"]] = progress["durationMs"]
            finally:
                query.stop()
        # The first ones pay for starting workers and compiling.
        settled = [times[batch] for batch in sorted(times)][BATCHES // 4 :]
        whole = sorted(one["triggerExecution"] for one in settled)
        parts = {name: statistics.median(one.get(name, 0) for one in settled) for name in settled[0]}
        return {"median_ms": statistics.median(whole), "p95_ms": harness.percentile(whole, 0.95), "parts_ms": parts}

    def _compare(self, once: Callable[[str], float], unit: str, variants: Sequence[str] = ()) -> dict[str, Any]:
        variants = variants or self.formats
        found: dict[str, list[float]] = {variant: [] for variant in variants}
        for variant in variants:
            once(variant)  # warm: workers, compiled code, leaders
        for number in range(self.rounds):
            # Turn by turn, and not always the same one first: the machine changes its mind.
            for variant in variants if number % 2 == 0 else list(reversed(variants)):
                found[variant].append(once(variant))
        return {variant: {unit: statistics.median(values), "all": values} for variant, values in found.items()}

    def _reader(self, reader: Any, source: str, topic: str, **options: str) -> Any:
        reader = (
            reader.format(source).option("kafka.bootstrap.servers", self.running.address).option("subscribe", topic)
        )
        # Alike for both: what aborted transactions wrote is not to be read.
        reader = reader.option("kafka.isolation.level", "read_committed")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader


def memory(address: str, source: str, jars: Sequence[Path]) -> dict[str, Any]:
    """One reading of a topic in a process of its own: the most that the JVM and the Python workers held."""
    arguments = [sys.executable, __file__, "--read-once", source, "--address", address]
    child = subprocess.Popen(
        [*arguments, *(["--jars", str(jars[0].parent)] if jars else [])], stdout=subprocess.DEVNULL
    )
    most = {"jvm_mb": 0.0, "python_workers_mb": 0.0}
    while child.poll() is None:
        held = dict.fromkeys(most, 0.0)
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(child.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    kind = "jvm_mb" if "java" in process.name() else "python_workers_mb"
                    # Shared pages of forked workers count once: unique memory, not resident.
                    held[kind] += process.memory_full_info().uss / 1e6
        most = {kind: max(most[kind], held[kind]) for kind in most}
        time.sleep(0.1)
    assert child.returncode == 0, f"reading with {source} failed"
    return most | {"together_mb": sum(most.values())}


# What it needs


def fill(running: harness.RunningBroker, rows: int) -> None:
    """The topics to read: values of 100 bytes, half of them random, so that compressing them makes sense."""
    rng = random.Random(5)
    values = [
        f'{rng.randbytes(25).hex()}{{"order":{number:010d},"state":"confirmed","n":1}}'.encode()[:VALUE_BYTES].ljust(
            VALUE_BYTES
        )
        for number in range(5000)
    ]
    for topic, compression in TOPICS.items():
        harness.create_topic(running, topic, PARTITIONS)
        settings: dict[str, Any] = {
            "bootstrap.servers": running.address,
            "compression.type": compression,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
        if topic == "transactional":
            settings["transactional.id"] = "bench"
        producer = Producer(settings)
        if topic == "transactional":
            producer.init_transactions(60)
        for start in range(0, rows, TRANSACTION_ROWS):
            if topic == "transactional":
                producer.begin_transaction()
            for number in range(start, min(rows, start + TRANSACTION_ROWS)):
                while True:
                    try:
                        producer.produce(topic, values[number % 5000], partition=number % PARTITIONS)
                        break
                    except BufferError:
                        producer.poll(0.01)
            if topic == "transactional":
                producer.commit_transaction(60)
            producer.poll(0)
        assert producer.flush(120) == 0


def find_jars(folder: Path | None) -> list[Path]:
    """The connector and what it needs beside Spark; empty where they cannot be had."""
    if folder is not None:
        return sorted(folder.glob("*.jar"))
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock-bench-jars"
    found: list[Path] = []
    for choices in JARS:
        jar = next((path for one in choices if (path := _copy_jar(one, cache)) is not None), None)
        if jar is None:
            return []
        found.append(jar)
    return found


def _copy_jar(coordinates: str, cache: Path) -> Path | None:
    _, artifact, version = coordinates.split(":")
    path = cache / f"{artifact}-{version}.jar"
    if not path.exists() and shutil.which("mvn"):
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={cache}"]
        with tempfile.TemporaryDirectory() as nowhere:
            subprocess.run(command, cwd=nowhere, capture_output=True, check=False, timeout=300)
    return path if path.exists() else None


@contextlib.contextmanager
def session(jars: Sequence[Path]) -> Generator[Any]:
    from penstock.spark.session import build_session

    conf = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    # Its best compiler for both: this is no short command.
    spark = build_session("penstock-bench", "local[2]", conf, is_quick=False)
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def _deliveries(source: str) -> Sequence[str]:
    return ("exactly-once", "at-least-once") if source == "penstock" else ("at-least-once",)


def _rows_done(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.005)


def read_once(address: str, source: str, jars: Sequence[Path]) -> None:
    with session(jars) as spark:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", address).option("subscribe", "plain")
        reader.load().write.format("noop").mode("overwrite").save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jars", type=Path)
    parser.add_argument("--read-once", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    console = Console()
    jars = find_jars(given.jars)
    if given.read_once:
        read_once(given.address, given.read_once, jars)
        return 0
    formats = ["penstock", *(["kafka"] if jars else [])]
    if not jars:
        console.print("Spark's connector could not be had (no Maven?): only penstock is measured")
    report: dict[str, Any] = {"machine": describe_machine(), "rows": given.rows, "rounds": given.rounds, "results": {}}
    report["jars"] = [jar.name for jar in jars]
    with harness.broker() as running:
        with console.status("filling topics"):
            fill(running, given.rows)
        wanted = _select(given.names)
        if any(name != "memory" for name in wanted):
            with session(jars) as spark:
                report["machine"]["spark"] = spark.version
                bench = Bench(spark, running, formats, given.rows, given.rounds)
                for name, measure in _measures(bench).items():
                    if name in wanted:
                        with console.status(name):
                            report["results"][name] = measure()
                        console.print(_table(name, report["results"][name]))
        if "memory" in wanted:
            found = {source: memory(running.address, source, jars) for source in formats}
            report["results"]["memory"] = found
            console.print(_table("memory", found))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("spark.json" if not given.names else f"spark-{'-'.join(given.names)}.json")
    path.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return 0


def _measures(bench: Bench) -> dict[str, Callable[[], dict[str, Any]]]:
    reads: dict[str, Callable[[], dict[str, Any]]] = {
        f"read-{topic}": lambda topic=topic: bench.read(topic) for topic in TOPICS
    }
    return {**reads, "write": bench.written, "micro-batch": bench.latency}


def _select(names: Sequence[str]) -> set[str]:
    known = {*(f"read-{topic}" for topic in TOPICS), "write", "micro-batch", "memory"}
    unknown = set(names) - known
    if unknown:
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    return set(names) or known


def _table(name: str, found: dict[str, Any]) -> Table:
    table = Table(title=name, title_justify="left")
    numbers = [key for key, value in next(iter(found.values())).items() if isinstance(value, int | float)]
    table.add_column("")
    for number in numbers:
        table.add_column(number, justify="right")
    for variant, values in found.items():
        table.add_row(variant, *(f"{values[number]:,.0f}" for number in numbers))
    return table


if __name__ == "__main__":
    sys.exit(main())
