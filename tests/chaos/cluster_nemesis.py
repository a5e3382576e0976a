"""Which faults there are, how often each is dealt, and the one after the other.

Called by cluster_run. The order comes from a seed and is printed as it happens. After each fault there is peace for a
third of the time it took, so that faults are off a quarter of the time.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cluster_faults as faults
import cluster_machine_faults as machine
from cluster_arena import Arena

PEACE_SHARE = 1 / 3
PEACE_MIN_S = 0.3


class Kind(NamedTuple):
    family: str
    name: str
    act: Callable[[Arena], str]
    cards: int = 1  # how often it is in a deck
    needs: str = ""  # what must be there for it to work


KINDS = [
    Kind("kill", "kill -9 a leader", faults.kill_leader, 4),
    Kind("kill", "kill -9 a follower", faults.kill_follower),
    Kind("kill", "kill -9 the controller", faults.kill_controller, 2),
    Kind("kill", "kill -9 a coordinator", faults.kill_coordinator, 2),
    Kind("kill", "kill -9 two", faults.kill_two),
    Kind("kill", "kill -9 all", faults.kill_all),
    Kind("kill", "kill -9 a leader, then its successor", faults.kill_twice),
    Kind("pause", "SIGSTOP half a session", faults.pause_half),
    Kind("pause", "SIGSTOP 0.9 sessions", faults.pause_nearly),
    Kind("pause", "SIGSTOP 1.5 sessions", faults.pause_beyond, 2),
    Kind("pause", "SIGSTOP the controller, 1.5 sessions", faults.pause_controller),
    Kind("restart", "rolling restart", faults.rolling_restart),
    Kind("cut", "cut a leader off", faults.cut_node, 2),
    Kind("cut", "cut two brokers apart", faults.cut_ring, 2),
    Kind("cut", "cut a leader from its followers", faults.cut_leader_from_followers),
    Kind("cut", "cut a leader from the store", faults.cut_store, 2, needs="etcd"),
    Kind("cut", "cut the controller from the store", faults.cut_store_of_controller, needs="etcd"),
    Kind("cut", "cut clients from a leader", faults.cut_clients),
    Kind("one-way cut", "cut one way", faults.cut_one_way, 3, needs="etcd"),
    Kind("delay", "delay a leader's lines", faults.delay),
    Kind("connection", "resets mid-frame", faults.reset, 3),
    Kind("connection", "hold, retry, deliver", faults.hold, 4),
    Kind("clock", "clock jump", machine.clock_jump, 3, needs="faketime"),
    Kind("disk", "slow fdatasync", machine.slow_disk, 1, needs="strace"),
    Kind("disk", "fdatasync fails", machine.fsync_error, 2, needs="strace"),
    Kind("disk", "disk full", machine.disk_full, 1, needs="small disk"),
    Kind("disk", "disk wiped", machine.wipe, 1),
    Kind("admin", "topics and settings change", machine.admin_churn, 2),
    Kind("admin", "preferred leaders", machine.elect_preferred, 3),
    Kind("admin", "replicas reassigned", machine.reassign, 1),
    Kind("store", "kill -9 a member of etcd", faults.kill_store_member, 1, needs="etcd"),
    Kind("store", "SIGSTOP etcd's leader", faults.pause_store_member, 1, needs="etcd"),
]


@dataclass(frozen=True, slots=True)
class Struck:
    """One fault as it went."""

    family: str
    name: str
    began_s: float  # since the run began
    took_s: float
    effect: str  # empty: none was seen


class Nemesis:
    def __init__(self, arena: Arena, means: set[str]) -> None:
        self._arena = arena
        self.kinds = [kind for kind in KINDS if not kind.needs or kind.needs in means]
        self.left_out = [f"{kind.name} (needs {kind.needs})" for kind in KINDS if kind not in self.kinds]
        self.struck: list[Struck] = []
        self._began = time.monotonic()

    @property
    def effective(self) -> list[Struck]:
        return [struck for struck in self.struck if struck.effect]

    @property
    def families(self) -> set[str]:
        return {kind.family for kind in self.kinds}

    def _deck(self) -> Iterator[Kind]:
        """One of each family first; then all cards, shuffled, again and again."""
        families = list(self.kinds)
        self._arena.chance.shuffle(families)
        yield from {kind.family: kind for kind in families}.values()
        while True:
            cards = [kind for kind in self.kinds for _ in range(kind.cards)]
            self._arena.chance.shuffle(cards)
            yield from cards

    def run(self, is_enough: Callable[[], bool], say: Callable[[str], None]) -> None:
        for kind in self._deck():
            if is_enough():
                return
            began = time.monotonic()
            effect = kind.act(self._arena)
            took_s = time.monotonic() - began
            self.struck.append(Struck(kind.family, kind.name, began - self._began, took_s, effect))
            told = f"{effect or 'no effect seen'} ({took_s:.1f} s; {self._arena.load.acked} acked)"
            say(f"{began - self._began:7.1f} s  {kind.name}: {told}")
            self._arena.wait(max(PEACE_MIN_S, took_s * PEACE_SHARE))
