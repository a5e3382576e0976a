"""Rounds in alternation: one workload driven through every peer in turn, again and again, while all of them are up.

Called by command.py. Laws:
- All peers of a workload are up for all its rounds, so that a JVM is as warm as a user's; what the idle ones took of
  the processor meanwhile is written beside each figure.
- One round before the first is not counted. Every round has a topic of its own, deleted afterwards; but what is only
  read is filled once for all rounds, since some take minutes to take in what they give in a second.
- A peer that fails is out for the rest of the workload, with the reason; the others go on.
"""

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..peers.model import Ability, Missing, Mode, Peer, lacks
from ..peers.running import PeerDied, Running, running
from . import driving
from .drivers.job import Job
from .figures import order
from .workloads import Workload

Say = Callable[[str], None]

# No name is used twice in a run: a topic that was deleted may still be on its way out.
TOPIC_NUMBERS = itertools.count()
SCRATCH = Path(__file__).resolve().parents[2] / "build" / "beside"


@dataclass(slots=True)
class Measured:
    """One peer's rounds of one workload, or why there are none."""

    rounds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    peer: Peer
    home: Path


@contextlib.contextmanager
def scratch() -> Generator[Path]:
    """A folder for data, on the disk of the checkout: a machine's folder for short-lived files may be memory."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextlib.contextmanager
def up(
    candidates: Mapping[str, Candidate],
    folder: Path,
    mode: Mode,
    nodes: int,
    results: dict[str, Measured],
    per_core: bool = False,
) -> Generator[dict[str, Running]]:
    """All that can be started, by name; the others have their reason in `results`."""
    with contextlib.ExitStack() as stack:
        started: dict[str, Running] = {}
        for name, candidate in candidates.items():
            is_many = per_core and Ability.BROKER_PER_CORE in candidate.peer.abilities
            count = len(os.sched_getaffinity(0)) if is_many else nodes
            plan = candidate.peer.plan(candidate.home, folder / name, mode, count)
            if isinstance(plan, Missing):
                results[name].reason = plan.reason
                continue
            try:
                started[name] = stack.enter_context(running(plan, folder / f"{name}.log"))
            except (PeerDied, OSError) as error:
                results[name].reason = str(error)
        yield started


def alternate(
    workload: Workload,
    candidates: Mapping[str, Candidate],
    started: Mapping[str, Running],
    results: dict[str, Measured],
    limits: Mapping[str, Callable[[], dict[str, float]]],
    rounds: int,
    say: Say,
) -> None:
    """Fills `results`, which has a place for every peer; the limits of the machine come to stand behind them."""
    for name, candidate in candidates.items():
        results[name].reason = results[name].reason or lacks(candidate.peer, workload.needs)
    filled: dict[str, str] = {}  # each peer's topic
    for round_number in range(-1, rounds):
        for name in order([name for name in started if results[name].reason is None], max(0, round_number)):
            say(f"{workload.name}: {name}, {'warm-up' if round_number < 0 else f'round {round_number + 1}'}")
            others = [running for other, running in started.items() if other != name]
            peer, target = candidates[name].peer, started[name]
            job = replace(workload.job, address=target.address)
            try:
                if workload.fill and name not in filled:
                    filled[name] = _fill(peer, job, workload.fill)
                job = replace(job, topic=filled.get(name) or _new_topic(), creates=name not in filled)
                os.sync()  # what was written before is not this one's to wait for
                if workload.is_cold:
                    forget(node.folder for node in target.plan.nodes)
                clears = name not in filled or round_number == rounds - 1
                figures = measure(workload, peer, target, others, job, clears=clears)
            except (driving.ClientFailed, PeerDied, OSError) as error:
                results[name].reason = str(error) or type(error).__name__
                continue
            if round_number >= 0:
                results[name].rounds.append(figures)
        if round_number >= 0:
            say(f"{workload.name}: limits, round {round_number + 1}")
            _measure_limits(limits, results)


def _measure_limits(limits: Mapping[str, Callable[[], dict[str, float]]], results: dict[str, Measured]) -> None:
    for name, measure_limit in limits.items():
        found = results.setdefault(name, Measured())
        if found.reason is None:
            try:
                found.rounds.append(measure_limit())
            except (driving.ClientFailed, PeerDied, OSError) as error:
                found.reason = str(error) or type(error).__name__


def _new_topic() -> str:
    return f"bench-{next(TOPIC_NUMBERS)}"


def _fill(peer: Peer, job: Job, count: int) -> str:
    topic = _new_topic()
    filling = replace(job, topic=topic, act="produce", count=count, acks="1", groups=1, creates=True, seconds_max=0)
    driving.do(peer.driver, filling)
    return topic


def measure(
    workload: Workload, peer: Peer, target: Running, others: list[Running], job: Job, *, clears: bool
) -> dict[str, float]:
    # The listener looks for the topic that the first client makes.
    jobs = [job, replace(job, act="listen", creates=True)] if workload.listens else [job]
    with driving.ready_clients(peer.driver, jobs) as clients:
        others_before = sum(other.usage().cpu_s for other in others)
        before = target.usage()
        worked = driving.work(clients)
        used = target.usage().since(before)
        others_cpu_s = sum(other.usage().cpu_s for other in others) - others_before
        if clears:
            clients[0].clear()
    first = worked[0]
    figures = {
        "messages_per_s": first.messages / first.seconds,
        "mb_per_s": first.size_bytes / first.seconds / 1e6,
        "seconds": first.seconds,
        "client_cpu_us_per_message": sum(each.client_cpu_s for each in worked) / first.messages * 1e6,
        "broker_cpu_us_per_message": used.cpu_s / first.messages * 1e6,
        "broker_rss_mb": used.rss_bytes / 1e6,
        "disk_bytes_per_message": used.written_bytes / first.messages,
        "others_cpu_s": others_cpu_s,
        **first.figures,
    }
    for listener in worked[1:]:
        figures |= {f"end_to_end_{name}": value for name, value in listener.figures.items()}
    return figures


def forget(folders: Iterator[Path]) -> None:
    """Puts the pages of all files out of the page cache, once they are on disk."""
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file():
                    handle = os.open(path, os.O_RDONLY)
                    try:
                        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                    finally:
                        os.close(handle)
