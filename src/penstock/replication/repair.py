"""What becomes of a replica that is broken while the broker runs: it is given up, and rebuilt if its disk still works.

Called by replication.replicas (damage was read), replication.fetcher and broker's check (a write or fsync failed).
Laws (TRAPS L1, L3, R8):
- First it leaves the in-sync set, so that nobody takes it for good; only then is anything done to its files.
- Damage is set aside, kept for the operator, and the replica fetched anew in a new life of this broker: what it had
  fetched in the old one counts for nothing any more. Once the new one has begun it leaves again, as a fetch that was
  under way may have brought it back; from the first to the last it fetches nothing.
- Where nobody else may lead nothing is touched: half a log is more than none. That it is damaged is not forgotten.
- After a failed write or fsync the replica stays offline until the broker is restarted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable

from penstock.cluster.image import ClusterImage
from penstock.cluster.membership import Membership
from penstock.cluster.partition_changes import PartitionChanges
from penstock.errors import PenstockError
from penstock.metrics import BrokerMetrics
from penstock.replication.partition import Partition
from penstock.replication.replicas import Replicas

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class Repairs:
    def __init__(
        self,
        replicas: Replicas,
        image: ClusterImage,
        changes: PartitionChanges,
        membership: Membership,
        metrics: BrokerMetrics,
        run: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._changes = changes
        self._membership = membership
        self._metrics = metrics
        self._run = run
        self._under_way: set[Partition] = set()
        self._damaged: dict[Partition, PenstockError] = {}
        self._loop = asyncio.get_running_loop()
        replicas.on_damage = self._found_damage

    def check(self, partitions: Iterable[Partition]) -> None:
        """Give up what failed to be written since the last look."""
        for partition in partitions:
            # A log that is being cut takes nothing more either, and another is about to take its place.
            if partition.log.failure is not None and not self._replicas.is_cutting(partition):
                self.give_up(partition, partition.log.failure)

    def try_again(self) -> None:
        """Rebuild what could not be rebuilt before."""
        for partition, error in list(self._damaged.items()):
            self._rebuild(partition, error)

    def give_up(self, partition: Partition, error: PenstockError) -> None:
        if self._is_counted(partition) and self._others_could_lead(partition):
            self._begin(partition, error, is_rebuilt=False)

    def _found_damage(self, partition: Partition, error: PenstockError) -> None:
        # Often on an I/O thread.
        self._loop.call_soon_threadsafe(lambda: self._rebuild(partition, error))

    def _rebuild(self, partition: Partition, error: PenstockError) -> None:
        if not self._replicas.has(partition):
            self._damaged.pop(partition, None)
            return
        self._damaged[partition] = error
        # Also where it is out of sync: one day it would be in sync again, damaged as it is.
        if self._others_could_lead(partition):
            self._begin(partition, error, is_rebuilt=True)

    def _begin(self, partition: Partition, error: PenstockError, *, is_rebuilt: bool) -> None:
        if partition not in self._under_way:
            self._under_way.add(partition)
            self._run(self._repair(partition, error, is_rebuilt=is_rebuilt))

    async def _repair(self, partition: Partition, error: PenstockError, *, is_rebuilt: bool) -> None:
        logger.error("%s: this replica is broken and given up: %s", partition.at, error)
        try:
            await self._leave(partition)
            if self._is_counted(partition):
                logger.error("%s: no other replica could lead; it stays as it is", partition.at)
            elif is_rebuilt and await self._replicas.rebuild(partition, lambda: self._begin_new_life(partition)):
                self._damaged.pop(partition, None)
                self._metrics.replicas_rebuilt.value += 1
        except (PenstockError, OSError) as failure:
            logger.error("%s: could not be rebuilt: %s", partition.at, failure)
        finally:
            self._under_way.discard(partition)

    async def _leave(self, partition: Partition) -> None:
        place = (partition.topic_id, partition.at.partition)
        await self._insist(partition, lambda: self._changes.give_up([place]))

    async def _begin_new_life(self, partition: Partition) -> bool:
        """Whether nobody counts on it from now on: brought back and then left alone it must stay as it is."""
        await self._insist(partition, self._membership.renew_epoch)
        await self._leave(partition)
        return not self._is_counted(partition)

    async def _insist(self, partition: Partition, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await work()
            except PenstockError as error:
                logger.warning("%s: could not be given up yet: %s", partition.at, error)
            await asyncio.sleep(RETRY_S)

    def _is_counted(self, partition: Partition) -> bool:
        """Whether the cluster still takes the replica for good."""
        state = self._image.partition(partition.topic_id, partition.at.partition)
        return state is not None and self._replicas.node_id in (*state.isr, *state.elr, state.leader)

    def _others_could_lead(self, partition: Partition) -> bool:
        state = self._image.partition(partition.topic_id, partition.at.partition)
        return state is not None and bool({*state.isr, *state.elr} - {self._replicas.node_id})
