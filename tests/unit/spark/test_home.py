"""The home that local sessions start from: pip's Spark without the archive that Python cannot keep compiled."""

import os
from pathlib import Path

import pytest

from penstock.spark import home


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site-packages" / "pyspark"
    (folder / "jars").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "spark-submit").write_text("#!/bin/sh\n")
    (folder / "python" / "lib").mkdir(parents=True)
    (folder / "python" / "lib" / "pyspark.zip").write_bytes(b"zip")
    (folder / "python" / "lib" / "py4j-src.zip").write_bytes(b"py4j")
    (folder / "__init__.py").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.syspath_prepend(folder.parent)
    return folder


def test_it_has_everything_but_the_archive(installed: Path) -> None:
    made = home.linked_home(installed)
    assert (made / "bin" / "spark-submit").read_text() == "#!/bin/sh\n"
    assert (made / "python" / "lib" / "py4j-src.zip").read_bytes() == b"py4j"
    assert not (made / "python" / "lib" / "pyspark.zip").exists()
    assert list(made.parent.iterdir()) == [made], "nothing is left of its making"
    inode = made.stat().st_ino
    assert home.linked_home(installed).stat().st_ino == inode, "made once"


def test_it_follows_an_upgrade_in_place(installed: Path) -> None:
    home.linked_home(installed)
    (installed / "new.py").touch()
    (installed / "python" / "lib" / "py4j-src.zip").rename(installed / "python" / "lib" / "py4j-2-src.zip")
    made = home.linked_home(installed)
    assert (made / "new.py").exists()
    assert (made / "python" / "lib" / "py4j-2-src.zip").exists()


def test_a_home_that_somebody_chose_stays(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    home.prepare_home()
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_without_a_place_for_it_spark_starts_from_where_it_is(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home.importlib.util, "find_spec", lambda _: _Spec(installed / "__init__.py"))
    (tmp_path / "cache").write_text("a file, where the folder should be")
    home.prepare_home()
    assert "SPARK_HOME" not in os.environ
    (tmp_path / "cache").unlink()
    home.prepare_home()
    assert Path(os.environ["SPARK_HOME"]).parent == tmp_path / "cache" / "penstock"
    monkeypatch.delenv("SPARK_HOME")


class _Spec:
    def __init__(self, origin: Path) -> None:
        self.origin = str(origin)
