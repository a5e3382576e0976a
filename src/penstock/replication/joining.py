"""How a broker's replicas join a cluster and leave it: opened, disowned where they may lack something, handed over.

Called by broker, at its start between the end of its former life and its new registration, and at its stop.
Laws (TRAPS R8, R9, L3):
- Whoever may have lost records is in no in-sync set when it registers, and leads nothing on the strength of it. After a
  stop that was not clean that is every replica, on a new disk too, and on one put back from a copy.
- Where nobody else could lead, a replica whose log is whole stays: nobody has more than it has. So does one that a full
  disk kept from being opened: the next start may find it whole.
- A damaged log is set aside and fetched anew only if another broker may lead; else it stays as it is, offline. And only
  once its broker has left: should it end in between, the next start would take the empty log for a whole one.
"""

import asyncio
import logging

from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.membership import Membership
from penstock.cluster.partition_changes import PartitionChanges
from penstock.cluster.partition_writes import Place
from penstock.config import BrokerConfig
from penstock.errors import PenstockError, StorageUnavailable
from penstock.log.directory import LogDirectory, LogRequest
from penstock.metrics import BrokerMetrics
from penstock.model import TopicPartition

logger = logging.getLogger(__name__)

# With a store that is away a stop would take as long as its deadlines, one after another; who stops us waits less long.
HAND_OVER_S = 10.0
# Clients that are told who leads now go there at once. Those that find their connection closed ask around first, maybe
# before the others have heard of it, and then wait before they ask again.
TELL_S = 0.3


class Joining:
    def __init__(self, node_id: int, image: ClusterImage, logs: LogDirectory, config: BrokerConfig) -> None:
        self._node_id = node_id
        self._image = image
        self._logs = logs
        self._config = config

    async def open_logs(self) -> None:
        """Open all that the cluster says is kept here. Damaged ones are offline afterwards, the others ready."""
        configs = {topic.name: self._config.topic(topic.configs) for topic in self._image.topics.values()}
        await self._logs.open_all(
            LogRequest(TopicPartition(topic.name, index), topic.id, configs[topic.name], len(state.replicas) > 1)
            for topic, index, state in self._mine()
        )

    async def disown(self, changes: PartitionChanges, membership: Membership, metrics: BrokerMetrics) -> None:
        """Leave every in-sync set in which this broker may lack something, and set damaged logs aside."""
        may_lack_any = membership.is_new_disk or membership.is_older_disk or not self._logs.was_clean
        lost: dict[Place, bool] = {}
        for topic, index, _ in self._mine():
            failure = self._logs.offline.get(TopicPartition(topic.name, index))
            may_be_whole = failure is None or isinstance(failure, StorageUnavailable)
            if may_lack_any or failure is not None:
                lost[topic.id, index] = may_be_whole and not membership.is_new_disk
        if lost:
            await changes.leave(lost)
        for topic, index, state in self._mine():
            at = TopicPartition(topic.name, index)
            if at in self._logs.offline and {*state.isr, *state.elr} - {self._node_id}:
                logger.warning("%s: damaged, set aside and to be fetched anew from its leader", at)
                await self._logs.set_damaged_aside(at)
                metrics.replicas_rebuilt.value += 1

    async def hand_over(self, changes: PartitionChanges, membership: Membership) -> None:
        """Before a clean stop: others lead, and nobody waits for this broker any more."""
        if not any(broker.id != self._node_id for broker in self._image.brokers.values()):
            return
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await membership.announce_stopping()
                mine = [(topic.id, index) for topic, index, state in self._mine() if self._node_id in state.isr]
                led = any(state.leader == self._node_id for _, _, state in self._mine())
                left = await changes.hand_over(mine)
        except (PenstockError, TimeoutError) as error:
            logger.warning("stops without handing over what it leads: %s", str(error) or "the store is away")
            return
        if led:
            await asyncio.sleep(TELL_S)
        if left:
            logger.warning("%d partitions have nobody else in sync to lead them while this broker is away", len(left))

    def _mine(self) -> list[tuple[Topic, int, PartitionState]]:
        return [
            (topic, index, state)
            for topic in self._image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._node_id in state.replicas
        ]
