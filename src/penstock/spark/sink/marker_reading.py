"""Which markers of a query are in the cluster: the topic made on first use, its partition read to the end.

Called by exactly_once.py in tasks and by the writers in the driver. What was read stays with the worker, so that the
next look reads only what came since.
"""

import os
from collections import OrderedDict
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from penstock.model import TopicPartition
from penstock.spark.connections import cluster_for, drop_cluster
from penstock.spark.errors import Unreachable
from penstock.spark.sink.marker import Marker, MarkerTopic, partition_of
from penstock.spark.sink.marker_log import MarkerLog
from penstock.spark.sink.marker_topic import ready_topic

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster
    from penstock.spark.options import WriteOptions

LOGS_MAX = 16
# Markers bear the time that is asked for; where brokers stamp records themselves, their clocks may be so far behind.
CLOCKS_APART_MS = 60 * 60 * 1000


class _Kept(NamedTuple):
    topic_id: UUID | None
    log: MarkerLog


# By process too: see connections.py.
_kept: OrderedDict[tuple[int, str, str, str], _Kept] = OrderedDict()


def read_markers(options: "WriteOptions", topic: MarkerTopic, query: str, since_ms: int | None = None) -> list[Marker]:
    """The committed markers of a query. Call it when the task's own producer is initialised (marker_log.py).

    `since_ms`: none of them is older, so that reading need not begin with what others have left in a week.
    """
    from penstock.spark.fetching import OffsetGone, TopicGone

    key = (os.getpid(), options.librdkafka["bootstrap.servers"], topic.name, query)
    for is_last in (False, True):
        try:
            return _read(options, topic, query, key, since_ms)
        except (OffsetGone, TopicGone):
            # The topic was made anew, or compaction has passed what we knew: from the beginning.
            _kept.pop(key, None)
            if is_last:
                raise
        except Exception:
            _kept.pop(key, None)
            drop_cluster(options.connection)
            raise
    raise AssertionError("the loop returns or raises")


def _read(
    options: "WriteOptions", topic: MarkerTopic, query: str, key: tuple[int, str, str, str], since_ms: int | None
) -> list[Marker]:
    from penstock.spark.fetching import PartitionFetcher

    cluster = cluster_for(options.connection)
    facts = ready_topic(options, cluster, topic)
    at = TopicPartition(topic.name, partition_of(query))
    kept = _kept.pop(key, None)
    log = kept.log if kept is not None and kept.topic_id == facts.topic_id else MarkerLog(query)
    # First what is settled, then how far to read: so whatever is below the one has been read with the other.
    last_stable = _offset(cluster, at, -1, "read_committed")
    end = _offset(cluster, at, -1, "read_uncommitted")
    start = max(log.position, _offset(cluster, at, -2, "read_uncommitted"))
    if log.position > end:
        # Shorter than it was: an unclean election. What we knew may never have been.
        log, start = MarkerLog(query), _offset(cluster, at, -2, "read_uncommitted")
    if since_ms is not None and log.position == 0:
        young = _offset(cluster, at, max(0, since_ms - CLOCKS_APART_MS), "read_uncommitted")
        start = max(start, young) if young >= 0 else end
    if start < end:
        with closing(PartitionFetcher(cluster, at, facts.topic_id, start, end, "read_uncommitted")) as fetcher:
            for chunk in fetcher:
                log.feed(chunk.records)
    log.settled_below(last_stable)
    _kept[key] = _Kept(facts.topic_id, log)
    while len(_kept) > LOGS_MAX:
        _kept.popitem(last=False)
    return log.committed()


def _offset(cluster: "Cluster", at: TopicPartition, wanted: int, isolation: str) -> int:
    level = "read_committed" if isolation == "read_committed" else "read_uncommitted"
    found = cluster.list_offsets({at: wanted}, level)
    if at not in found:
        raise Unreachable(f"the cluster does not say where {at} ends")
    return found[at][0]
