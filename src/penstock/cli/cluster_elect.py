"""`penstock cluster elect`: leadership back to the preferred brokers, or, where nobody in sync is left, to anybody.

Called by cli.cluster_app; cli.cluster_moves uses elect_preferred.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed, explain
from penstock.admin.offsets import expand
from penstock.cli.arguments import parse_topic_partitions
from penstock.cli.options import with_cluster
from penstock.cli.output import print_json, print_table, say
from penstock.model import TopicPartition

NOT_NEEDED = "ELECTION_NOT_NEEDED"


@with_cluster
def elect(
    cluster: Cluster,
    chosen: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC|TOPIC:0,1…]", show_default=False, help="Default: all partitions."),
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Where nobody in sync is left: any replica. Loses acknowledged messages.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let the preferred replicas lead again; with --unclean, bring back partitions that have no leader."""
    partitions = expand(cluster, map(parse_topic_partitions, chosen)) if chosen else None
    if unclean and partitions is None:
        raise typer.BadParameter("name the topics: an unclean election loses messages, so it is not for all of them")
    if unclean and not yes:
        question = "Messages that were acknowledged may be lost for good. Elect a leader that is not in sync?"
        typer.confirm(question, abort=True, err=True)
    outcomes = _elect(cluster, partitions, is_unclean=unclean)
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "elected": error is None,
            "error": None if error is None else error.str(),
        }
        for at, error in sorted(outcomes.items())
        if error is None or error.name() != NOT_NEEDED
    ]
    if cluster.as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["PARTITION", "OUTCOME"],
            [[f"{row['topic']}-{row['partition']}", row["error"] or "elected"] for row in rows],
        )
    else:
        say("No election was needed.")
    failed = sum(not row["elected"] for row in rows)
    if failed:
        raise CommandFailed(
            f"{failed} partitions did not get the leader that was asked for",
            "`penstock cluster status` shows who is in sync and who is not there.",
        )


def elect_preferred(cluster: Cluster) -> int:
    """Everywhere; gives how many leaders changed. A preferred replica that cannot lead now is passed over."""
    return sum(error is None for error in _elect(cluster, None, is_unclean=False).values())


def _elect(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, is_unclean: bool
) -> dict[TopicPartition, Any]:
    from confluent_kafka import ElectionType, KafkaError, KafkaException
    from confluent_kafka import TopicPartition as Asked

    kind = ElectionType.UNCLEAN if is_unclean else ElectionType.PREFERRED
    asked = None if partitions is None else [Asked(at.topic, at.partition) for at in partitions]
    try:
        # Without a deadline of its own: confluent-kafka 2.16 fails on the options that its documentation names.
        future = cluster.admin.elect_leaders(kind, asked)
    except KafkaException as error:
        raise explain(error, "the request was refused here") from None
    answer: Any = cluster.result(future, "electing leaders")
    found: dict[TopicPartition, Any] = {}
    for at, error in answer.items():
        # librdkafka says "no error" in one of two ways.
        failure = error.args[0] if isinstance(error, Exception) else error
        is_fine = failure is None or failure.code() == KafkaError.NO_ERROR
        found[TopicPartition(at.topic, at.partition)] = None if is_fine else failure
    return found
