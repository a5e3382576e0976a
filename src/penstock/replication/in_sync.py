"""Who is in sync, as the leaders on this broker see it: replicas that lag are dropped, those that are back are added.

Called by handlers.replica_fetch (a follower is back) and broker (`check_lag`, every second or so).
Laws (TRAPS R5, R7, R8):
- The store decides, by compare-and-swap against the state we lead by. Nothing counts as dropped before it said so.
- One change of a partition is under way at a time. One whose outcome is unknown is asked again, and the store then
  tells what there is: the same comparison cannot hold twice. Until it has, whoever may have been added counts.
- A replica is added in the incarnation it was heard in, which the store compares too.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable

from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.partition_changes import PartitionChanges, PartitionMoved
from penstock.cluster.store import Ambiguous, Unavailable
from penstock.errors import IneligibleReplica, PenstockError
from penstock.metrics import BrokerMetrics
from penstock.replication.partition import Partition

logger = logging.getLogger(__name__)

RETRY_S = 0.5
AT_ONCE_MAX = 16


class InSyncReplicas:
    def __init__(
        self,
        me: int,
        image: ClusterImage,
        changes: PartitionChanges,
        metrics: BrokerMetrics,
        run: Callable[[Coroutine[None, None, None]], object],
    ) -> None:
        self._me = me
        self._image = image
        self._changes = changes
        self._metrics = metrics
        self._run = run
        self._changing: set[Partition] = set()
        self._places = asyncio.Semaphore(AT_ONCE_MAX)

    def add(self, partition: Partition, node: int) -> None:
        """The follower has all that is committed: ask for it to be in sync again, unless a change is under way."""
        progress = partition.progress
        if partition in self._changing or progress is None or partition.log.failure is not None:
            return
        broker = self._image.brokers.get(node)
        epoch = progress.followers[node].broker_epoch
        if broker is None or broker.is_stopping or broker.epoch != epoch:
            return
        progress.adding = frozenset({node})
        order = progress.state.replicas
        isr = tuple(each for each in order if each in progress.maximal_in_sync)
        self._begin(partition, isr, {node: epoch})

    def check_lag(self, partitions: Iterable[Partition], lag_max_s: float) -> None:
        now = asyncio.get_running_loop().time()
        for partition in partitions:
            progress = partition.progress
            if progress is None or not partition.is_leader:
                continue
            partition.advance()
            if partition in self._changing:
                continue
            lagging = progress.lagging(partition.log.next_offset, lag_max_s, now)
            if lagging:
                logger.warning("%s: %s lag by more than %g s", partition.at, sorted(lagging), lag_max_s)
                self._begin(partition, tuple(each for each in progress.state.isr if each not in lagging), {})

    def _begin(self, partition: Partition, isr: tuple[int, ...], epochs: dict[int, int]) -> None:
        assert partition.state is not None
        self._changing.add(partition)
        self._run(self._change(partition, partition.state, isr, epochs))

    async def _change(
        self, partition: Partition, seen: PartitionState, isr: tuple[int, ...], epochs: dict[int, int]
    ) -> None:
        is_unknown = False
        try:
            async with self._places:
                while self._is_ours(partition, seen):
                    try:
                        await self._ask(partition, seen, isr, epochs)
                        return
                    except IneligibleReplica as error:
                        logger.info("%s: %s", partition.at, error)
                        return
                    except PenstockError as error:
                        is_unknown |= isinstance(error, Unavailable | Ambiguous)
                        if not is_unknown:
                            # Our own registration is gone, say: somebody else will lead.
                            logger.warning("%s: who is in sync could not be changed: %s", partition.at, error)
                            return
                        logger.warning("%s: whether %s are in sync is not settled: %s", partition.at, isr, error)
                        await asyncio.sleep(RETRY_S)
        finally:
            self._changing.discard(partition)
            if self._is_ours(partition, seen) and partition.progress is not None:
                partition.progress.adding = frozenset()

    async def _ask(
        self, partition: Partition, seen: PartitionState, isr: tuple[int, ...], epochs: dict[int, int]
    ) -> None:
        try:
            state = await self._changes.change_isr(partition.topic_id, partition.at.partition, seen, isr, epochs)
        except PartitionMoved as moved:
            # Led by another, or by us in a new epoch: until the image says so too, nobody is counted out.
            if moved.actual is not None and not self._adopt(partition, moved.actual):
                raise
            return
        counter = self._metrics.isr_expands if epochs else self._metrics.isr_shrinks
        counter.value += 1
        logger.info("%s: in sync are %s", partition.at, list(state.isr))
        self._adopt(partition, state)

    def _adopt(self, partition: Partition, state: PartitionState) -> bool:
        """Take what the store has now, if we lead by it; a later leader is for the image to tell, in order."""
        is_ours = partition.is_leader and state.leader == self._me and state.leader_epoch == partition.leader_epoch
        if is_ours:
            partition.adopt(state, self._me)
        return is_ours

    def _is_ours(self, partition: Partition, seen: PartitionState) -> bool:
        """Whether we still lead by the very state that was compared."""
        return partition.is_leader and partition.progress is not None and partition.progress.state is seen
