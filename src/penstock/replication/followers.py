"""All that this broker follows: each partition is with the fetcher of its leader, and with no other.

Called by replication.replicas when roles change. Fetchers come with the first partition of a leader and go with its
last.
"""

import asyncio

from penstock.replication.fetcher import FetcherContext, LeaderFetcher
from penstock.replication.partition import Partition

NO_LEADER = -1


class Followers:
    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leader_of: dict[Partition, int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, partition: Partition) -> None:
        """Fetch from the leader of its state, in the epoch it is in now."""
        self.leave(partition)
        assert partition.state is not None
        leader = partition.state.leader
        if leader in (NO_LEADER, self._context.node_id):
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = LeaderFetcher(leader, self._context)
        fetcher.follow(partition)
        self._leader_of[partition] = leader

    def leave(self, partition: Partition) -> None:
        leader = self._leader_of.pop(partition, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.leave(partition)
        if not len(fetcher):
            del self._fetchers[leader]
            closing = asyncio.get_running_loop().create_task(fetcher.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for partition in list(self._leader_of):
            self.leave(partition)
        if self._closing:
            await asyncio.wait(self._closing)
