"""How a pipeline stands: its checkpoints, its lag by the brokers' own account, and what its last run said.

Called by cli.pipeline. Needs no Spark and no Java. The checkpoint is the truth about what is done; the status file adds
rates and errors of a run that may be over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure
from penstock.spark.pipeline.checkpoints import Checkpoint, read_checkpoints
from penstock.spark.pipeline.paths import local_folder
from penstock.spark.pipeline.status_file import is_running, read_status


@dataclass(frozen=True)
class SinkStatus:
    """`lag_rows`: offsets between what is done and the end of its partitions; None where no broker was asked."""

    checkpoint: Checkpoint
    lag_rows: int | None
    ends: Mapping[TopicPartition, int]
    run: Mapping[str, Any] | None

    def as_json(self) -> dict[str, Any]:
        checkpoint = self.checkpoint
        return {
            "sink": checkpoint.sink,
            "query_id": checkpoint.query_id,
            "planned_batch": checkpoint.planned_batch,
            "done_batch": checkpoint.done_batch,
            "done_at_ms": checkpoint.done_at_ms,
            "lag_rows": self.lag_rows,
            "partitions": [
                {
                    "topic": at.topic,
                    "partition": at.partition,
                    "offset": offset,
                    "end": self.ends.get(at),
                    "lag_rows": max(0, self.ends[at] - offset) if at in self.ends else None,
                }
                for at, offset in sorted(checkpoint.offsets.items())
            ],
            "last_run": None if self.run is None else dict(self.run),
        }


@dataclass(frozen=True)
class PipelineStatus:
    folder: Path
    is_running: bool
    sinks: list[SinkStatus]
    # Why the lag is not known, where it is not.
    lag_problem: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "checkpoints": str(self.folder),
            "running": self.is_running,
            "lag_problem": self.lag_problem,
            "sinks": [sink.as_json() for sink in self.sinks],
        }


def status_of(checkpoint: str, kafka_options: Mapping[str, str] | None) -> PipelineStatus:
    """`kafka_options` as client settings (bootstrap.servers, security.protocol…); None asks nobody."""
    folder = local_folder(checkpoint)
    if folder is None:
        raise SparkFailure(f"{checkpoint} is not a local folder; copy it here to look at it")
    checkpoints = read_checkpoints(folder)
    if not checkpoints:
        raise SparkFailure(f"{folder} holds no checkpoint yet: has the pipeline been run?")
    said = {one["sink"]: one for one in (read_status(folder) or {}).get("sinks", []) if "sink" in one}
    wanted = {at for one in checkpoints for at in one.offsets}
    ends: dict[TopicPartition, int] = {}
    problem: str | None = None
    if kafka_options is not None and wanted:
        try:
            ends = _ends(kafka_options, wanted)
        except SparkFailure as fault:
            problem = str(fault)
    sinks = [SinkStatus(one, _lag(one, ends), ends, said.get(one.sink)) for one in checkpoints]
    return PipelineStatus(folder, is_running(folder), sinks, problem)


def _lag(checkpoint: Checkpoint, ends: Mapping[TopicPartition, int]) -> int | None:
    known = {at: offset for at, offset in checkpoint.offsets.items() if at in ends}
    return sum(max(0, ends[at] - offset) for at, offset in known.items()) if known else None


def _ends(kafka_options: Mapping[str, str], wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
    from penstock.spark.client_settings import connection_settings
    from penstock.spark.fetching import Cluster

    cluster = Cluster(connection_settings(kafka_options))
    try:
        # A topic that is gone has no end; the others still have theirs.
        facts = cluster.topics(sorted({at.topic for at in wanted}))
        there = {at: -1 for at in wanted if (fact := facts.get(at.topic)) is not None and at.partition in fact.leaders}
        found = cluster.list_offsets(there, "read_committed")
        return {at: offset for at, (offset, _) in found.items() if offset >= 0}
    finally:
        cluster.close()
