"""`penstock cluster reassign`: plans of where replicas should be, made, carried out, watched and taken back.

Called by cli.cluster_app. Plans are files in the format of Kafka's own kafka-reassign-partitions, which reads ours and
whose plans are read here:

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
"""

import json
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import ClusterView, view_cluster
from penstock.admin.failures import ASKED_WRONGLY, FAILED, CommandFailed
from penstock.admin.placing import Assignment, Replicas, balance, changes, copies
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.cli.reassigning import begin, throttle, unthrottle, wait_until_moved
from penstock.model import TopicPartition

app = typer.Typer(no_args_is_help=True, help="Move replicas from broker to broker by a plan.")

PLAN_VERSION = 1
NOT_AS_PLANNED = "not as planned"
NEWS_TRAVEL_S = 0.5

PlanArgument = Annotated[
    Path, typer.Argument(metavar="PLAN", show_default=False, help="A plan's JSON file; - is stdin.")
]
Throttle = Annotated[
    int | None, typer.Option("--throttle", min=1, metavar="BYTES", help="Bytes a second each broker may copy.")
]


@app.command("generate")
@with_cluster
def generate(
    cluster: Cluster,
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", metavar="ID,ID…", help="Who is to hold them. Default: all that are there."),
    ] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Repeatable. Default: all topics.")] = None,
    topics_file: Annotated[
        Path | None, typer.Option("--topics-file", help='As {"version": 1, "topics": [{"topic": "orders"}]}.')
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the proposed plan here.")] = None,
) -> None:
    """Propose where replicas should be: even, over racks, with few moves. Changes nothing."""
    view = view_cluster(cluster)
    topics = [*(topic or ()), *(_read_topics(topics_file) if topics_file is not None else ())]
    _require_topics(view, topics)
    current = view.assignment(topics or None)
    chosen = {node: view.require_broker(node).rack for node in (_parse_brokers(brokers) if brokers else view.brokers)}
    proposed = balance(current, chosen)
    if out is not None:
        out.write_text(json.dumps(plan_document(proposed), indent=2) + "\n")
    if cluster.as_json:
        print_json({"current": plan_document(current), "proposed": plan_document(proposed)})
        return
    typer.echo("Current partition replica assignment")
    typer.echo(json.dumps(plan_document(current)))
    typer.echo("\nProposed partition reassignment configuration")
    typer.echo(json.dumps(plan_document(proposed)))
    changed, moved = len(changes(current, proposed)), copies(current, proposed)
    say(f"{changed} of {len(current)} partitions change, {moved} replicas move.")


@app.command("execute")
@with_cluster
def execute(
    cluster: Cluster,
    plan: PlanArgument,
    throttle_bytes_s: Throttle = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all is moved; then take the throttle away.")] = False,
    additional: Annotated[bool, typer.Option("--additional", help="Although other moves are under way.")] = False,
    save: Annotated[Path | None, typer.Option("--save-current", help="Write how it was, to go back to, here.")] = None,
) -> None:
    """Carry out a plan. Replicas are removed only when those that replace them are in sync."""
    targets = read_plan(plan)
    view = view_cluster(cluster)
    _require_partitions(view, targets)
    under_way = [at for at, partition in view.partitions.items() if partition.move is not None]
    if under_way and not additional:
        raise CommandFailed(
            f"{len(under_way)} partitions are being moved already",
            "Wait for them (`penstock cluster reassign verify`), or use --additional to move more at the same time.",
        )
    current = {at: view.partitions[at].target for at in targets}
    if save is not None:
        save.write_text(json.dumps(plan_document(current), indent=2) + "\n")
    wanted = changes(current, targets)
    if throttle_bytes_s is not None:
        throttle(cluster, view, targets, throttle_bytes_s)
    begin(cluster, view, dict(wanted))
    if wait:
        wait_until_moved(cluster, view, targets, None)
        if throttle_bytes_s is not None:
            unthrottle(cluster, view, (at.topic for at in targets))
    if cluster.as_json:
        print_json({"moved" if wait else "begun": len(wanted), "current": plan_document(current)})
        return
    typer.echo(f"{len(wanted)} partitions {'were' if wait else 'are being'} moved, {copies(current, wanted)} replicas.")
    if save is None:
        say("How it was, to go back to:")
        say(json.dumps(plan_document(current)))
    if not wait:
        say("`penstock cluster reassign verify PLAN` tells when it is done, and takes a throttle away then.")


@app.command("verify")
@with_cluster
def verify(
    cluster: Cluster,
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", show_default=False, help="Default: all that is under way.")
    ] = None,
    keep_throttle: Annotated[bool, typer.Option("--preserve-throttles", help="Leave the throttle as it is.")] = False,
) -> None:
    """How far a plan is; takes its throttle away once it is done. Exit code 1 as long as it is not."""
    cluster.require_plaintext("asking for moves that are under way")
    view = view_cluster(cluster)
    if plan is None:
        targets: Assignment = {at: one.target for at, one in view.partitions.items() if one.move is not None}
    else:
        targets = read_plan(plan)
        _require_partitions(view, targets)
    states = _states(view, targets)
    if NOT_AS_PLANNED in states.values():
        # Brokers hear of a move's end one after another, and two of them were asked.
        time.sleep(NEWS_TRAVEL_S)
        view = view_cluster(cluster)
        _require_partitions(view, targets)
        states = _states(view, targets)
    is_done = all(state == "done" for state in states.values())
    is_unthrottled = False
    if not any(state == "moving" for state in states.values()) and not keep_throttle:
        topics = {at.topic for at in (view.partitions if plan is None else targets)}
        is_unthrottled = unthrottle(cluster, view, topics)
    if cluster.as_json:
        rows = [
            {"topic": at.topic, "partition": at.partition, "state": state, "replicas": view.partitions[at].replicas}
            for at, state in states.items()
        ]
        print_json({"done": is_done, "throttle_removed": is_unthrottled, "partitions": rows})
    else:
        rows = [
            [str(at), state, _names(view.partitions[at].replicas), _names(targets[at])] for at, state in states.items()
        ]
        if rows:
            print_table(["PARTITION", "STATE", "REPLICAS", "PLANNED"], rows)
        else:
            say("Nothing is being moved.")
        if is_unthrottled:
            say("The throttle is taken away.")
    if not is_done:
        raise typer.Exit(FAILED)


