"""Where faults happen: the cluster, what is seen of it, its load, chance, and the means to hurt it.

Built by cluster_run, handed to every fault.
"""

import os
import random
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cluster_clients import QUEUE
from cluster_eyes import Eyes
from cluster_load import LoadProcess

from penstock.testing.cluster import PenstockCluster

FAKETIME = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
)


class Moment(NamedTuple):
    """Something whose price for writers is measured: partitions of the queue that lost their leader at `at`."""

    kind: str  # "killed" or "planned"
    at: float  # time.monotonic()
    until: float  # when the move was over, for planned ones
    partitions: tuple[int, ...]


@dataclass(slots=True)
class Arena:
    cluster: PenstockCluster
    eyes: Eyes
    load: LoadProcess
    chance: random.Random
    session_s: float
    clocks: dict[int, Path]
    small_disks: set[int]
    moments: list[Moment] = field(default_factory=list[Moment])

    def leader(self) -> int:
        """Who leads a partition of the queue; one that is there, if nobody does."""
        leaders = [state.leader for state in self.eyes.partitions(QUEUE) if state.leader in self.alive]
        return self.chance.choice(leaders or self.alive)

    def follower(self) -> int:
        leaders = {state.leader for state in self.eyes.partitions(QUEUE)}
        return self.chance.choice([node for node in self.alive if node not in leaders] or self.alive)

    def controller(self) -> int:
        return self.eyes.controller if self.eyes.controller in self.alive else self.chance.choice(self.alive)

    def coordinator(self) -> int:
        states = [*self.eyes.partitions("__consumer_offsets"), *self.eyes.partitions("__transaction_state")]
        return self.chance.choice([state.leader for state in states if state.leader in self.alive] or self.alive)

    def anyone(self) -> int:
        return self.chance.choice(self.alive)

    @property
    def alive(self) -> list[int]:
        return [node for node, broker in self.cluster.brokers.items() if broker.is_alive]

    def wait(self, seconds: float) -> None:
        """Faults last for a time; nothing is waited for here."""
        time.sleep(seconds)

    def changed(self, before: Counter[str]) -> str:
        """What the metadata store has seen since, as a remark; empty if nothing."""
        difference = self.eyes.changes - before
        return ", ".join(f"{count} × {kind}" for kind, count in sorted(difference.items()) if kind != "topics")

    def note_killed(self, node: int) -> None:
        """Only where enough others are in sync to go on at once; else the measure would be of who comes back when."""
        states = enumerate(self.eyes.partitions(QUEUE))
        led = tuple(n for n, state in states if state.leader == node and len(state.isr) == len(state.replicas))
        if led:
            self.moments.append(Moment("killed", time.monotonic(), 0.0, led))

    def note_planned(self, began: float, partitions: tuple[int, ...]) -> None:
        if partitions:
            self.moments.append(Moment("planned", began, time.monotonic(), partitions))


def faketime_library() -> str | None:
    return next((path for path in FAKETIME if os.path.exists(path)), None)


def give_clocks(cluster: PenstockCluster, nodes: list[int]) -> dict[int, Path]:
    """These brokers read the time through a file; where there is no libfaketime, none does."""
    library = faketime_library()
    if library is None:
        return {}
    clocks: dict[int, Path] = {}
    for node in nodes:
        clocks[node] = cluster.directory / f"clock-{node}"
        clocks[node].write_text("+0\n")
        cluster.environment[node] = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(clocks[node]),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    return clocks


def give_small_disks(cluster: PenstockCluster, nodes: list[int], disk_bytes: int) -> set[int]:
    """The data of these brokers lies on a disk of its own that can be filled up; without root on none."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return set()
    given: set[int] = set()
    for node in nodes:
        mounted = cluster.brokers[node].data_dir
        mounted.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={disk_bytes}", "tmpfs", str(mounted)]
        if subprocess.run(command, capture_output=True).returncode == 0:
            given.add(node)
    return given


def take_small_disks(cluster: PenstockCluster, nodes: set[int]) -> None:
    for node in nodes:
        subprocess.run(["umount", "--lazy", str(cluster.brokers[node].data_dir)], check=True)
