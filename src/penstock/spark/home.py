"""A home of Spark in which Python workers start quickly.

Called by session.py, for JVMs of this machine. Spark puts `python/lib/pyspark.zip` of its home before all else on
its workers' path, and Python keeps no compiled code of what it imports from an archive: every worker, and a streaming
query has half a dozen, compiles pyspark anew, a second each. This home is pip's, link by link, without that archive;
workers then import the package that is installed beside them, which is the same one, compiled.
"""

import hashlib
import importlib.util
import logging
import os
import shutil
import tempfile
from pathlib import Path

from penstock.spark.java import cache_folder

_log = logging.getLogger("penstock.spark")

ARCHIVE = Path("python", "lib", "pyspark.zip")


def prepare_home() -> None:
    """Let SPARK_HOME of this process be such a home, unless somebody chose one or it cannot be made."""
    if "SPARK_HOME" in os.environ:
        return
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return
    installed = Path(spec.origin).resolve().parent
    if not (installed / ARCHIVE).is_file() or not (installed / "jars").is_dir():
        return  # no Spark from pip, or one without the archive
    try:
        os.environ["SPARK_HOME"] = str(linked_home(installed))
    except OSError as why:
        _log.info("Spark starts from where it is installed: %s", why)


def linked_home(installed: Path) -> Path:
    """The links, made once for each installation."""
    home = cache_folder() / f"spark-{hashlib.sha256(str(installed).encode()).hexdigest()[:12]}"
    if _is_like(home, installed):
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    # Made aside and renamed: another process may be starting from it right now.
    aside = Path(tempfile.mkdtemp(dir=home.parent, prefix="spark-"))
    library = aside / ARCHIVE.parent
    library.mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != ARCHIVE.parts[0]:
            (aside / entry.name).symlink_to(entry)
    for entry in (installed / ARCHIVE.parent).iterdir():
        if entry.name != ARCHIVE.name:
            (library / entry.name).symlink_to(entry)
    try:
        aside.chmod(0o755)
        if home.exists():
            shutil.rmtree(home)
        aside.rename(home)
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        if not _is_like(home, installed):
            raise
    return home


def _is_like(home: Path, installed: Path) -> bool:
    """Whether the links are those of what is installed now: an upgrade in place brings other files."""
    if not (home / "jars").is_dir():
        return False
    wanted = {entry.name for entry in installed.iterdir()} - {"__pycache__"}
    libraries = {entry.name for entry in (installed / ARCHIVE.parent).iterdir()} - {ARCHIVE.name}
    there = {entry.name for entry in home.iterdir()} - {"__pycache__"}
    return wanted == there and libraries == {entry.name for entry in (home / ARCHIVE.parent).iterdir()}
