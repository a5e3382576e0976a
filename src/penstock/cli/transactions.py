"""`penstock transactions`: list and describe them as coordinators know them; find and abort those that hang.

Called by cli.app. What is asked is in transaction_views.py; when a transaction counts as hanging, in hanging.py.
"""

from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.hanging import HeldTransaction, Standing, abort_command, choose_hanging, look_at, name_of
from penstock.admin.offsets import expand
from penstock.admin.text import render_moment, safe_text
from penstock.admin.transaction_views import (
    STATES,
    ListedTransaction,
    TransactionView,
    describe_transactions,
    is_open,
    led_partitions,
    list_transactions,
    open_transactions,
    write_abort,
)
from penstock.cli.arguments import parse_topic_partitions
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.clock import SystemClock
from penstock.model import TopicPartition

app = typer.Typer(no_args_is_help=True, help="List and describe transactions; find and abort those that hang.")

_WHAT = "transactions"


@app.command("list")
@with_cluster
def list_all(
    cluster: Cluster,
    states: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help=f"Repeatable: {', '.join(STATES)}.")
    ] = None,
    producer_ids: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", min=0, help="Repeatable.")
    ] = None,
    duration_ms: Annotated[
        int | None, typer.Option("--duration-ms", min=0, help="Only those open for longer than this.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="A regular expression that the whole transactional id matches.")
    ] = None,
) -> None:
    """Every transactional id, its producer and its state; since when, for those that are open."""
    wanted = [_state_named(text) for text in states or ()]
    cluster.require_plaintext(_WHAT)
    listed = list_transactions(
        cluster, states=wanted, producer_ids=producer_ids or (), longer_than_ms=duration_ms, pattern=pattern
    )
    if duration_ms is not None:
        # Kafka's filter goes by when the last transaction began, and so passes ids that have none open.
        listed = [one for one in listed if is_open(one.state)]
    opened = [one.transactional_id for one in listed if is_open(one.state)]
    views = {view.transactional_id: view for view in describe_transactions(cluster, opened)}
    if cluster.as_json:
        print_json([_listed_document(one, views.get(one.transactional_id)) for one in listed])
    elif listed:
        rows = [
            [
                one.transactional_id,
                one.producer_id,
                one.state,
                one.coordinator,
                *_times(views.get(one.transactional_id)),
            ]
            for one in listed
        ]
        print_table(["TRANSACTIONAL ID", "PRODUCER", "STATE", "COORDINATOR", "OPEN SINCE", "AGE"], rows)
    else:
        say("There are none.")


@app.command("describe")
@with_cluster
def describe(
    cluster: Cluster,
    names: Annotated[list[str], typer.Argument(metavar="TRANSACTIONAL_ID", show_default=False)],
) -> None:
    """Producer, epoch, state, time-out, and the partitions written in the open transaction."""
    cluster.require_plaintext(_WHAT)
    wanted = list(dict.fromkeys(names))
    views = describe_transactions(cluster, wanted)
    if cluster.as_json:
        print_json([_document(view) for view in views])
    else:
        for view in views:
            _print_view(view)
    missing = [name for name in wanted if name not in {view.transactional_id for view in views}]
    if missing:
        raise CommandFailed(
            f"no coordinator knows transactional id {safe_text(missing[0])}",
            "`penstock transactions list` shows which there are; one that nobody uses for a week is forgotten.",
        )


@app.command("find-hanging")
@with_cluster
def find_hanging(
    cluster: Cluster,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC[:PARTITION,…]", help="Only here; else everywhere.")
    ] = None,
) -> None:
    """Transactions that a partition holds open and that no coordinator will ever end."""
    chosen = None if topic is None else parse_topic_partitions(topic)
    cluster.require_plaintext(_WHAT)
    partitions = led_partitions(cluster) if chosen is None else expand(cluster, [chosen])
    hanging = [one for one in look_at(cluster, partitions) if one.standing is Standing.HANGING]
    if cluster.as_json:
        print_json([_held_document(one) for one in hanging])
    elif hanging:
        rows = [
            [
                one.open.at.topic,
                one.open.at.partition,
                one.open.start_offset,
                one.open.producer_id,
                one.open.producer_epoch,
                render_moment(one.open.last_write_ms),
                one.coordinated.transactional_id if one.coordinated else None,
            ]
            for one in hanging
        ]
        columns = ["TOPIC", "PARTITION", "START", "PRODUCER", "EPOCH", "LAST WRITE", "TRANSACTIONAL ID"]
        print_table(columns, rows)
        say(f"To end one: {abort_command(hanging[0])}")
    else:
        say("There are none.")


