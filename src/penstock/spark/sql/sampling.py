"""A few records of a topic, old and new ones, for looking at; no Spark.

Called by sql.views. It reads the beginning and the end of some partitions: what a topic holds may have changed over
time, and the ends are what a log gives cheaply.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.model import TopicPartition
from penstock.spark.sql.ranges import Isolation, Span

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster, TopicFacts

PARTITIONS_MAX = 8
ROWS_EACH = 100
_FETCH_BYTES = 1 << 20


class Sample(NamedTuple):
    keys: list[bytes | None]
    values: list[bytes | None]


def sample(
    cluster: "Cluster", facts: "TopicFacts", spans: Mapping[TopicPartition, Span], isolation: Isolation
) -> Sample:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    filled = sorted((at for at, span in spans.items() if span.rows), key=lambda at: (-spans[at].rows, at))
    for at in filled[:PARTITIONS_MAX]:
        for span in ends_of(spans[at]):
            found = _read(cluster, at, facts, span, isolation)
            keys += found.keys
            values += found.values
    return Sample(keys, values)


def ends_of(span: Span) -> list[Span]:
    """The first and the last rows, or all of them where there are few."""
    if span.rows <= 2 * ROWS_EACH:
        return [span]
    return [Span(span.start, span.start + ROWS_EACH), Span(span.end - ROWS_EACH, span.end)]


def _read(cluster: "Cluster", at: TopicPartition, facts: "TopicFacts", span: Span, isolation: Isolation) -> Sample:
    from penstock.spark.arrow import ArrowDecoder
    from penstock.spark.fetching import PartitionFetcher

    fetcher = PartitionFetcher(cluster, at, facts.topic_id, span.start, span.end, isolation, max_bytes=_FETCH_BYTES)
    decoder = ArrowDecoder(at.topic, at.partition, span.start, span.end, isolation, has_headers=False)
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    try:
        for chunk in fetcher:
            for batch in decoder.feed(chunk):
                keys += batch.column("key").to_pylist()
                values += batch.column("value").to_pylist()
        for batch in decoder.finish():
            keys += batch.column("key").to_pylist()
            values += batch.column("value").to_pylist()
    finally:
        fetcher.close()
    return Sample(keys, values)
