"""Workloads that start and stop a peer: start-up, memory, recovery, many partitions, many connections.

Called by command.py. The peers still take turns, round by round, but only one is up at a time. Times run from the
command that starts a peer to the answer a client gets; the client is a process that stands ready before.
"""

import contextlib
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..peers.model import Missing, Mode, Peer, lacks
from ..peers.running import PeerDied, Running
from . import driving
from .drivers.job import Job
from .figures import order
from .rounds import Candidate, Measured, Say, scratch
from .workloads import Workload

SETTLE_S = 3.0  # until a peer that has just started is idle


@dataclass(frozen=True, slots=True)
class Turn:
    """One peer's turn: not yet started, its folder new."""

    workload: Workload
    peer: Peer
    target: Running

    @property
    def job(self) -> Job:
        return replace(self.workload.job, address=self.target.address)

    def do(self, act: str, **changes: int) -> driving.Worked:
        return driving.do(self.peer.driver, replace(self.job, act=act, **changes))

    def start(self) -> None:
        self.target.start()
        self.target.wait_until_up()

    def start_until(self, act: str) -> tuple[float, driving.Worked]:
        """Seconds from the command to the end of the act."""
        with driving.ready_clients(self.peer.driver, [replace(self.job, act=act)]) as clients:
            os.sync()
            began = time.perf_counter()
            self.target.start()
            worked = driving.work(clients)[0]
            return time.perf_counter() - began, worked


def start(turn: Turn) -> dict[str, float]:
    took_s, _ = turn.start_until("first")
    usage = turn.target.usage()
    return {"start_s": took_s, "rss_mb": usage.rss_bytes / 1e6, "broker_cpu_s": usage.cpu_s}


def memory(turn: Turn) -> dict[str, float]:
    turn.start()
    time.sleep(SETTLE_S)
    idle = turn.target.usage()
    before = turn.target.usage()
    turn.do("produce", creates=True)
    loaded = turn.target.usage()
    return {
        "idle_rss_mb": idle.rss_bytes / 1e6,
        "loaded_rss_mb": loaded.rss_bytes / 1e6,
        "broker_cpu_s": loaded.since(before).cpu_s,
    }


def recovery(turn: Turn) -> dict[str, float]:
    """kill -9 under full logs; recovered when the same topic acknowledges again."""
    turn.start()
    turn.do("produce", creates=True, count=turn.workload.fill, size=1_000)
    turn.target.kill()
    took_s, _ = turn.start_until("first")
    usage = turn.target.usage()
    return {"recovered_s": took_s, "rss_mb": usage.rss_bytes / 1e6, "broker_cpu_s": usage.cpu_s}


def partitions(turn: Turn) -> dict[str, float]:
    turn.start()
    empty = turn.target.usage()
    created = turn.do("partitions")
    described = turn.do("metadata")
    full = turn.target.usage()
    turn.target.stop()
    restart_s, _ = turn.start_until("metadata")
    return {
        "restart_s": restart_s,
        "create_ms_each": created.seconds / created.messages * 1000,
        "metadata_ms": described.figures["metadata_ms"],
        "rss_mb": full.rss_bytes / 1e6,
        "kb_each": (full.rss_bytes - empty.rss_bytes) / created.messages / 1000,
    }


def connections(turn: Turn) -> dict[str, float]:
    turn.start()
    time.sleep(SETTLE_S)
    with driving.ready_clients(turn.peer.driver, [turn.job]) as clients:
        before = turn.target.usage()
        worked = driving.work(clients)[0]
        after = turn.target.usage()
    return {
        "kb_each": (after.rss_bytes - before.rss_bytes) / worked.messages / 1000,
        "opened_per_s": worked.messages / worked.seconds,
        "rss_mb": after.rss_bytes / 1e6,
        "broker_cpu_s": after.since(before).cpu_s,
    }


TURNS: dict[str, Callable[[Turn], dict[str, float]]] = {
    "start": start,
    "memory": memory,
    "recovery": recovery,
    "partitions": partitions,
    "connections": connections,
}


def take_turns(
    workload: Workload, candidates: Mapping[str, Candidate], mode: Mode, rounds: int, say: Say
) -> dict[str, Measured]:
    results = {name: Measured(reason=lacks(each.peer, workload.needs)) for name, each in candidates.items()}
    for round_number in range(rounds):
        for name in order([name for name in candidates if results[name].reason is None], round_number):
            say(f"{workload.name}: {name}, round {round_number + 1}")
            try:
                with scratch() as folder, _turn(workload, candidates[name], folder, mode) as turn:
                    results[name].rounds.append(TURNS[workload.family](turn))
            except (driving.ClientFailed, PeerDied, OSError) as error:
                results[name].reason = str(error) or type(error).__name__
    return results


@contextlib.contextmanager
def _turn(workload: Workload, candidate: Candidate, folder: Path, mode: Mode) -> Generator[Turn]:
    plan = candidate.peer.plan(candidate.home, folder / candidate.peer.name, mode, workload.nodes)
    if isinstance(plan, Missing):
        raise PeerDied(plan.reason)
    target = Running(plan, folder / "log")
    try:
        target.prepare()
        yield Turn(workload, candidate.peer, target)
    finally:
        target.stop()
