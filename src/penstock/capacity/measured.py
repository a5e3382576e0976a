"""What a broker gives and takes: the numbers a plan stands on, from this package or from somebody's own machine.

Called by cli.capacity. The package's are in measured.json with the day, the commit and the machine they were taken on;
`--measured` puts the result of `penstock bench --json` in their place, `--number` a single one.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from typing import Any, cast

# A result of a benchmark takes less than two kilobytes.
FILE_BYTES_MAX = 1_000_000
# Of any of the numbers: what lies outside was mistyped, and would make a plan of nothing or of infinities.
NUMBER_MIN, NUMBER_MAX = 1e-12, 1e18


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of one broker. All are above zero."""

    # What it takes from producers when its partitions have no other copy, and with copies, those it keeps included.
    write_bytes_per_s: float
    write_bytes_per_s_replicated: float
    # What it gives to consumers.
    read_bytes_per_s: float
    # Processor time for a gigabyte: taken without copies; taken and copied, of all brokers together; given.
    write_cpu_s_per_gb: float
    replicated_cpu_s_per_gb: float
    replicated_copies: float
    read_cpu_s_per_gb: float
    # Processor time for a request however small; the same with its fsync.
    request_cpu_us: float
    synced_request_cpu_us: float
    start_s: float
    start_after_kill_s_per_partition: float
    idle_bytes: float
    bytes_per_partition: float
    bytes_per_connection: float


NAMES = tuple(field.name for field in fields(Numbers))


@dataclass(frozen=True, slots=True)
class Measured:
    numbers: Numbers
    # Where they are from, for whoever doubts them.
    origin: str
    # What to know before relying on them.
    doubts: tuple[str, ...] = ()


def of_this_package() -> Measured:
    document = json.loads(resources.files("penstock.capacity").joinpath("measured.json").read_text())
    days = sorted({source["at"][:10] for source in document["sources"]})
    commits = ", ".join(source["commit"] for source in document["sources"])
    machine = document["machine"]
    where = f"on {machine['cores']} cores, shared with {machine['shared_with']}"
    origin = f"measured on {' and '.join(days)} ({commits}) {where}"
    return Measured(with_numbers(None, document["numbers"]), origin)


def with_numbers(numbers: Numbers | None, changes: Mapping[str, Any]) -> Numbers:
    """The numbers with some of them changed, or all of them anew; a ValueError says which is not one of ours."""
    checked: dict[str, float] = {}
    for name, value in changes.items():
        if name not in NAMES:
            raise ValueError(f"{name!r} is none of the numbers; they are {', '.join(NAMES)}")
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not NUMBER_MIN <= number <= NUMBER_MAX:
            raise ValueError(f"{name} has to be a number from {NUMBER_MIN:g} to {NUMBER_MAX:g}, not {value!r}")
        checked[name] = number
    return replace(numbers, **checked) if numbers is not None else Numbers(**checked)


def with_bench(measured: Measured, document: Any, name: str) -> Measured:
    """With what `penstock bench produce` or `consume` measured; a ValueError says what is wrong with the document."""
    found = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    kind = found.get("benchmark")
    if kind not in ("produce", "consume"):
        raise ValueError(f"{name} is no result of `penstock bench produce --json` or `penstock bench consume --json`")
    rate, brokers, partitions, copies = (
        _positive(found, key, name) for key in ("bytes_per_s", "brokers", "partitions", "replication_factor")
    )
    doubts = list(measured.doubts)
    if found.get("client_limited"):
        doubts.append(f"In {name} the client was the limit: the brokers may do more than this plan counts on.")
    if kind == "consume":
        # Partitions are read where they are led.
        changes = {"read_bytes_per_s": rate / min(brokers, partitions)}
    else:
        busy = min(brokers, partitions * copies)
        changes = {"write_bytes_per_s" if copies == 1 else "write_bytes_per_s_replicated": rate * copies / busy}
    return Measured(with_numbers(measured.numbers, changes), f"{measured.origin}; {kind} as in {name}", tuple(doubts))


def _positive(found: Mapping[str, Any], key: str, name: str) -> float:
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} has no {key} above zero: let the benchmark run until it has measured something")
    return float(value)
