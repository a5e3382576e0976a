"""What a leader knows of its followers: how far each has come, and from that how far the partition is committed.

Called by replication.partition. Plain bookkeeping: offsets and times come in, nothing here waits or writes.
Laws (TRAPS R5, R6, R8; KIP-497, KIP-966):
- Committed is what every member of the maximal in-sync set has: those the store names and those we asked it to add.
  One we asked it to drop counts until the store has said yes.
- Nothing more is committed while fewer than `min.insync.replicas` are in sync, or while somebody else may lead.
- A follower's progress is that of one incarnation: a later broker epoch begins anew, an earlier one is not heard.
"""

from penstock.cluster.elections import effective_min_insync
from penstock.cluster.image import PartitionState
from penstock.model import Offset

UNHEARD = Offset(-1)
NEVER = float("-inf")


# A follower out of sync that asked within this time is on its way back.
RETURNING_S = 1.0


class FollowerProgress:
    __slots__ = ("asked_at", "broker_epoch", "caught_up_at", "end_when_asked", "is_leaving", "log_start", "next_offset")

    def __init__(self, now: float) -> None:
        self.broker_epoch = -1
        self.next_offset = UNHEARD
        self.log_start = UNHEARD
        # When it last had all that was there; a new leader gives everyone the benefit of the doubt.
        self.caught_up_at = now
        self.asked_at = NEVER
        self.end_when_asked = UNHEARD
        self.is_leaving = False


class Progress:
    __slots__ = ("_me", "adding", "epoch_start", "followers", "state")

    def __init__(self, me: int, state: PartitionState, epoch_start: Offset, now: float) -> None:
        self._me = me
        self.state: PartitionState = state
        self.epoch_start = epoch_start
        self.adding: frozenset[int] = frozenset()
        self.followers = {node: FollowerProgress(now) for node in state.replicas if node != me}

    def adopt(self, state: PartitionState, now: float) -> None:
        """The store says something newer of this very leadership."""
        assert state.leader_epoch == self.state.leader_epoch, (state, self.state)
        assert state.partition_epoch > self.state.partition_epoch, (state, self.state)
        for node in set(self.state.isr).difference(state.isr):
            if node in self.followers:
                # Gone, most likely; if not, it asks again, and is waited for from then on.
                self.followers[node].asked_at = NEVER
        self.state = state
        self.adding = frozenset()
        self.followers = {
            node: self.followers.get(node) or FollowerProgress(now) for node in state.replicas if node != self._me
        }

    def heard(
        self, node: int, broker_epoch: int, offset: Offset, log_start: Offset, leader_end: Offset, now: float
    ) -> bool:
        """A follower asks for `offset`, hence has all below it. False if it is not (or no longer) one of ours."""
        follower = self.followers.get(node)
        if follower is None or not self.is_current(follower, broker_epoch):
            return False
        if broker_epoch > follower.broker_epoch:
            follower.broker_epoch = broker_epoch
            follower.end_when_asked = UNHEARD
        if offset >= leader_end:
            follower.caught_up_at = now
        elif follower.end_when_asked != UNHEARD and offset >= follower.end_when_asked:
            # Under load it never has all: but it has what there was when it last asked.
            follower.caught_up_at = max(follower.caught_up_at, follower.asked_at)
        follower.next_offset, follower.log_start = offset, log_start
        follower.asked_at, follower.end_when_asked = now, leader_end
        return True

    def is_current(self, follower: FollowerProgress, broker_epoch: int) -> bool:
        return broker_epoch >= follower.broker_epoch

    @property
    def maximal_in_sync(self) -> frozenset[int]:
        return self.adding.union(self.state.isr)

    def may_commit(self, min_insync: int) -> bool:
        # Those in `elr` count as holding all that is committed, until the store says otherwise.
        state = self.state
        return len(state.isr) >= effective_min_insync(min_insync, state.replicas) and not state.elr

    def committed_end(self, own_end: Offset, high_watermark: Offset, now: float) -> Offset:
        """What all in sync have; `high_watermark` where that is less (followers of a new leader not heard of yet)."""
        end = own_end
        in_sync = self.maximal_in_sync
        for node, follower in self.followers.items():
            if node not in in_sync:
                # One that is about to be in sync again is waited for: it would never reach an end that runs away.
                has_most = follower.next_offset >= max(high_watermark, self.epoch_start)
                if not has_most or follower.is_leaving or now - follower.asked_at > RETURNING_S:
                    continue
            end = min(end, follower.next_offset)
        return max(end, high_watermark)

    def low_watermark(self, own_start: Offset) -> Offset:
        """What all in sync have let go of: whoever leads next does not bring it back."""
        return min([own_start, *(self.followers[node].log_start for node in self.state.isr if node != self._me)])

    def lagging(self, leader_end: Offset, lag_max_s: float, now: float) -> frozenset[int]:
        """Members in sync that have not had all for too long."""
        return frozenset(
            node
            for node, follower in self.followers.items()
            if node in self.state.isr and follower.next_offset < leader_end and now - follower.caught_up_at > lag_max_s
        )

    def is_back(self, node: int, high_watermark: Offset) -> bool:
        """Whether a replica out of sync has all that is committed, and all that was there when this epoch began."""
        if node in self.maximal_in_sync:
            return False
        follower = self.followers.get(node)
        return follower is not None and follower.next_offset >= max(high_watermark, self.epoch_start)
