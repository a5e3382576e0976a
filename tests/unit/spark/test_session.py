"""What a session is built with, without building one."""

from pathlib import Path

import pytest

import penstock
from penstock.spark import class_archive, session


def test_a_local_session_stays_on_this_machine_and_starts_quickly() -> None:
    chosen = session.settings("local[2]", {}, is_quick=True)
    assert chosen["spark.driver.bindAddress"] == chosen["spark.driver.host"] == "127.0.0.1"
    assert chosen["spark.ui.enabled"] == "false"
    assert chosen["spark.sql.session.timeZone"] == "UTC"
    assert "UseSerialGC" in chosen["spark.driver.defaultJavaOptions"]
    assert session.QUIET_LOGGING.is_file()
    assert session.QUIET_LOGGING.as_uri() in chosen["spark.driver.defaultJavaOptions"]


def test_a_long_job_gets_the_whole_compiler() -> None:
    options = session.settings("local[2]", {}, is_quick=False)["spark.driver.defaultJavaOptions"]
    assert "log4j2" in options
    assert "SerialGC" not in options
    assert "TieredStop" not in options


@pytest.mark.parametrize("master", ["spark://head:7077", "k8s://https://api:6443", "yarn", "spark://127x:1", None])
def test_a_cluster_keeps_its_own_ways_of_finding_the_driver(master: str | None) -> None:
    chosen = session.settings(master, {}, is_quick=True)
    assert set(chosen) - {"spark.executorEnv.PYTHONPATH"} == {
        "spark.sql.session.timeZone",
        "spark.sql.execution.arrow.pyspark.enabled",
        "spark.ui.showConsoleProgress",
    }


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_a_master_on_loopback_meets_the_driver_there(master: str) -> None:
    chosen = session.settings(master, {}, is_quick=True)
    assert chosen["spark.driver.host"] == "127.0.0.1"
    assert "spark.ui.enabled" not in chosen


def test_what_the_user_says_is_not_said_again() -> None:
    said = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.defaultJavaOptions": "-Xss4m"}
    assert not said.keys() & session.settings("local[2]", said, is_quick=True).keys()


def test_spark_defaults_of_an_administrator_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.a  1\n\n  spark.sql.session.timeZone   Asia/Tokyo\nspark.ui.enabled=true\nspark.c: x=y\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._keys_of_defaults() == ["spark.sql.session.timeZone", "spark.ui.enabled", "spark.c"]
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert session._keys_of_defaults() == []


def test_workers_are_told_of_a_source_tree_and_not_of_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(penstock.__file__).resolve().parents[1]
    monkeypatch.setattr(session.site, "getsitepackages", lambda: ["/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("PYSPARK_PYTHON", "/my/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/my/python")
    assert session.settings("spark://head:7077", {}, is_quick=True)["spark.executorEnv.PYTHONPATH"] == str(root)
    session._show_python_the_way()
    session._show_python_the_way()
    assert session.os.environ["PYTHONPATH"] == f"/mine:{root}"
    assert session.os.environ["PYSPARK_PYTHON"] == "/my/python", "the user's own choice stays"

    monkeypatch.setattr(session.site, "getsitepackages", lambda: [str(root)])
    assert "spark.executorEnv.PYTHONPATH" not in session.settings("spark://head:7077", {}, is_quick=True)


def test_an_archive_of_classes_is_used_by_quick_sessions_only(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    chosen = session.settings("local[2]", {}, is_quick=True, archive=archive)
    assert f"-XX:SharedArchiveFile={archive} " in chosen["spark.driver.defaultJavaOptions"]
    chosen = session.settings("local[2]", {}, is_quick=False, archive=archive)
    assert "SharedArchiveFile" not in chosen["spark.driver.defaultJavaOptions"]
    spaced = session.settings("local[2]", {}, is_quick=True, archive=tmp_path / "my cache" / "classes.jsa")
    assert "SharedArchiveFile" not in spaced["spark.driver.defaultJavaOptions"], "Spark would split the path"


def test_an_archive_belongs_to_one_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, other = class_archive._path(Path("/java/17")), class_archive._path(Path("/java/21"))
    assert one != other
    one.parent.mkdir()
    one.touch()
    assert class_archive.find_archive(Path("/java/17")) == one
    assert class_archive.find_archive(Path("/java/21")) is None
