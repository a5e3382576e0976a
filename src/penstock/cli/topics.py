"""`penstock topics`: list, describe, create, alter, delete, and cut records off.

Called by cli.app.
"""

from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster, admin_types
from penstock.admin.failures import CommandFailed, explain
from penstock.admin.offsets import (
    EARLIEST,
    LATEST,
    TopicPartitions,
    describe_log_dirs,
    describe_topics,
    expand,
    find_offsets,
)
from penstock.admin.text import render_size, safe_text
from penstock.cli.arguments import parse_moment_ms, parse_pairs, parse_topic_partitions
from penstock.cli.configs import change_configs, overridden_configs
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.model import TopicPartition

app = typer.Typer(no_args_is_help=True, help="List, describe, create, change and delete topics.")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command("list")
@with_cluster
def list_topics(
    cluster: Cluster,
    internal: Annotated[bool, typer.Option("--internal", help="Also those whose name starts with __.")] = False,
    size: Annotated[bool, typer.Option("--size", help="Also how many bytes they take on disk.")] = False,
) -> None:
    """Which topics there are."""
    topics = cluster.metadata().topics
    shown = sorted(name for name in topics if internal or not name.startswith("__"))
    sizes = _sizes_by_topic(cluster) if size else {}
    facts: list[dict[str, Any]] = []
    for name in shown:
        partitions = topics[name].partitions.values()
        fact: dict[str, Any] = {
            "topic": name,
            "partitions": len(partitions),
            "replication_factor": max((len(partition.replicas) for partition in partitions), default=0),
        }
        facts.append(fact | ({"size_bytes": sizes.get(name)} if size else {}))
    if cluster.as_json:
        print_json(facts)
        return
    columns = ["TOPIC", "PARTITIONS", "REPLICAS", *(["SIZE"] if size else [])]
    rows = [[fact["topic"], fact["partitions"], fact["replication_factor"]] for fact in facts]
    if size:
        rows = [[*row, render_size(fact["size_bytes"])] for row, fact in zip(rows, facts, strict=True)]
    if rows:
        print_table(columns, rows)
    else:
        say("There are no topics yet; `penstock topics create NAME` makes one.")


@app.command("describe")
@with_cluster
def describe(cluster: Cluster, names: Names) -> None:
    """Partitions with their leaders, offsets and sizes, and the settings that are the topic's own."""
    described = describe_topics(cluster, names)
    partitions = [TopicPartition(name, one.id) for name, topic in described.items() for one in topic.partitions]
    starts = find_offsets(cluster, partitions, EARLIEST)
    ends = find_offsets(cluster, partitions, LATEST)
    sizes: dict[TopicPartition, int] = {}
    for log_dir in describe_log_dirs(cluster):
        for at, size in log_dir.sizes.items():
            sizes[at] = max(size, sizes.get(at, 0))
    documents: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        topic = described[name]
        rows: list[dict[str, Any]] = []
        for one in topic.partitions:
            at = TopicPartition(name, one.id)
            rows.append(
                {
                    "partition": one.id,
                    "leader": one.leader.id if one.leader is not None else None,
                    "replicas": [node.id for node in one.replicas],
                    "in_sync_replicas": [node.id for node in one.isr],
                    "start_offset": starts[at].offset,
                    "end_offset": ends[at].offset,
                    "size_bytes": sizes.get(at),
                }
            )
        documents.append(
            {
                "topic": name,
                "topic_id": str(topic.topic_id),
                "internal": topic.is_internal,
                "configs": overridden_configs(cluster, "topic", name),
                "partitions": rows,
            }
        )
    if cluster.as_json:
        print_json(documents)
        return
    for document in documents:
        _print_topic(document)


def _print_topic(document: dict[str, Any]) -> None:
    typer.echo(f"Topic     {safe_text(document['topic'])}  (id {document['topic_id']})")
    configs = ", ".join(f"{name}={value}" for name, value in document["configs"].items())
    typer.echo(f"Settings  {safe_text(configs) or 'the defaults'}")
    rows = [
        [
            row["partition"],
            "none" if row["leader"] is None else str(row["leader"]),
            ",".join(map(str, row["replicas"])),
            ",".join(map(str, row["in_sync_replicas"])),
            row["start_offset"],
            row["end_offset"],
            render_size(row["size_bytes"]),
        ]
        for row in document["partitions"]
    ]
    print_table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "SIZE"], rows)
    typer.echo()


