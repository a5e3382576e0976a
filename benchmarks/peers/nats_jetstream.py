"""NATS JetStream, built from its Go module. A topic is a stream on files with one subject for each partition.

Listed in roster.py. Its default syncs every two minutes, which is the page cache; `sync_interval: always` syncs before
each acknowledgement.
"""

from pathlib import Path

from . import getting
from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

PACKAGE = "github.com/nats-io/nats-server/v2"
VERSION = "v2.15.2"


class NatsJetStream:
    name = "nats"
    driver = Driver.NATS
    abilities = frozenset({Ability.RESTART})

    def ready(self) -> Path | Missing:
        clients = getting.client_python()
        if isinstance(clients, Missing):
            return clients
        return getting.go_program("nats", PACKAGE, VERSION)

    def version(self, home: Path) -> str:
        return f"NATS {getting.version_of(home)}"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        if nodes > 1:
            return Missing("the harness starts one node of it")
        port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        sync = "  sync_interval: always\n" if mode is Mode.FSYNC else ""
        config = folder / "nats.conf"
        config.write_text(f'listen: "{HOST}:{port}"\njetstream {{\n  store_dir: "{folder / "data"}"\n{sync}}}\n')
        command = (str(home / "bin" / "nats-server"), "--config", str(config))
        return Plan(f"{HOST}:{port}", (Node(command, port, folder),))
