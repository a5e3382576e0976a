"""What a history of clients, of the metadata store and of the replicas' files must never show.

Called by cluster_run at the end of a run, and fed with bad histories by test_cluster_checkers. Pure: each checker takes
what was seen and gives a list of violations, each a sentence; an empty list is what we are after.
An outcome that nobody knows (a time-out, a connection that broke) is unknown, never failed: it may show either way.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

SHOWN_MAX = 10
UNTOLD = -1  # an offset that an acknowledgement did not say


class Value(NamedTuple):
    """What a record of the queue says: who sent it, and as the how-manieth."""

    producer: int
    serial: int


class Read(NamedTuple):
    partition: int
    offset: int
    value: Value


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Leg(NamedTuple):
    """One message of a transfer, as a reader of committed records got it."""

    transfer: str
    legs: int  # of the whole transfer
    account: int
    amount: int


class Commit(NamedTuple):
    """A member's attempt to commit an offset. One that was refused may have been carried out at its first try."""

    partition: int
    offset: int
    is_certain: bool  # it was answered, so nothing of it is still on its way


class Leadership(NamedTuple):
    """What one revision of the metadata store said of a partition."""

    partition: str
    leader: int  # -1: nobody
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class StoredBatch(NamedTuple):
    base_offset: int
    last_offset: int
    content: bytes


def check_queue(
    acked: Mapping[Value, tuple[int, int]], sent: Mapping[int, int], readers: Mapping[str, Sequence[Read]], last: str
) -> list[str]:
    """The idempotent queue. `acked`: (partition, offset) as told; `sent`: serials a producer used; `last` read all."""
    violations: list[str] = []
    final = readers[last]
    places: dict[Value, list[tuple[int, int]]] = defaultdict(list)
    for read in final:
        places[read.value].append((read.partition, read.offset))
    lost = [value for value in acked if value not in places]
    violations += _told("acknowledged and lost", lost)
    violations += _told("stored more than once", [(value, at) for value, at in places.items() if len(at) > 1])
    moved = [
        (value, at, places[value])
        for value, at in acked.items()
        if value in places and at[1] != UNTOLD and at not in places[value]
    ]
    violations += _told("not where its producer was told", moved)
    violations += _told("read and never sent", [v for v in places if not 0 <= v.serial < sent.get(v.producer, 0)])
    violations += _check_order(final)
    violations += _check_consistency(readers)
    return violations


def _check_order(reads: Iterable[Read]) -> list[str]:
    newest: dict[tuple[int, int], int] = {}
    disorder: list[tuple[Value, int]] = []
    for read in sorted(reads, key=lambda read: (read.partition, read.offset)):
        key = read.value.producer, read.partition
        if read.value.serial < newest.get(key, -1):
            disorder.append((read.value, newest[key]))
        newest[key] = max(read.value.serial, newest.get(key, -1))
    return _told("out of its producer's order, behind a later one", disorder)


def _check_consistency(readers: Mapping[str, Sequence[Read]]) -> list[str]:
    violations: list[str] = []
    first: dict[tuple[int, int], tuple[str, Value]] = {}
    differing: list[tuple[tuple[int, int], tuple[str, Value], tuple[str, Value]]] = []
    for name, reads in readers.items():
        reached: dict[int, int] = {}
        backwards: list[Read] = []
        for read in reads:
            if read.offset <= reached.get(read.partition, -1):
                backwards.append(read)
            reached[read.partition] = read.offset
            seen = first.setdefault((read.partition, read.offset), (name, read.value))
            if seen[1] != read.value:
                differing.append(((read.partition, read.offset), seen, (name, read.value)))
        violations += _told(f"given to {name} again or backwards", backwards)
    return violations + _told("one offset, two values", differing)


def check_transfers(outcomes: Mapping[str, Outcome], legs: Sequence[Leg], total: int) -> list[str]:
    """Transfers of money, each one transaction, as a reader of committed records found them. `total`: all there is."""
    violations: list[str] = []
    found: dict[str, list[Leg]] = defaultdict(list)
    for leg in legs:
        found[leg.transfer].append(leg)
    violations += _told(
        "committed and lost", [n for n, o in outcomes.items() if o is Outcome.COMMITTED and not found[n]]
    )
    violations += _told("given up and read", [n for n, o in outcomes.items() if o is Outcome.ABORTED and found[n]])
    torn = [(n, len(got), got[0].legs) for n, got in found.items() if got and len(got) < got[0].legs]
    violations += _told("read in part (name, read, whole)", torn)
    twice = [n for n, got in found.items() if len({leg.account for leg in got}) < len(got)]
    violations += _told("read more than once", twice)
    violations += _told("read and never made", [n for n, got in found.items() if got and n not in outcomes])
    balance = sum(leg.amount for leg in legs)
    return violations if balance == total else [*violations, f"the accounts hold {balance}, not {total}"]


