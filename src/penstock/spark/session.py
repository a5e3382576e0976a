"""A Spark session as penstock's commands and pipelines want it.

Called by cli (pipeline, sql, report, archive, replay) and by users through penstock.spark.build_session.
Laws:
- What the user says in `conf`, in spark-submit or in spark-defaults.conf wins over what is set here.
- A session that runs, spark-submit's JVM and a Spark Connect server are joined: there is no JVM of ours to start.
"""

import os
import re
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import penstock
from penstock.spark.class_archive import archive_options, find_archive
from penstock.spark.home import prepare_home
from penstock.spark.java import prepare_java
from penstock.spark.registration import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
# Masters that nobody but this machine can reach: their executors find the driver on loopback too.
LOOPBACK_MASTER = re.compile(r"local(-cluster)?(\[|$)|spark://(127\.|localhost\b)")
QUIET_LOGGING = Path(__file__).with_name("log4j2.properties")
# Renames where Spark's default opens a file context: a third off the time of a small batch, on a local disk.
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
# A short life on few cores: less to compile, no collector threads; classes come from an archive where there is one.
QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def build_session(
    name: str, master: str | None = None, conf: Mapping[str, str] = {}, *, is_quick: bool = True
) -> "SparkSession":
    """The session there is, or a new one. `master` None: spark-submit's, $SPARK_REMOTE, $MASTER, else local[*].

    `is_quick` trades peak speed of the JVM for its start-up, on masters of this machine only.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if master is not None and master.startswith("sc://"):
        return _with_conf(builder.remote(master), conf).getOrCreate()
    if _has_session() or (master is None and "SPARK_REMOTE" in os.environ):
        return _with_conf(builder, conf).getOrCreate()
    # spark-submit has started the JVM already, with Java, Python and a master of its own choosing.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    archive = None
    if not is_submitted:
        java = prepare_java()
        _show_python_the_way()
        master = master or os.environ.get("MASTER") or "local[*]"
        if master.startswith("local"):
            prepare_home()
        archive = find_archive(java)
    if master is not None:
        builder = builder.master(master)
    said = {**conf, **(_submitted() if is_submitted else dict.fromkeys(_keys_of_defaults(), ""))}
    chosen = {**settings(master, said, is_quick=is_quick, archive=archive), **conf}
    session = _with_conf(builder, chosen).getOrCreate()
    register(session)
    return session


def settings(
    master: str | None, conf: Mapping[str, str], *, is_quick: bool, archive: Path | None = None
) -> dict[str, str]:
    """What is set for a master, as far as `conf` does not speak of it."""
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }
    paths = source_tree()
    if paths is not None:
        chosen["spark.executorEnv.PYTHONPATH"] = str(paths)
    if master is None or LOOPBACK_MASTER.match(master) is None:
        return {key: value for key, value in chosen.items() if key not in conf}
    chosen |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if master.startswith("local"):
        chosen |= {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 2, 8)),
            "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        }
    options = [f"-Dlog4j2.configurationFile={QUIET_LOGGING.as_uri()}"]
    if is_quick:
        options += [*QUICK_JVM, *archive_options(archive)]
    # Spark puts the user's own extraJavaOptions after these, and the later wins in a JVM.
    chosen["spark.driver.defaultJavaOptions"] = " ".join(options)
    return {key: value for key, value in chosen.items() if key not in conf}


def source_tree() -> Path | None:
    """The folder that Python workers must be told of, when penstock is not among the installed packages."""
    root = Path(penstock.__file__).resolve().parents[1]
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    return None if root in {Path(folder).resolve() for folder in installed} else root


def _with_conf(builder: "SparkSession.Builder", conf: Mapping[str, str]) -> "SparkSession.Builder":
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def _has_session() -> bool:
    """Whether this process runs a session already, whose settings are not ours to change."""
    from pyspark import SparkContext

    return cast(Any, SparkContext)._active_spark_context is not None


def _submitted() -> dict[str, str]:
    """What spark-submit was told, on its command line and in files."""
    from pyspark import SparkConf, SparkContext

    # Only once it is connected to the JVM does a SparkConf know what that was told.
    cast(Any, SparkContext)._ensure_initialized()
    return dict(SparkConf().getAll())


def _keys_of_defaults() -> list[str]:
    """What an administrator's spark-defaults.conf speaks of: a name, then a blank, = or :, then its value."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", ""), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text("utf-8").splitlines()
    except OSError:
        return []
    return [re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines if re.match(r"\s*[^\s#!]", line)]


def _show_python_the_way() -> None:
    """Workers run this very Python; those that the driver's JVM starts by itself see its environment only."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    root = source_tree()
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root is not None and str(root) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([*known, str(root)])
