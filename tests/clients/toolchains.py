"""Makes the drivers of other languages runnable: fetches what their lock files name and compiles, once.

Called by roster. What is made lies in the virtual environment and is made anew when its sources change. A machine
without the language, or without the packages and a network to fetch them, raises ToolchainMissing, which says why.
A driver that does not compile is no such reason, but a failed test.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(sys.prefix) / "clients"
BUILD_DEADLINE_S = 300

JAVA_ERROR = "COMPILATION ERROR"  # Maven fetches and compiles in one go; this tells the two apart


class ToolchainMissing(Exception):
    """The reason why a client cannot be tried here."""


Maker = Callable[..., list[str]]


def _once(make: Maker) -> Maker:
    """Make a driver once; and when that failed, do not try again for every test."""
    known: dict[tuple[str, ...], list[str] | ToolchainMissing] = {}

    @functools.wraps(make)
    def made(*arguments: str) -> list[str]:
        if arguments not in known:
            try:
                known[arguments] = make(*arguments)
            except ToolchainMissing as reason:
                known[arguments] = reason
        answer = known[arguments]
        if isinstance(answer, ToolchainMissing):
            raise answer
        return answer

    return made


def python_driver(script: str) -> list[str]:
    return [sys.executable, str(HERE / "python" / script)]


@_once
def node_driver() -> list[str]:
    node, npm = _need("node"), _need("npm")
    source = HERE / "kafkajs"
    made = _made("kafkajs", source.glob("*.js*"))
    if not made.is_dir():
        with _making(made) as half:
            for file in source.glob("*.js*"):
                shutil.copy(file, half)
            _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], half)
    return [node, str(made / "driver.js")]


@_once
def java_driver(kafka_version: str) -> list[str]:
    java, maven = _need("java"), _need("mvn")
    _need("javac")
    source = HERE / "java"
    made = _made(f"java-{kafka_version}", source.rglob("*"))
    if not made.is_dir():
        with _making(made) as half:
            build = [maven, "--batch-mode", "--quiet", "--file", str(source / "pom.xml")]
            build += [f"-Dkafka.version={kafka_version}", f"-Dbuild.folder={half}", "process-classes"]
            try:
                _run([*build, "--offline"], source)  # asks no server when everything is here already
            except ToolchainMissing:
                _run(build, source)
    # One core is enough for a driver, and the small collector and compiler start fastest.
    flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    return [java, *flags, "-cp", f"{made / 'classes'}{os.pathsep}{made / 'jars'}/*", "penstock.clients.Driver"]


@_once
def go_driver(package: str) -> list[str]:
    go = _need("go")
    source = HERE / "go"
    made = _made(f"go-{package}", [*source.glob("go.*"), *(source / package).glob("*.go"), *source.glob("driver/*.go")])
    if not made.is_dir():
        _run([go, "mod", "download"], source)
        with _making(made) as half:
            _run([go, "build", "-mod=readonly", "-o", str(half / "driver"), f"./{package}"], source, compiles=True)
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


@contextmanager
def _making(made: Path) -> Generator[Path]:
    """A folder beside it, renamed when all is done, so that a build that was ended is not taken for whole."""
    half = made.with_name(f"{made.name}.{os.getpid()}")
    half.mkdir(parents=True)
    try:
        yield half
        with suppress(OSError):  # somebody else was making it too, and was first
            half.rename(made)
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _run(command: Sequence[str], folder: Path, *, compiles: bool = False) -> None:
    tool = Path(command[0]).name
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ToolchainMissing(f"{tool} was not done within {BUILD_DEADLINE_S} s") from None
    if done.returncode != 0:
        output = (done.stdout + done.stderr).strip()
        assert not compiles, output
        assert JAVA_ERROR not in output, output
        raise ToolchainMissing(f"{tool} failed: {' / '.join(output.splitlines()[-3:])}")
