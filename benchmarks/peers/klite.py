"""klite, a small broker for Kafka's protocol in Go. Listed in roster.py; built where the Go module proxy has it.

Its write-ahead log is synced every two milliseconds before producers are answered; it has no mode without.
"""

from pathlib import Path

from . import getting
from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

PACKAGE = "github.com/klaudworks/klite/cmd/klite"
VERSION = "latest"


class Klite:
    name = "klite"
    driver = Driver.KAFKA
    abilities = frozenset(Ability) - {Ability.CLUSTER}

    def ready(self) -> Path | Missing:
        return getting.go_program("klite", PACKAGE, VERSION)

    def version(self, home: Path) -> str:
        return f"klite {getting.version_of(home)}"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        if mode is Mode.PAGE_CACHE:
            return Missing("it always syncs before it acknowledges")
        if nodes > 1:
            return Missing("it is one node by design")
        port = free_port()
        command = (str(home / "bin" / "klite"), "--listen", f"{HOST}:{port}", "--data-dir", str(folder))
        return Plan(f"{HOST}:{port}", (Node((*command, "--log-level", "error"), port, folder),))
