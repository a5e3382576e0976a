"""An archive of the classes that Spark loads: with it, a local session stands in half the time.

    python -m penstock.spark.class_archive

makes it, once for a Java and a Spark; it takes a minute and 160 MB of the user's cache folder. session.py uses it where
it stands. Made on demand only: the JVM writes it as it ends, which nobody should have to wait for unasked.
Laws:
- An archive that does not fit (another Java, other jars) is passed over by the JVM in silence.
- It appears under its name when it is whole.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from penstock.spark.errors import SparkFailure
from penstock.spark.java import cache_folder, prepare_java

MAKE_DEADLINE_S = 600.0
# The JVM warns of every class that it cannot keep, and of an archive that does not fit: neither is anybody's concern.
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")

# What most sessions do: SQL, an aggregation, Arrow to Python and back, a stream.
TRAINING = """
import sys
from penstock.spark.session import build_session

spark = build_session("training", "local[2]", {"spark.driver.extraJavaOptions": sys.argv[1]})
spark.range(1000).selectExpr("id % 10 AS k", "CAST(id AS STRING) AS v").createOrReplaceTempView("t")
spark.sql("SELECT k, count(*), max(v) FROM t GROUP BY k ORDER BY k").collect()
spark.range(10).mapInArrow(lambda batches: batches, "id long").collect()
lines = spark.readStream.text(sys.argv[2])
query = lines.mapInArrow(lambda batches: batches, lines.schema).groupBy("value").count().writeStream
query.outputMode("complete").foreachBatch(lambda batch, _: batch.collect()).trigger(availableNow=True).start(
).awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
sys.exit(gateway.proc.wait())
"""


def find_archive(java_home: Path) -> Path | None:
    """The archive for this Java and this Spark, where one was made."""
    path = _path(java_home)
    return path if path.is_file() else None


def archive_options(archive: Path | None) -> tuple[str, ...]:
    """The JVM's options for it. Spark splits options at blanks, so a path with one cannot be said."""
    if archive is None or " " in str(archive):
        return ()
    return (f"-XX:SharedArchiveFile={archive}", *QUIET)


def make_archive() -> Path:
    """Run a small job and keep the classes it took; SparkFailure where the JVM did not write them."""
    path = _path(prepare_java())
    path.parent.mkdir(parents=True, exist_ok=True)
    # A JVM that runs on an archive makes no other one.
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        aside, lines = Path(folder, "classes.jsa"), Path(folder, "lines")
        lines.mkdir()
        (lines / "1.txt").write_text("a\nb\n", "utf-8")
        options = " ".join((f"-XX:ArchiveClassesAtExit={aside}", *QUIET))
        done = subprocess.run(
            [sys.executable, "-c", TRAINING, options, str(lines)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MAKE_DEADLINE_S,
            check=False,
        )
        if not aside.is_file():
            end = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise SparkFailure(f"the JVM wrote no archive of its classes, and sessions start without: {end}")
        aside.replace(path)
    return path


def _path(java_home: Path) -> Path:
    spark = find_spec("pyspark")
    assert spark is not None
    text = f"{java_home.resolve()}\n{spark.origin}\n{version('pyspark')}"
    return cache_folder() / f"classes-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsa"


if __name__ == "__main__":
    made = make_archive()
    sys.stdout.write(f"{made} ({os.path.getsize(made) >> 20} MB)\n")
