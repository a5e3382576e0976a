"""Makes the drivers of other languages runnable: fetches what their lock files name and compiles, once.

Called by roster. What is made lies in the virtual environment and is made anew when its sources change. A machine
without the language, or without the packages and a network to fetch them, raises ToolchainMissing, which says why.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(sys.prefix) / "clients"
BUILD_DEADLINE_S = 600


class ToolchainMissing(Exception):
    """The reason why a client cannot be tried here."""


def python_driver(script: str) -> list[str]:
    return [sys.executable, str(HERE / "python" / script)]


@functools.cache
def node_driver() -> list[str]:
    node, npm = _need("node"), _need("npm")
    source = HERE / "kafkajs"
    made = _made("kafkajs", source.glob("*.js*"))
    if not made.is_dir():
        half = _half_made(made)
        for file in source.glob("*.js*"):
            shutil.copy(file, half)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], half)
        _finish(half, made)
    return [node, str(made / "driver.js")]


@functools.cache
def java_driver(kafka_version: str) -> list[str]:
    java, maven = _need("java"), _need("mvn")
    _need("javac")
    source = HERE / "java"
    made = _made(f"java-{kafka_version}", source.rglob("*"))
    if not made.is_dir():
        half = _half_made(made)
        build = [maven, "--batch-mode", "--quiet", "--file", str(source / "pom.xml")]
        build += [f"-Dkafka.version={kafka_version}", f"-Dbuild.folder={half}", "process-classes"]
        try:
            _run([*build, "--offline"], source)  # asks no server when everything is here already
        except ToolchainMissing:
            _run(build, source)
        _finish(half, made)
    # One core is enough for a driver, and the small collector and compiler start fastest.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return [java, *flags, "-cp", f"{made / 'classes'}{os.pathsep}{made / 'jars'}/*", "penstock.clients.Driver"]


@functools.cache
def go_driver(package: str) -> list[str]:
    go = _need("go")
    source = HERE / "go"
    made = _made(f"go-{package}", [*source.glob("go.*"), *(source / package).glob("*.go"), *source.glob("driver/*.go")])
    if not made.is_dir():
        half = _half_made(made)
        _run([go, "build", "-mod=readonly", "-o", str(half / "driver"), f"./{package}"], source)
        _finish(half, made)
    return [str(made / "driver")]


def _need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise ToolchainMissing(f"{program} is not installed")
    return found


def _made(name: str, sources: Iterable[Path]) -> Path:
    digest = hashlib.sha256()
    for source in sorted(path for path in sources if path.is_file()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return CACHE / f"{name}-{digest.hexdigest()[:12]}"


def _half_made(made: Path) -> Path:
    """An empty folder beside it, renamed when all is done, so that a build that was ended is not taken for whole."""
    half = made.with_name(f"{made.name}.{os.getpid()}")
    half.mkdir(parents=True)
    return half


def _finish(half: Path, made: Path) -> None:
    try:
        half.rename(made)
    except OSError:
        if not made.is_dir():
            raise
        shutil.rmtree(half)  # somebody else was making it too, and was first


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise ToolchainMissing(f"{Path(command[0]).name} failed: {' / '.join(lines[-3:])}")