@app.command("cancel")
@with_cluster
def cancel(
    cluster: Cluster,
    plan: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", show_default=False, help="Default: all that is under way.")
    ] = None,
    keep_throttle: Annotated[bool, typer.Option("--preserve-throttles", help="Leave the throttle as it is.")] = False,
) -> None:
    """Take back what has not been moved yet: those partitions stay where they were."""
    view = view_cluster(cluster)
    chosen = view.partitions if plan is None else read_plan(plan)
    _require_partitions(view, chosen)
    moving = [at for at in chosen if view.partitions[at].move is not None]
    begin(cluster, view, dict.fromkeys(moving))
    if not keep_throttle:
        unthrottle(cluster, view, {at.topic for at in chosen})
    if cluster.as_json:
        print_json({"cancelled": [{"topic": at.topic, "partition": at.partition} for at in moving]})
    else:
        typer.echo(f"{len(moving)} moves were taken back.")


def plan_document(assignment: Assignment) -> dict[str, Any]:
    return {
        "version": PLAN_VERSION,
        "partitions": [
            {"topic": at.topic, "partition": at.partition, "replicas": list(replicas)}
            for at, replicas in sorted(assignment.items())
        ],
    }


def read_plan(path: Path) -> dict[TopicPartition, Replicas]:
    """The failure says what is wrong with the file, and where in it."""
    plan: dict[TopicPartition, Replicas] = {}
    for number, entry in enumerate(_entries(path, "partitions"), 1):
        topic, index, replicas = entry.get("topic"), entry.get("partition"), entry.get("replicas")
        if not isinstance(topic, str) or not _is_number(index) or not isinstance(replicas, list):
            raise _bad_plan(path, f"entry {number} needs a topic, a partition and a list of replicas")
        nodes = cast(list[object], replicas)
        if not nodes or not all(map(_is_number, nodes)) or len(set(nodes)) != len(nodes):
            raise _bad_plan(path, f"the replicas of {topic}-{index} must be one broker's id or more, each once")
        at = TopicPartition(topic, cast(int, index))
        if at in plan:
            raise _bad_plan(path, f"{at} is planned twice")
        plan[at] = tuple(cast(list[int], nodes))
    if not plan:
        raise _bad_plan(path, "it plans nothing")
    return plan


def _read_topics(path: Path) -> list[str]:
    names = [entry.get("topic") for entry in _entries(path, "topics")]
    if not all(isinstance(name, str) for name in names):
        raise _bad_plan(path, "each of its topics needs a name, as topic")
    return cast(list[str], names)


def _entries(path: Path, name: str) -> list[dict[str, object]]:
    try:
        text = typer.get_text_stream("stdin").read() if str(path) == "-" else path.read_text("utf-8")
        document: Any = json.loads(text)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}", "", ASKED_WRONGLY) from None
    except ValueError as error:
        raise _bad_plan(path, f"it is not JSON: {error}") from None
    entries: Any = cast(dict[str, Any], document).get(name) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in cast(list[object], entries)):
        raise _bad_plan(path, f"it has no list of {name}")
    if cast(dict[str, Any], document).get("version", PLAN_VERSION) != PLAN_VERSION:
        raise _bad_plan(path, f"only version {PLAN_VERSION} is known")
    return cast(list[dict[str, object]], entries)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _bad_plan(path: Path, why: str) -> CommandFailed:
    advice = "`penstock cluster reassign generate --out PLAN` writes one as an example."
    return CommandFailed(f"{path}: {why}", advice, ASKED_WRONGLY)


def _parse_brokers(text: str) -> list[int]:
    numbers = [part.strip() for part in text.split(",") if part.strip()]
    if not numbers or not all(number.isdigit() for number in numbers):
        raise typer.BadParameter(f"{text!r} is no list of broker ids, as 1,2,3")
    return sorted({int(number) for number in numbers})


def _require_topics(view: ClusterView, topics: list[str]) -> None:
    there = {at.topic for at in view.partitions}
    for name in topics:
        if name not in there:
            raise CommandFailed(f"there is no topic {name}", "`penstock topics list` shows which there are.")


def _require_partitions(view: ClusterView, plan: Any) -> None:
    for at in plan:
        if at not in view.partitions:
            raise CommandFailed(f"there is no partition {at}", "`penstock topics describe` shows what a topic has.")


def _states(view: ClusterView, targets: Assignment) -> dict[TopicPartition, str]:
    return {at: _state(view, at, replicas) for at, replicas in sorted(targets.items())}


def _state(view: ClusterView, at: TopicPartition, replicas: Replicas) -> str:
    partition = view.partitions[at]
    if partition.move is not None:
        return "moving"
    return "done" if partition.replicas == replicas else NOT_AS_PLANNED


def _names(nodes: Replicas) -> str:
    return ",".join(map(str, nodes))
