"""Tansu, a broker for Kafka's protocol in Rust, on its SQLite storage.

Listed in roster.py; built where crates can be had. Its storage is a database: what a commit means is SQLite's business,
and there is no setting for another.
"""

import os
from pathlib import Path

from . import getting
from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

CRATE = "tansu"
VERSION = "0.6.0"
FEATURES = ("libsql",)


class Tansu:
    name = "tansu"
    driver = Driver.KAFKA
    abilities = frozenset({Ability.KAFKA, Ability.CHOICE_OF_ACKS, Ability.COMPRESSION, Ability.GROUPS, Ability.RESTART})

    def ready(self) -> Path | Missing:
        return getting.cargo_program("tansu", CRATE, VERSION, FEATURES)

    def version(self, home: Path) -> str:
        return f"Tansu {getting.version_of(home)} (SQLite)"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        if mode is not Mode.DEFAULT:
            return Missing("how its storage syncs is not its user's choice")
        if nodes > 1:
            return Missing("its nodes share a database instead of having replicas")
        port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        address = f"tcp://{HOST}:{port}"
        command = [str(home / "bin" / "tansu"), "broker", "--listener-url", address]
        # It takes the path of the URL from where it was started, whatever the path begins with.
        database = os.path.relpath(folder / "tansu.db")
        command += ["--advertised-listener-url", address, "--storage-engine", f"sqlite:///{database}"]
        return Plan(f"{HOST}:{port}", (Node(tuple(command), port, folder),))