@app.command("abort-hanging")
@with_cluster
def abort_hanging(
    cluster: Cluster,
    topic: Annotated[str, typer.Option("--topic", "-t", show_default=False)],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, show_default=False)],
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="The transaction that begins at this offset.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, help="The transaction of this producer.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Abort a transaction that no coordinator knows of any more, so that readers of committed data go on."""
    if start_offset is not None and producer_id is not None:
        raise typer.BadParameter("give --start-offset or --producer-id, not both")
    cluster.require_plaintext(_WHAT)
    at = TopicPartition(topic, partition)
    chosen = choose_hanging(look_at(cluster, [at]), at, start_offset, producer_id)
    if not yes:
        typer.confirm(f"Abort {name_of(chosen)}? Readers of committed data will never see it.", abort=True, err=True)
        # Whoever was asked may have taken his time.
        chosen = choose_hanging(look_at(cluster, [at]), at, chosen.open.start_offset, None)
    write_abort(cluster, chosen.open)
    if any(one.producer_id == chosen.open.producer_id for one in open_transactions(cluster, [at])):
        raise CommandFailed(
            f"{at} took the marker, but producer {chosen.open.producer_id} has a transaction open there again",
            "Stop that producer: it writes without its coordinator's knowledge.",
        )
    if cluster.as_json:
        print_json({**_held_document(chosen), "outcome": "aborted"})
    else:
        typer.echo(f"{name_of(chosen)}: aborted")


def _state_named(text: str) -> str:
    for state in STATES:
        if state.lower() == text.replace("-", "").replace("_", "").lower():
            return state
    raise typer.BadParameter(f"there is no state {text!r}; the states are {', '.join(STATES)}")


def _times(view: TransactionView | None) -> tuple[str | None, str | None]:
    if view is None or view.since_ms is None:
        return None, None
    return render_moment(view.since_ms), f"{max(0, SystemClock().now_ms() - view.since_ms) / 1000:.1f} s"


def _listed_document(one: ListedTransaction, view: TransactionView | None) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "producer_id": one.producer_id,
        "state": one.state,
        "coordinator": one.coordinator,
        "since_ms": view.since_ms if view else None,
    }


def _document(view: TransactionView) -> dict[str, Any]:
    return {
        "transactional_id": view.transactional_id,
        "coordinator": view.coordinator,
        "producer_id": view.producer_id,
        "producer_epoch": view.producer_epoch,
        "state": view.state,
        "timeout_ms": view.timeout_ms,
        "since_ms": view.since_ms,
        "partitions": [{"topic": at.topic, "partition": at.partition} for at in sorted(view.partitions)],
    }


def _held_document(held: HeldTransaction) -> dict[str, Any]:
    one = held.open
    return {
        "topic": one.at.topic,
        "partition": one.at.partition,
        "start_offset": one.start_offset,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "coordinator_epoch": one.coordinator_epoch,
        "last_write_ms": one.last_write_ms,
        "transactional_id": held.coordinated.transactional_id if held.coordinated else None,
    }


def _print_view(view: TransactionView) -> None:
    since, age = _times(view)
    typer.echo(f"Transactional id  {safe_text(view.transactional_id)}")
    typer.echo(f"State             {view.state}" + (f" since {since} ({age})" if since else ""))
    typer.echo(f"Producer          {view.producer_id}, epoch {view.producer_epoch}")
    typer.echo(f"Time-out          {view.timeout_ms} ms")
    typer.echo(f"Coordinator       broker {view.coordinator}")
    if view.partitions:
        typer.echo(f"Partitions        {', '.join(map(str, sorted(view.partitions)))}")
    typer.echo()
