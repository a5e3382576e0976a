"""How fast replicas may catch up while a reassignment runs: `follower.replication.throttled.*`, as Kafka has them.

Called by replication.fetcher. The rate is the broker's; which replicas it slows is said by each topic, as
`partition:broker` pairs or `*`.
"""

from penstock.config import BrokerConfig
from penstock.replication.partition import Partition

UNLIMITED = 2**62
EVERY_REPLICA = "*"


class ReplicationThrottle:
    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self._config = config
        self._node_id = node_id
        # Bytes taken ahead of what the rate allows; they are paid off as time goes by.
        self._debt = 0.0
        self._paid_at = 0.0

    def ready_at(self, partition: Partition, now: float) -> float:
        """When the partition may be fetched again, on the loop's clock."""
        rate = self._config.follower_replication_throttled_rate
        if rate >= UNLIMITED or not self._is_slowed(partition):
            return 0.0
        self._debt = max(0.0, self._debt - (now - self._paid_at) * rate)
        self._paid_at = now
        return now + self._debt / rate if self._debt and rate else 0.0 if rate else now + 1.0

    def count(self, partition: Partition, size: int) -> None:
        if self._config.follower_replication_throttled_rate < UNLIMITED and self._is_slowed(partition):
            self._debt += size

    def _is_slowed(self, partition: Partition) -> bool:
        named = partition.log.config.follower_replication_throttled_replicas
        return bool(named) and (EVERY_REPLICA in named or f"{partition.at.partition}:{self._node_id}" in named)