def check_delivery(group: str, acked: Iterable[Value], delivered: set[Value]) -> list[str]:
    return _told(f"acknowledged and never delivered to {group}", [value for value in acked if value not in delivered])


def check_commits(group: str, observed: Sequence[tuple[int, int]], attempts: Sequence[Commit]) -> list[str]:
    """Committed offsets as somebody saw them (partition, offset), in order of seeing; a step back needs a reason.

    The one reason there is: a commit whose member gave up waiting may be carried out long after.
    """
    late = {(commit.partition, commit.offset) for commit in attempts if not commit.is_certain}
    tried = {(commit.partition, commit.offset) for commit in attempts}
    reached: dict[int, int] = {}
    backwards: list[tuple[int, int, int]] = []
    strange: list[tuple[int, int]] = []
    for partition, offset in observed:
        if offset < reached.get(partition, -1) and (partition, offset) not in late:
            backwards.append((partition, reached[partition], offset))
        if (partition, offset) not in tried and offset >= 0:
            strange.append((partition, offset))
        reached[partition] = offset
    return [
        *_told(f"committed offset of {group} went back (partition, from, to)", backwards),
        *_told(f"committed offset of {group} that nobody committed", strange),
    ]


def check_leaders(history: Sequence[Leadership]) -> list[str]:
    """Every state of every partition, in the order the store took them."""
    leaders: dict[tuple[str, int], set[int]] = defaultdict(set)
    newest: dict[str, Leadership] = {}
    backwards: list[tuple[Leadership, Leadership]] = []
    outside: list[Leadership] = []
    for state in history:
        if state.leader >= 0:
            leaders[state.partition, state.leader_epoch].add(state.leader)
            if state.leader not in state.isr:
                outside.append(state)
        former = newest.get(state.partition)
        if former is not None and (
            state.leader_epoch < former.leader_epoch or state.partition_epoch <= former.partition_epoch
        ):
            backwards.append((former, state))
        newest[state.partition] = state
    return [
        *_told("two leaders in one epoch", [(key, found) for key, found in leaders.items() if len(found) > 1]),
        *_told("epochs that did not grow", backwards),
        *_told("a leader outside its ISR", outside),
    ]


def check_replicas(partition: str, replicas: Mapping[int, Sequence[StoredBatch]], high_watermark: int) -> list[str]:
    """The files of all replicas hold the same bytes below the high watermark, from the highest start of them on."""
    start = max((batches[0].base_offset if batches else high_watermark for batches in replicas.values()), default=0)
    violations: list[str] = []
    contents = {
        node: [batch for batch in batches if start <= batch.base_offset < high_watermark]
        for node, batches in replicas.items()
    }
    for node, batches in contents.items():
        expected = start
        for batch in batches:
            if batch.base_offset != expected:
                violations.append(f"{partition} on {node}: from {expected} it goes on at {batch.base_offset}")
            expected = batch.last_offset + 1
        if expected < high_watermark:
            violations.append(f"{partition} on {node}: ends at {expected}, below the high watermark {high_watermark}")
    nodes = sorted(contents)
    for node in nodes[1:]:
        pairs = zip(contents[nodes[0]], contents[node], strict=False)
        unequal = [one.base_offset for one, other in pairs if one != other]
        violations += _told(f"{partition}: {nodes[0]} and {node} differ at offsets", unequal)
    return violations


def check_settled(ends: Mapping[str, tuple[int, int]]) -> list[str]:
    """(high watermark, last stable offset) of every partition, once every transaction has ended."""
    return _told("last stable offset below the high watermark", [(p, e) for p, e in ends.items() if e[0] != e[1]])


def check_logs(logs: Mapping[str, str]) -> list[str]:
    """The brokers' own logs: an exception nobody expected is printed with its stack."""
    violations: list[str] = []
    for name, text in logs.items():
        lines = text.splitlines()
        ends = Counter(_end_of(lines, at) for at, line in enumerate(lines) if line.startswith("Traceback"))
        violations += [f"{name}: {count} × {end}" for end, count in ends.most_common(SHOWN_MAX)]
    return violations


def _end_of(lines: Sequence[str], at: int) -> str:
    """The exception's own line, the first after the stack that is not indented."""
    return next((line for line in lines[at + 1 :] if line and not line.startswith(" ")), "an unfinished traceback")


def check_growth(name: str, before: int, after: int, allowed: int) -> list[str]:
    return [] if after - before <= allowed else [f"{name} grew from {before} to {after}, allowed were {allowed} more"]


def _told(what: str, cases: Sequence[object]) -> list[str]:
    if not cases:
        return []
    shown = ", ".join(str(case) for case in cases[:SHOWN_MAX])
    return [f"{len(cases)} {what}: {shown}{' …' if len(cases) > SHOWN_MAX else ''}"]
