"""Every option of the data source `penstock`, described once: name, kind, default, where it counts, what it means.

Read by options.py, which parses by it and refuses what it does not hold, and by whoever prints a table of options.
Names and meanings are those of Spark's own `kafka` source; those it lacks are marked `is_ours`. `kafka.*` is the
business of client_settings.py, `value.format` and its kin of penstock.spark.formats.
"""

from dataclasses import dataclass
from typing import Literal

Scope = Literal["batch", "stream", "write"]

READS: frozenset[Scope] = frozenset({"batch", "stream"})
BATCH: frozenset[Scope] = frozenset({"batch"})
STREAM: frozenset[Scope] = frozenset({"stream"})
WRITE: frozenset[Scope] = frozenset({"write"})
ALL: frozenset[Scope] = READS | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: str
    default: str
    scopes: frozenset[Scope]
    doc: str
    is_ours: bool = False
    # Accepted so that a job written for Spark's connector runs as it is, and without an effect.
    has_effect: bool = True


OPTIONS: tuple[Option, ...] = (
    Option(
        "kafka.bootstrap.servers",
        "host:port, …",
        "",
        ALL,
        "Where the cluster is found. Every other `kafka.*` option is a client setting, in Java's or librdkafka's "
        "spelling.",
    ),
    Option(
        "subscribe", "names", "", READS, "Topics, with commas. One of subscribe, subscribePattern, assign is needed."
    ),
    Option(
        "subscribePattern", "regex", "", READS, "Topics whose whole name matches; new ones are found while it runs."
    ),
    Option("assign", "JSON", "", READS, 'Partitions: {"orders":[0,1]}.'),
    Option(
        "startingOffsets",
        "earliest, latest, JSON",
        "latest; earliest for batch",
        READS,
        'Where a new query starts; JSON as {"orders":{"0":23,"1":-2}}, -2 the earliest, -1 the latest. A restarted '
        "query goes on from its checkpoint, and partitions found later start at their earliest offset.",
    ),
    Option("endingOffsets", "latest, JSON", "latest", BATCH, "Where a batch ends, exclusive."),
    Option(
        "startingTimestamp", "ms", "", READS, "Start at the first record as young as this. Wins over the two others."
    ),
    Option("endingTimestamp", "ms", "", BATCH, "End before the first record as young as this."),
    Option("startingOffsetsByTimestamp", "JSON", "", READS, "The same for each partition. Wins over startingOffsets."),
    Option("endingOffsetsByTimestamp", "JSON", "", BATCH, "The same for each partition. Wins over endingOffsets."),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error, latest",
        "error",
        READS,
        "What to do with a partition that has no record as young as asked for.",
    ),
    Option(
        "failOnDataLoss",
        "boolean",
        "true",
        READS,
        "Fail when records are gone that should have been read: removed by retention, their topic deleted or made "
        "anew. With false the query goes on behind the gap, and a warning says what is missing.",
    ),
    Option("minPartitions", "number", "", READS, "Split what is read into at least so many tasks."),
    Option("maxRecordsPerPartition", "number", "", READS, "Let no task read more offsets than this."),
    Option("maxOffsetsPerTrigger", "number", "", STREAM, "Read at most so many offsets a batch, shared out by lag."),
    Option("minOffsetsPerTrigger", "number", "", STREAM, "Wait for so many new offsets before a batch."),
    Option("maxTriggerDelay", "duration", "15m", STREAM, "Wait no longer than this for minOffsetsPerTrigger."),
    Option("includeHeaders", "boolean", "false", ALL, "A column `headers` with what the records carry."),
    Option(
        "isolation.level",
        "read_committed, read_uncommitted",
        "read_committed",
        READS,
        "Whether rows of open and aborted transactions are left out; also as `kafka.isolation.level`.",
        is_ours=True,
    ),
    Option(
        "fetchOffset.numRetries", "number", "3", READS, "How often offsets that look impossible are asked for again."
    ),
    Option("fetchOffset.retryIntervalMs", "ms", "10", READS, "The wait between two such questions."),
    Option(
        "kafkaConsumer.pollTimeoutMs", "ms", "120000", READS, "How long a task waits without progress before it fails."
    ),
    Option(
        "latestOffsetCacheMs",
        "ms",
        "200",
        STREAM,
        "How old the ends of partitions may be when an idle query looks for more.",
        is_ours=True,
    ),
    Option(
        "commit.group.id",
        "name, none",
        "spark-<query name>",
        STREAM,
        "The consumer group that shows the query's progress and lag; `none` for no group.",
        is_ours=True,
    ),
    Option(
        "queryName",
        "name",
        "",
        STREAM | WRITE,
        "The query's name where it should not be asked from Spark; names the group of its lag.",
        is_ours=True,
    ),
    Option("groupIdPrefix", "text", "", READS, "Here no group is joined to read.", has_effect=False),
    Option("topic", "name", "", WRITE, "Where rows go; wins over the column `topic`."),
    Option(
        "delivery",
        "exactly-once, at-least-once",
        "exactly-once",
        WRITE,
        "Whether each task writes in a transaction with a marker that a replayed batch is known by.",
        is_ours=True,
    ),
    Option(
        "transactional.id.prefix",
        "text",
        "penstock-spark",
        WRITE,
        "What the transactional ids of the tasks begin with.",
        is_ours=True,
    ),
    Option(
        "transaction.timeout.ms",
        "ms",
        "900000",
        WRITE,
        "How long a task may take; the brokers' transaction.max.timeout.ms must allow it.",
        is_ours=True,
    ),
    Option(
        "on.replay.differs",
        "fail, skip",
        "fail",
        WRITE,
        "A task that comes again with as many rows as are written, but other ones (a sum of doubles in another order): "
        "fail, or leave what is written and say so in the log. Another number of rows always fails.",
        is_ours=True,
    ),
    Option("checkpointLocation", "path", "", WRITE | STREAM, "Spark's own.", has_effect=False),
)

BY_LOWER_NAME: dict[str, Option] = {option.name.lower(): option for option in OPTIONS}
