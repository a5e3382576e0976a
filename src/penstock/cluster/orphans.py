"""Partition keys that belong to no topic: what a creation or deletion cut short has left.

Called by supervisor. A creation under way looks the same, and any broker may be at it, so creating/<topic id> is the
lock: who creates holds it until the topic is there, in the very transaction that writes the topic's key; who cleans
takes it first, and only then knows that the topic will not come.
"""

from uuid import UUID

from penstock.cluster.feed import ImageFeed
from penstock.cluster.fenced_writes import FencedWrites
from penstock.cluster.layout import encode
from penstock.cluster.membership import Membership
from penstock.cluster.store import Delete, MetadataStore, Put, created_at


class Orphans:
    def __init__(self, store: MetadataStore, feed: ImageFeed, membership: Membership) -> None:
        self._feed = feed
        self._image = feed.image
        self._layout = feed.image.layout
        self._membership = membership
        self._writes = FencedWrites(store, membership.controller_fence)

    async def clean(self) -> int:
        """Delete them; gives how many there were. Raises RegistrationLost, NotController, Unavailable, Ambiguous."""
        topics = dict.fromkeys(topic_id for topic_id, _ in self._image.orphans())
        return sum([await self._clean_topic(topic_id) for topic_id in topics])

    async def _clean_topic(self, topic_id: UUID) -> int:
        lock = self._layout.creating(topic_id)
        taken = await self._writes.commit([created_at(lock, 0)], [Put(lock, encode({}), self._membership.lease_id)], [])
        if not taken.ok:
            return 0
        # A creation that ended just before shows by now, and no other can end while we hold the lock.
        await self._feed.reached(taken.revision)
        keys = [self._layout.partition(*each) for each in self._image.orphans(topic_id)]
        held = [created_at(lock, taken.revision)]
        await self._writes.commit_pieces(held, [Delete(key) for key in (*keys, lock)], [])
        return len(keys)
