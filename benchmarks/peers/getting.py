"""Fetches and builds peers with the tools a user has: apt, Go, Cargo, Maven, pip. Everything lies under build/peers.

Called by the peers' ready(). Nothing is installed into the system, no service is started, and where to fetch from is
the tools' own configuration. What is made is renamed into place when it is whole, so an interrupted build is never
taken for a finished one; a failure is a Missing with the tool's own last words.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .model import Missing

CACHE = Path(__file__).resolve().parents[2] / "build" / "peers"
FETCH_DEADLINE_S = 300
BUILD_DEADLINE_S = 3_600
LAST_WORDS_MAX = 300
VERSION_FILE = "version.txt"

CLIENTS = ("redis==8.1.0", "hiredis==3.5.0", "nats-py==2.16.0", "rstream==1.1.1")


def made(name: str, version: str, make: Callable[[Path], str | None]) -> Path | Missing:
    """`make` fills an empty folder and gives None, or says why it could not."""
    whole = CACHE / name
    if (whole / VERSION_FILE).is_file() and version_of(whole) == version:
        return whole
    half = CACHE / f"{name}.{os.getpid()}"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    try:
        reason = make(half)
        if reason is not None:
            return Missing(reason)
        (half / VERSION_FILE).write_text(version + "\n")
        shutil.rmtree(whole, ignore_errors=True)
        half.rename(whole)
        return whole
    finally:
        shutil.rmtree(half, ignore_errors=True)


def version_of(home: Path) -> str:
    return (home / VERSION_FILE).read_text().strip()


def run(
    command: Sequence[str], folder: Path, deadline_s: int, environment: Mapping[str, str] | None = None
) -> str | None:
    """None, or why it failed."""
    tool = command[0]
    if shutil.which(tool) is None:
        return f"{tool} is not installed"
    merged = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(
            command, cwd=folder, env=merged, capture_output=True, text=True, timeout=deadline_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{tool} was not done within {deadline_s} s"
    if done.returncode == 0:
        return None
    return f"{Path(tool).name} failed: {last_words(done.stdout + done.stderr)}"


def last_words(output: str) -> str:
    """The end of what a tool said, without the addresses it spoke to."""
    words = " ".join(word for word in " ".join(output.split("\n")[-4:]).split() if "://" not in word)
    return words[-LAST_WORDS_MAX:]


def debian(name: str, package: str, dependencies: Sequence[str]) -> Path | Missing:
    """A Debian package and what it needs, unpacked but not installed."""
    version = _debian_version(package)
    if isinstance(version, Missing):
        return version

    def unpack(half: Path) -> str | None:
        reason = run(["apt-get", "download", package, *dependencies], half, FETCH_DEADLINE_S)
        for file in sorted(half.glob("*.deb")):
            reason = reason or run(["dpkg", "-x", file.name, "."], half, FETCH_DEADLINE_S)
            file.unlink()
        return reason

    return made(name, version, unpack)


def _debian_version(package: str) -> str | Missing:
    if shutil.which("apt-cache") is None or shutil.which("dpkg") is None:
        return Missing("it is taken from Debian's packages, and this is no Debian")
    asked = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False)
    for line in asked.stdout.splitlines():
        label, _, value = line.strip().partition(": ")
        if label == "Candidate" and value != "(none)":
            return value
    return Missing(f"Debian's package lists here do not name {package}: run `apt-get update`")


def libraries(home: Path) -> str:
    """For LD_LIBRARY_PATH of a program that was unpacked, not installed."""
    return ":".join(str(folder) for folder in sorted(home.glob("usr/lib/*-linux-gnu*")))


def go_program(name: str, package: str, version: str) -> Path | Missing:
    def build(half: Path) -> str | None:
        # Outside of any module, or Go would look for the package in ours.
        return run(["go", "install", f"{package}@{version}"], half, BUILD_DEADLINE_S, {"GOBIN": str(half / "bin")})

    return made(name, version, build)


def cargo_program(name: str, crate: str, version: str, features: Sequence[str]) -> Path | Missing:
    def build(half: Path) -> str | None:
        command = ["cargo", "install", crate, "--version", version, "--locked", "--root", str(half)]
        return run([*command, "--features", ",".join(features)], half, BUILD_DEADLINE_S)

    return made(name, version, build)


def maven_jars(name: str, coordinates: str, version: str) -> Path | Missing:
    """A library and everything it needs to run, as jars in one folder."""
    group, artifact = coordinates.split(":")

    def copy(half: Path) -> str | None:
        needed = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        own = "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version><packaging>pom</packaging>"
        dependencies = f"<dependencies><dependency>{needed}</dependency></dependencies>"
        (half / "pom.xml").write_text(f"<project><modelVersion>4.0.0</modelVersion>{own}{dependencies}</project>\n")
        command = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy-dependencies",
            "-DoutputDirectory=jars",
            "-DincludeScope=runtime",
        ]
        return run(command, half, FETCH_DEADLINE_S)

    return made(name, version, copy)


def client_python() -> Path | Missing:
    """A Python with the other systems' clients, which are no dependencies of ours."""

    def install(half: Path) -> str | None:
        reason = run([sys.executable, "-m", "venv", str(half)], half, FETCH_DEADLINE_S)
        pip = [str(half / "bin" / "python"), "-m", "pip", "install", "--quiet", *CLIENTS]
        return reason or run(pip, half, FETCH_DEADLINE_S)

    home = made("clients", " ".join(CLIENTS), install)
    return home if isinstance(home, Missing) else home / "bin" / "python"
