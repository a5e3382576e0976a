"""A real PostgreSQL on loopback for the tests, in a folder of its own, run by an unprivileged user.

Used as a fixture by test_tables. Where the binaries lie is Debian's choice; without them, and without the rights to
become another user, the tests that need it are skipped.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

START_DEADLINE_S = 60


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@contextmanager
def running_postgres() -> Iterator[str]:
    """The URL of a fresh database; it is stopped and gone afterwards."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # The server refuses to run as root.
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    # Not under tmp_path: its folders let nobody but their owner in.
    home = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    os.chown(home, user.pw_uid, user.pw_gid)

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [binaries / program, *arguments],
            check=True,
            timeout=START_DEADLINE_S,
            stdout=subprocess.DEVNULL,
            cwd=home,
            **({"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}),
        )

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = str(home / "data")
    try:
        run("initdb", "-D", data, "-U", "penstock", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        settings = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={home} -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-t", str(START_DEADLINE_S), "-l", str(home / "log"), "-o", settings, "start")
        try:
            yield f"postgresql://penstock@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)
