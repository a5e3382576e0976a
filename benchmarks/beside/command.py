"""The command: which peers can be had, which workloads are wanted, run them, write the report.

Called by benchmarks/compare.py. The report is written after every workload, so that a run that is ended keeps what it
measured. A quick run is a smoke test: its numbers mean nothing and are never written over real ones.
"""

import argparse
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..machine import describe_machine
from ..peers.model import Missing, Mode, Peer
from ..peers.roster import OURS, PEERS
from . import alone, figures, limits, report
from .rounds import SCRATCH, Candidate, Measured, alternate, scratch, up
from .workloads import FAMILIES, Kind, Workload, chosen

RESULTS = Path(__file__).resolve().parents[1] / "results" / "beside.json"
QUICK_RESULTS = SCRATCH / "quick.json"
ROUNDS = 5
LIMITS = "limits"


def main(arguments: Sequence[str]) -> int:
    given = _parse(arguments)
    try:
        peers = _peers(given.peers)
        workloads = chosen([name for name in given.only if name != LIMITS], given.core)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    if given.only == [LIMITS]:
        workloads = []
    if given.page:
        print(report.page(report.merged(given.out, {})))
        return 0
    _allow_many_files()
    new: report.Report = {"peers": {}, "workloads": {}, "limits": {}}
    candidates = _fetch(peers, new)
    out: Path = given.out if not given.quick else QUICK_RESULTS
    rounds: int = given.rounds
    for workload, mode, results in _run(workloads, candidates, rounds, given.quick, given.modes):
        new["workloads"][f"{workload.name}, {mode}"] = report.entry(
            workload, mode, results, OURS.name, describe_machine()
        )
        report.write(out, report.merged(out, new))
        for name, measured in results.items():
            print(f"  {name}: {_headline(workload, measured)}")
    if LIMITS in given.only or not given.only:
        found = limits.measure(rounds, given.quick, _say)
        new["limits"] = {name: figures.summary(each) for name, each in found.items()}
        report.write(out, report.merged(out, new))
    print(f"written to {out}; `python benchmarks/compare.py --page` prints it as a page")
    return 0


def _run(
    workloads: Sequence[Workload], candidates: dict[str, Candidate], rounds: int, is_quick: bool, modes: Sequence[Mode]
) -> Iterator[tuple[Workload, Mode, dict[str, Measured]]]:
    """Peers stay up for the workloads of one mode and one number of nodes."""
    wanted = [each.quickly() if is_quick else each for each in workloads]
    together = [each for each in wanted if each.kind is Kind.TOGETHER]
    for mode in modes:
        for nodes, per_core in sorted({(each.nodes, each.per_core) for each in together}):
            some = [
                each for each in together if mode in each.modes and (each.nodes, each.per_core) == (nodes, per_core)
            ]
            if not some:
                continue
            absent = {name: Measured() for name in candidates}
            with scratch() as folder, up(candidates, folder, mode, nodes, absent, per_core) as started:
                for workload in some:
                    results = {name: Measured(reason=each.reason) for name, each in absent.items()}
                    held_against = limits.beside(workload.limits if mode is Mode.DEFAULT else (), is_quick)
                    alternate(workload, candidates, started, results, held_against, rounds, _say)
                    yield workload, mode, results
    for workload in wanted:
        if workload.kind is Kind.ALONE and Mode.DEFAULT in modes:
            yield workload, Mode.DEFAULT, alone.take_turns(workload, candidates, Mode.DEFAULT, rounds, _say)


def _fetch(peers: Sequence[Peer], new: report.Report) -> dict[str, Candidate]:
    found: dict[str, Candidate] = {}
    for peer in peers:
        _say(f"{peer.name}: is it here?")
        home = peer.ready()
        if isinstance(home, Missing):
            new["peers"][peer.name] = {"reason": home.reason}
            print(f"  {peer.name} is not measured: {home.reason}")
        else:
            new["peers"][peer.name] = {"version": peer.version(home)}
            found[peer.name] = Candidate(peer, home)
    return found


def _peers(names: Sequence[str]) -> list[Peer]:
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise LookupError(f"no peer {', '.join(unknown)}; there are {', '.join(PEERS)}")
    # Ours is always measured: everything else is in relation to it.
    return [peer for name, peer in PEERS.items() if not names or name in names or peer is OURS]


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    def listed(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    def moded(text: str) -> list[Mode]:
        return [Mode(part) for part in listed(text)]

    parser = argparse.ArgumentParser(description="penstock beside other systems, in alternation")
    families = ", ".join((*FAMILIES, LIMITS))
    parser.add_argument("--only", type=listed, default=[], help=f"workloads or families, with commas: {families}")
    parser.add_argument("--core", action="store_true", help="only the workloads that have a target")
    parser.add_argument("--peers", type=listed, default=[], help=f"with commas: {', '.join(PEERS)}")
    parser.add_argument("--modes", type=moded, default=list(Mode), help="with commas: default, fsync, page-cache")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a smoke test of seconds; its numbers mean nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="measure nothing; print the report as Markdown")
    return parser.parse_args(arguments)


def _headline(workload: Workload, measured: Measured) -> str:
    values = [one[workload.metric] for one in measured.rounds if workload.metric in one]
    text = f"{workload.metric} {report.between(figures.spread(values).plain())}" if values else "nothing"
    return text if measured.reason is None else f"{text}; {measured.reason}"


def _allow_many_files() -> None:
    """As a service's unit file does, for all peers alike: some raise the limit themselves, some do not."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
