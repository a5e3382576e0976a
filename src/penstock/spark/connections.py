"""Connections to clusters that live as long as a Python worker does.

Called by the readers. Spark uses its workers for one batch after the other, so that the next one finds a cluster whose
leaders are known and whose sockets are open. A failure drops it: the next one starts afresh.
"""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster, ConnectionSettings

# By process too: a socket that a fork brought along belongs to the parent.
_clusters: "dict[tuple[int, ConnectionSettings], Cluster]" = {}


def cluster_for(settings: "ConnectionSettings") -> "Cluster":
    from penstock.spark.fetching import Cluster

    key = (os.getpid(), settings)
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(settings)
    return cluster


def drop_cluster(settings: "ConnectionSettings") -> None:
    cluster = _clusters.pop((os.getpid(), settings), None)
    if cluster is not None:
        cluster.close()
