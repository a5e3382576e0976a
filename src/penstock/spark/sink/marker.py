"""The marker: what a task leaves in the transaction of its rows, so that a replay knows them to be written.

Read and written by exactly_once.py through marker_log.py; where markers live is told by MarkerTopic.
Streaming queries may come back after a year, so their markers are compacted and stay: one record for each task number
that a query ever had. A batch write has a random id that no one asks for once the job is over, so its markers may go.
"""

import json
import logging
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.spark.sink.failures import MarkersUnusable, ReplayDiffers

if TYPE_CHECKING:
    from penstock.spark.options import OnReplayDiffers

log = logging.getLogger("penstock.spark")

# Fixed for ever: where a query's markers are must not depend on how many partitions an operator adds.
PARTITIONS = 8


class MarkerTopic(NamedTuple):
    name: str
    config: dict[str, str]

    @property
    def cleanup_policy(self) -> str:
        return self.config["cleanup.policy"]


# A new worker reads its partition to the end, so segments are small and soon compacted.
QUERY_MARKERS = MarkerTopic(
    "penstock-spark-batches",
    {
        "cleanup.policy": "compact",
        "segment.bytes": str(16 << 20),
        "segment.ms": str(60 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.2",
    },
)
WRITE_MARKERS = MarkerTopic(
    "penstock-spark-writes",
    {"cleanup.policy": "delete", "retention.ms": str(7 * 24 * 60 * 60 * 1000), "segment.bytes": str(16 << 20)},
)


@dataclass(frozen=True, slots=True)
class Marker:
    """`run` is the life of the query that wrote it: a restart brings another, a retried task does not."""

    query: str
    run: str
    batch: int
    task: int
    rows: int
    digest: str

    @property
    def key(self) -> bytes:
        return f"{self.query}/{self.task}".encode()

    @property
    def value(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True).encode()


def partition_of(query: str) -> int:
    """All markers of one query are in one partition."""
    return zlib.crc32(query.encode()) % PARTITIONS


def parse_marker(value: bytes) -> Marker:
    try:
        fields = json.loads(value)
        return Marker(
            query=str(fields["query"]),
            run=str(fields["run"]),
            batch=int(fields["batch"]),
            task=int(fields["task"]),
            rows=int(fields["rows"]),
            digest=str(fields["digest"]),
        )
    except (ValueError, KeyError, TypeError) as wrong:
        raise MarkersUnusable(
            f"{QUERY_MARKERS.name} holds a record that is no marker ({wrong}): somebody else writes there; "
            "nothing is written until it is removed"
        ) from None


def check_same(task: str, found: Marker, rows: int, digest: str, on_differs: "OnReplayDiffers" = "fail") -> None:
    """Rows that came again are those that the marker found of them counts, or ReplayDiffers.

    With `skip`, as many rows with other bytes do: a sum of doubles in another order. Another count never does, for
    then rows would be lost.
    """
    if (found.rows, found.digest) == (rows, digest):
        return
    which = f"{task} of batch {found.batch} of query {found.query}"
    if found.rows != rows:
        way_on = ""
    elif on_differs == "skip":
        log.warning("%s came again with %d rows that are not those written; the first ones stay", which, rows)
        return
    else:
        way_on = ", or with on.replay.differs=skip, which leaves the rows as they were written first"
    raise ReplayDiffers(
        f"{which} came again with {rows} rows that are not the {found.rows} written: the query's source or steps give "
        "other rows each time, or another number of tasks; restart with the settings it ran with, or with a new "
        f"checkpoint{way_on}"
    )
