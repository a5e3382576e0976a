"""`penstock capacity`: storage, network, partitions and brokers for a load, and what limits.

Called by cli.app. Asks no cluster: it reckons with the measured numbers of this package, or with those of
`penstock bench --json` on one's own machines. Exit code 2 when what was asked makes no sense.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from penstock.admin.failures import ASKED_WRONGLY, CommandFailed
from penstock.capacity.amounts import parse_bytes, parse_bytes_per_s, parse_rate, render_amount
from penstock.capacity.measured import FILE_BYTES_MAX, Measured, of_this_package, with_bench, with_numbers
from penstock.capacity.plan import COPIES, Demand, Machines, Plan, plan
from penstock.cli.arguments import parse_duration_ms, parse_pairs
from penstock.cli.output import print_json, print_table, say

T = TypeVar("T")

RETENTION_MS_MAX = 100 * 365 * 86_400_000
GROWTH_MAX = 1000.0
YEARS_MAX = 20.0


def capacity(
    rate: Annotated[str, typer.Option("--rate", help="Messages, on average: 12000/s, 1e9/day.", show_default=False)],
    size: Annotated[str, typer.Option("--size", help="Bytes of a message, on average.")] = "1KB",
    retention: Annotated[str, typer.Option("--retention", help="How long messages are kept: 7d, 36h.")] = "7d",
    replication_factor: Annotated[int, typer.Option("--replication-factor", "-r", min=1, max=100)] = 3,
    groups: Annotated[
        int, typer.Option("--consumers", min=0, max=10_000, help="Consumer groups that each read everything.")
    ] = 1,
    peak: Annotated[float, typer.Option("--peak", min=1, max=1000, help="The busiest time against the average.")] = 2,
    compression: Annotated[
        float, typer.Option("--compression", min=0.5, max=1000, help="2 halves what is sent and kept.")
    ] = 1,
    growth: Annotated[float, typer.Option("--growth", min=-99, max=GROWTH_MAX, help="Percent a year.")] = 0,
    years: Annotated[float, typer.Option("--years", min=0, max=YEARS_MAX, help="Plan for then.")] = 1,
    batch_size: Annotated[str, typer.Option("--batch-size", help="Bytes of a producer's batch.")] = "16KiB",
    consumer_rate: Annotated[
        str, typer.Option("--consumer-rate", help="What one consumer works through in a second.")
    ] = "10MB",
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, max=10_000_000, help="At least so many, for other reasons.")
    ] = 1,
    connections: Annotated[int, typer.Option("--connections", min=0, max=10_000_000, help="To each broker.")] = 100,
    disk: Annotated[str, typer.Option("--disk", help="Of one broker.")] = "4TB",
    network: Annotated[str, typer.Option("--network", help="Of one broker, each way: 1Gbit, 125MB.")] = "1Gbit",
    restart: Annotated[
        float, typer.Option("--restart", min=1, max=86_400, help="Seconds a killed broker may take to come back.")
    ] = 10,
    spare: Annotated[
        int, typer.Option("--spare", min=0, max=1000, help="Brokers to lose, where there are copies.")
    ] = 1,
    measured: Annotated[
        list[Path] | None,
        typer.Option("--measured", metavar="FILE", help="What `penstock bench … --json` wrote; repeatable."),
    ] = None,
    number: Annotated[
        list[str] | None,
        typer.Option("--number", metavar="NAME=VALUE", help="One measured number of your own; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Storage, network, partitions and brokers for a load, and what limits them."""
    retention_ms = parse_duration_ms(retention)
    if not 0 < retention_ms <= RETENTION_MS_MAX:
        raise typer.BadParameter("--retention is above nothing and at most a hundred years")
    demand = Demand(
        messages_per_s=_read(parse_rate, rate),
        message_bytes=_read(parse_bytes, size),
        retention_s=retention_ms / 1000,
        replication_factor=replication_factor,
        groups=groups,
        peak=peak,
        compression=compression,
        growth_per_year=growth / 100,
        years=years,
        batch_bytes=_read(parse_bytes, batch_size),
        consumer_bytes_per_s=_read(parse_bytes_per_s, consumer_rate),
        partitions_min=partitions,
        connections=connections,
    )
    machines = Machines(_read(parse_bytes, disk), _read(parse_bytes_per_s, network), restart, spare)
    stands_on = _measured(measured or [], number or [])
    made = plan(demand, machines, stands_on.numbers)
    if as_json:
        _print_document(demand, machines, stands_on, made)
    else:
        _print_tables(stands_on, made)
    for doubt in stands_on.doubts:
        say(doubt)


def _read(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as fault:
        raise typer.BadParameter(str(fault)) from None


def _measured(files: list[Path], numbers: list[str]) -> Measured:
    found = of_this_package()
    for file in files:
        try:
            with file.open("rb") as stream:
                content = stream.read(FILE_BYTES_MAX + 1)
            if len(content) > FILE_BYTES_MAX:
                raise ValueError(f"{file} is larger than any result of a benchmark")
            found = with_bench(found, json.loads(content), str(file))
        except OSError as error:
            raise CommandFailed(f"{file}: {error.strerror}", "Check --measured.", ASKED_WRONGLY) from None
        except RecursionError:
            raise CommandFailed(f"{file} is no JSON of a benchmark", "Check --measured.", ASKED_WRONGLY) from None
        except ValueError as fault:
            what = (
                f"{file} is no JSON ({fault})" if isinstance(fault, json.JSONDecodeError | UnicodeError) else str(fault)
            )
            raise CommandFailed(what, "Write one with `penstock bench produce --json > FILE`.", ASKED_WRONGLY) from None
    if numbers:
        changes = parse_pairs(numbers)
        changed = _read(lambda _: with_numbers(found.numbers, changes), "")
        found = Measured(changed, f"{found.origin}; {', '.join(changes)} as given", found.doubts)
    return found


def _print_tables(stands_on: Measured, made: Plan) -> None:
    rows = [[one.name, render_amount(one.value, one.unit), one.how] for one in made.figures]
    print_table(["FIGURE", "VALUE", "HOW"], rows)
    typer.echo()
    print_table(["LIMIT", "BROKERS", "WHY"], [[need.limit, need.brokers, need.how] for need in made.needs])
    typer.echo()
    limits = "nothing limits but the copies" if made.limited_by == COPIES else f"what limits is {made.limited_by}"
    typer.echo(f"Brokers: {made.brokers:,}. Partitions: {made.partitions:,}. Of these machines {limits}.")
    typer.echo(f"Numbers of a broker: {stands_on.origin}.")


def _print_document(demand: Demand, machines: Machines, stands_on: Measured, made: Plan) -> None:
    print_json(
        {
            "brokers": made.brokers,
            "partitions": made.partitions,
            "limited_by": made.limited_by,
            "figures": [asdict(figure) for figure in made.figures],
            "limits": [asdict(need) for need in made.needs],
            "demand": asdict(demand),
            "machines": asdict(machines),
            "measured": {"origin": stands_on.origin, "numbers": asdict(stands_on.numbers)},
        }
    )
