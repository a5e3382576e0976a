"""Values that are looked up only when /metrics is read: connections, logs, groups, disk.

Called by broker once the parts are there. Nothing here is touched by a request.
"""

from collections.abc import Callable, Iterator

from penstock.disk import Disk
from penstock.metrics import BrokerMetrics
from penstock.metrics.registry import Labels
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas
from penstock.server.listener import Listener


def attach_gauges(metrics: BrokerMetrics, replicas: Replicas, listener: Listener, disk: Disk) -> None:
    def each(value: Callable[[Partition], float]) -> Callable[[], Iterator[tuple[Labels, float]]]:
        def rows() -> Iterator[tuple[Labels, float]]:
            for partition in replicas.partitions():
                yield (partition.at.topic, str(partition.at.partition)), value(partition)

        return rows

    metrics.connections.read = lambda: listener.connection_count
    metrics.request_bytes_held.read = lambda: listener.held_bytes
    metrics.topics.read = lambda: len(replicas.topics)
    metrics.partitions.read = lambda: sum(len(topic.partitions) for topic in replicas.topics.values())
    metrics.offline_partitions.read = lambda: len(replicas.failures())
    metrics.log_bytes.read = each(lambda partition: partition.log.size)
    metrics.log_segments.read = each(lambda partition: len(partition.log.segments))
    metrics.log_start_offset.read = each(lambda partition: partition.log.log_start)
    metrics.log_end_offset.read = each(lambda partition: partition.log.next_offset)
    metrics.high_watermark.read = each(lambda partition: partition.high_watermark)
    metrics.disk_free_bytes.read = lambda: disk.free_bytes(replicas.logs.root)
