"""penstock itself, from this checkout, as `penstock serve` starts it, without the gateway: no other peer here has one.

Listed in roster.py. Its default answers `acks=all` after a group fsync where a partition has one replica; FSYNC forces
every append to disk, whatever its acks, as the setting of the same name does in Kafka.
"""

import subprocess
import sys
from pathlib import Path

from .model import HOST, Ability, Driver, Missing, Mode, Node, Plan, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = {
    Mode.DEFAULT: (),
    Mode.FSYNC: ("log.flush.interval.messages=1",),
    Mode.PAGE_CACHE: ("penstock.durability=page-cache",),
}


class Penstock:
    name = "penstock"
    driver = Driver.KAFKA
    abilities = frozenset(Ability)

    def ready(self) -> Path | Missing:
        return REPOSITORY

    def version(self, home: Path) -> str:
        asked = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=home, capture_output=True, text=True, check=False
        )
        return f"penstock {asked.stdout.strip() or 'of no commit'}"

    def plan(self, home: Path, folder: Path, mode: Mode, nodes: int = 1) -> Plan | Missing:
        made: list[Node] = []
        for number in range(1, nodes + 1):
            port, data = free_port(), folder / f"node-{number}"
            settings = [f"node.id={number}", *SETTINGS[mode]]
            if nodes > 1:
                settings.append(f"penstock.metadata=sqlite:{folder / 'metadata.db'}")
            command = [sys.executable, "-m", "penstock", "serve", "--no-gateway", "--data-dir", str(data)]
            command += ["--listen", f"{HOST}:{port}", "--http", f"{HOST}:{free_port()}", "--log-level", "warning"]
            for setting in settings:
                command += ["-o", setting]
            made.append(Node(tuple(command), port, data))
        return Plan(",".join(f"{HOST}:{node.port}" for node in made), tuple(made))
