"""Redis Streams, from Debian's redis-server. A stream is a topic of one partition; several partitions are several keys.

Listed in roster.py. Its default keeps streams in memory and writes a snapshot now and then, so an acknowledged message
may be lost with the process; the other two modes write the append-only file, synced for each reply or left to the
kernel.
"""

from pathlib import Path

from . import getting
from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

DEPENDENCIES = ("redis-tools", "libjemalloc2", "liblzf1")
SETTINGS = {
    Mode.DEFAULT: (),
    Mode.FSYNC: ("--appendonly", "yes", "--appendfsync", "always"),
    Mode.PAGE_CACHE: ("--appendonly", "yes", "--appendfsync", "no"),
}


class RedisStreams:
    name = "redis"
    driver = Driver.REDIS
    abilities: frozenset[Ability] = frozenset()

    def ready(self) -> Path | Missing:
        clients = getting.client_python()
        if isinstance(clients, Missing):
            return clients
        return getting.debian("redis", "redis-server", DEPENDENCIES)

    def version(self, home: Path) -> str:
        return f"Redis {getting.version_of(home)} (Debian)"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        if nodes > 1:
            return Missing("its replicas do not take part in acknowledging")
        port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(home / "usr" / "bin" / "redis-server"), "--bind", HOST, "--port", str(port)]
        command += ["--dir", str(folder), "--daemonize", "no", *SETTINGS[mode]]
        environment = {"LD_LIBRARY_PATH": getting.libraries(home)}
        return Plan(f"{HOST}:{port}", (Node(tuple(command), port, folder, environment),))
