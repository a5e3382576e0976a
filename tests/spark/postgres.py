"""A real PostgreSQL on loopback for the tests, in a folder of its own, run by an unprivileged user.

Used as a fixture by test_tables and the tests of pipelines: one server for all of them, started by the first who asks
and ended with the run, and a fresh database for each. Where the binaries lie is Debian's choice; without
them, and without the rights to become another user, the tests that need it are skipped.
"""

import atexit
import functools
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers import wait_until
from standalone import end_with_owner

START_DEADLINE_S = 60
_names = itertools.count()


class Server(NamedTuple):
    binaries: Path
    home: Path
    port: int

    def run(self, program: str, *arguments: str) -> None:
        command = [self.binaries / program, *arguments]
        subprocess.run(command, check=True, timeout=START_DEADLINE_S, stdout=subprocess.DEVNULL, **self.as_user())

    def as_user(self) -> dict[str, Any]:
        user = _user()
        changed = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
        return {"cwd": self.home, **changed}


@contextmanager
def running_postgres() -> Iterator[str]:
    """The URL of a fresh database."""
    server = _server()
    if server is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    name = f"test_{next(_names)}"
    server.run("createdb", "-h", "127.0.0.1", "-p", str(server.port), "-U", "penstock", name)
    yield f"postgresql://penstock@127.0.0.1:{server.port}/{name}"


@functools.cache
def _server() -> Server | None:
    binaries = _binaries()
    if binaries is None:
        return None
    user = _user()
    # Not under tmp_path: its folders let nobody but their owner in.
    home = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.chown(home, user.pw_uid, user.pw_gid)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(binaries, home, free.getsockname()[1])
    data = str(home / "data")
    server.run("initdb", "-D", data, "-U", "penstock", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
    settings = {"listen_addresses": "127.0.0.1", "port": server.port, "unix_socket_directories": home, "fsync": "off"}
    # Not by pg_ctl, whose server outlives a run of tests that is killed.
    process = subprocess.Popen(
        [binaries / "postgres", "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
        stdout=subprocess.DEVNULL,
        stderr=(home / "log").open("wb"),
        preexec_fn=end_with_owner,
        **server.as_user(),
    )
    atexit.register(_stop, process)
    ready = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
    wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL to start", START_DEADLINE_S)
    return server


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGQUIT)
    process.wait(START_DEADLINE_S)


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _user() -> pwd.struct_passwd:
    # The server refuses to run as root.
    return pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
