"""How fast replicas may catch up while a reassignment runs: `{follower,leader}.replication.throttled.*`, as in Kafka.

The follower's side is called by replication.fetcher, the leader's by handlers.replica_fetch. The rate is the broker's;
whom it slows is said by each topic, as `partition:broker` pairs or `*`: the broker that fetches, or the one that leads.
A replica in sync is never slowed: whoever produces with acks=all would wait for it. Nor does what it takes count, so
that a busy topic leaves the whole rate to those that catch up.
"""

from penstock.config import BrokerConfig
from penstock.replication.partition import Partition

UNLIMITED = 2**62
EVERY_REPLICA = "*"
# At a rate of nothing there is no end to wait for; so often it is looked at again.
NOTHING_S = 1.0
# A timer may fire so much too early; who is sent away then would ask again for nothing.
TIMER_S = 0.002


class Budget:
    """Bytes taken ahead of what the rate allows; they are paid off as time goes by."""

    def __init__(self) -> None:
        self._debt = 0.0
        self._paid_at = 0.0

    def wait_s(self, rate: int, now: float) -> float:
        """How long until more may be taken; 0 if now."""
        if rate == 0:
            return NOTHING_S
        self._debt = max(0.0, self._debt - (now - self._paid_at) * rate)
        self._paid_at = now
        return self._debt / rate

    def take(self, size: int) -> None:
        self._debt += size


class ReplicationThrottle:
    """The follower's side."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self._config = config
        self._node_id = node_id
        self._budget = Budget()

    def ready_at(self, partition: Partition, now: float) -> float:
        """When the partition may be fetched again, on the loop's clock."""
        rate = self._config.follower_replication_throttled_rate
        if rate >= UNLIMITED or not self._is_slowed(partition):
            return 0.0
        wait_s = self._budget.wait_s(rate, now)
        return now + wait_s if wait_s else 0.0

    def count(self, partition: Partition, size: int) -> None:
        if self._config.follower_replication_throttled_rate < UNLIMITED and self._is_slowed(partition):
            self._budget.take(size)

    def _is_slowed(self, partition: Partition) -> bool:
        named = partition.log.config.follower_replication_throttled_replicas
        return _is_slowed(partition, named, taker=self._node_id, named_broker=self._node_id)


class LeaderThrottle:
    """The leader's side: what it gives to all followers that are not in sync."""

    def __init__(self, config: BrokerConfig, node_id: int) -> None:
        self._config = config
        self._node_id = node_id
        self._budget = Budget()

    def wait_s(self, partition: Partition, follower: int, now: float) -> float:
        """How long the follower is to be given nothing of this partition; 0 if it may have all it asks for."""
        rate = self._config.leader_replication_throttled_rate
        if rate >= UNLIMITED or not self._is_slowed(partition, follower):
            return 0.0
        wait_s = self._budget.wait_s(rate, now)
        return wait_s if wait_s > TIMER_S else 0.0

    def count(self, partition: Partition, follower: int, size: int) -> None:
        if self._config.leader_replication_throttled_rate < UNLIMITED and self._is_slowed(partition, follower):
            self._budget.take(size)

    def _is_slowed(self, partition: Partition, follower: int) -> bool:
        named = partition.log.config.leader_replication_throttled_replicas
        return _is_slowed(partition, named, taker=follower, named_broker=self._node_id)


def _is_slowed(partition: Partition, named: tuple[str, ...], *, taker: int, named_broker: int) -> bool:
    if not named or (partition.state is not None and taker in partition.state.isr):
        return False
    return EVERY_REPLICA in named or f"{partition.at.partition}:{named_broker}" in named