@app.command("create")
@with_cluster
def create(
    cluster: Cluster,
    names: Names,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="Default: the broker's.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="Default: the broker's.")
    ] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="Repeatable.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="All right if it is there already.")] = False,
    validate_only: Annotated[bool, typer.Option("--validate-only", help="Only ask whether it could be done.")] = False,
) -> None:
    """Make topics."""
    configs = parse_pairs(config or ())
    # -1 leaves the choice to the broker.
    counts = (partitions or -1, replication_factor or -1)
    asked = [admin_types().NewTopic(name, *counts, config=configs) for name in dict.fromkeys(names)]
    futures = cluster.ask(cluster.admin.create_topics, asked, validate_only=validate_only)
    outcomes: dict[str, str] = {}
    for name, future in futures.items():
        _, error = cluster.outcome(future)
        if error is None:
            outcomes[name] = "valid" if validate_only else "created"
        elif if_not_exists and error.name() == "TOPIC_ALREADY_EXISTS":
            outcomes[name] = "exists"
        else:
            _report(cluster, outcomes)
            raise explain(error, f"creating topic {name}")
    _report(cluster, outcomes)


@app.command("alter")
@with_cluster
def alter(
    cluster: Cluster,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="The new number.")] = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="NAME=VALUE", help="Repeatable.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the default.")] = None,
) -> None:
    """Add partitions, change settings."""
    if partitions is None and not config and not unset:
        raise typer.BadParameter("nothing to change; give --partitions, --config or --unset")
    if partitions is not None:
        asked = admin_types().NewPartitions(name, partitions)
        futures = cluster.ask(cluster.admin.create_partitions, [asked])
        cluster.result(futures[name], f"adding partitions to {name}")
    if config or unset:
        change_configs(cluster, "topic", name, parse_pairs(config or ()), unset or ())
    _report(cluster, {name: "changed"})


@app.command("delete")
@with_cluster
def delete(
    cluster: Cluster,
    names: Names,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="All right if it is not there.")] = False,
) -> None:
    """Delete topics and everything in them."""
    _confirm(yes, f"Delete {', '.join(map(safe_text, names))} with all their messages?")
    futures = cluster.ask(cluster.admin.delete_topics, list(dict.fromkeys(names)))
    outcomes: dict[str, str] = {}
    for name, future in futures.items():
        _, error = cluster.outcome(future)
        if error is None:
            outcomes[name] = "deleted"
        elif if_exists and error.name() == "UNKNOWN_TOPIC_OR_PART":
            outcomes[name] = "absent"
        else:
            _report(cluster, outcomes)
            raise explain(error, f"deleting topic {name}")
    _report(cluster, outcomes)


@app.command("delete-records")
@with_cluster
def delete_records(
    cluster: Cluster,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC[:PARTITION,...]", show_default=False)],
    before_offset: Annotated[int | None, typer.Option("--before-offset", min=0, help="Those below it.")] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Those older than a date and time, or than ms.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that are there now.")] = False,
    yes: Yes = False,
) -> None:
    """Delete the oldest records of partitions; offsets of the others stay as they are."""
    from confluent_kafka import OFFSET_END
    from confluent_kafka import TopicPartition as Cut

    if [before_offset is not None, before is not None, everything].count(True) != 1:
        raise typer.BadParameter("give one of --before-offset, --before and --all")
    moment_ms = parse_moment_ms(before) if before is not None else None
    chosen: list[TopicPartitions] = [parse_topic_partitions(topic) for topic in topics]
    partitions = expand(cluster, chosen)
    _confirm(yes, f"Delete records of {len(partitions)} partitions?")
    if moment_ms is not None:
        found = {at: one.offset for at, one in find_offsets(cluster, partitions, moment_ms).items()}
        cuts = {at: _or(found[at], OFFSET_END) for at in partitions}
    else:
        cuts = dict.fromkeys(partitions, _or(before_offset, OFFSET_END))
    futures = cluster.ask(
        cluster.admin.delete_records, [Cut(at.topic, at.partition, offset) for at, offset in cuts.items()]
    )
    rows: list[dict[str, Any]] = []
    failure: CommandFailed | None = None
    for asked, future in futures.items():
        done, error = cluster.outcome(future)
        if done is None:
            failure = failure or explain(error, f"deleting records of {asked.topic}-{asked.partition}")
        else:
            rows.append({"topic": asked.topic, "partition": asked.partition, "start_offset": done.low_watermark})
    if cluster.as_json:
        print_json(rows)
    elif rows:
        print_table(["TOPIC", "PARTITION", "NOW STARTS AT"], [list(row.values()) for row in rows])
    if failure is not None:
        raise failure


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset


def _sizes_by_topic(cluster: Cluster) -> dict[str, int]:
    """Over all brokers: what the topic takes on disk, replicas included."""
    sizes: dict[str, int] = {}
    for log_dir in describe_log_dirs(cluster):
        for at, size in log_dir.sizes.items():
            sizes[at.topic] = sizes.get(at.topic, 0) + size
    return sizes


def _confirm(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _report(cluster: Cluster, outcomes: dict[str, str]) -> None:
    if cluster.as_json:
        print_json([{"topic": name, "outcome": outcome} for name, outcome in outcomes.items()])
        return
    for name, outcome in outcomes.items():
        typer.echo(f"{safe_text(name)}: {outcome}")
