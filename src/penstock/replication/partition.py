"""One partition on this broker, led or followed: the log, the epoch, how far readers may read, who waits.

Called by handlers (produce, fetch, offsets, markers), coordination's ledgers, and replication's fetchers. `append`
picks the offset and writes in one turn of the loop, hence no lock.
Laws:
- Only a leader appends, in the epoch the store gave it; what is appended is committed once all in sync have it
  (replication.progress). A partition of one replica commits what it writes.
- The high watermark never falls while this object lives, but for a truncation below it, which is told as an error.
- Whoever waits for a commit is answered, or told that this broker no longer leads.
"""

import asyncio
import heapq
import logging
from collections import deque
from typing import NamedTuple

from penstock.cluster.image import PartitionState
from penstock.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OutOfOrderSequence,
    PenstockError,
    StorageFailed,
    UnknownLeaderEpoch,
)
from penstock.log.partition_log import Appended, PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.replication.progress import Progress
from penstock.replication.refused_sequences import RefusedSequences
from penstock.replication.waiting import FetchWait, WaitingPlace

logger = logging.getLogger(__name__)

MARKER_BYTES = len(encode_marker(Marker(ControlType.COMMIT, 0), offset=0, timestamp=0, producer_id=0, producer_epoch=0))
ACKS_ALL = -1
NEVER_MS = 2**62


class _AckWait(NamedTuple):
    """Somebody who waits for a commit; the patient also while too few are in sync."""

    offset: Offset
    number: int  # no two are alike, so futures are never compared
    done: asyncio.Future[None]
    is_patient: bool


class Partition:
    __slots__ = (
        "_ack_waits",
        "_flush_timer",
        "_high_watermark",
        "_is_syncing",
        "_refused",
        "_stable_offset",
        "_start_waits",
        "_uncommitted",
        "_wait_number",
        "at",
        "is_leader",
        "is_sole",
        "leader_epoch",
        "log",
        "progress",
        "replicating",
        "state",
        "topic_id",
        "waiting",
    )

    def __init__(self, at: TopicPartition, topic_id: TopicId, leader_epoch: LeaderEpoch, log: PartitionLog) -> None:
        """As the leader of a partition of one replica; `follow` and `lead` make it something else."""
        self.at = at
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.state: PartitionState | None = None
        self.is_leader = True
        self.is_sole = True
        self.progress: Progress | None = None
        self.waiting: set[FetchWait] = set()
        # Followers wait for what is written, consumers for what is committed.
        self.replicating = WaitingPlace()
        self._high_watermark = log.log_start
        self._stable_offset = log.log_start
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        self._ack_waits: list[_AckWait] = []
        self._start_waits: list[tuple[Offset, asyncio.Future[None]]] = []
        self._wait_number = 0
        self._is_syncing = False
        self._refused: RefusedSequences | None = None
        self._flush_timer: asyncio.TimerHandle | None = None

    # What it is

    def start_from(self, high_watermark: Offset) -> None:
        """A replica among others begins with what a former life of this broker knew to be committed."""
        self.is_leader = self.is_sole = False
        self._high_watermark = max(min(high_watermark, self.log.next_offset), self.log.log_start)

    def lead(self, state: PartitionState, me: int) -> None:
        """Lead in the epoch of `state`, from the end of the log as it is."""
        assert state.leader == me
        self.log.settle()
        end = self.log.next_offset
        self._high_watermark = end if self.is_sole else min(self._high_watermark, end)
        self.leader_epoch = LeaderEpoch(state.leader_epoch)
        self.state = state
        self.is_leader = True
        self._uncommitted.clear()
        if self.log.failure is None:
            self.log.begin_epoch(self.leader_epoch)
        self.is_sole = len(state.replicas) == 1
        self.progress = None if self.is_sole else Progress(me, state, end, _now())
        self.advance()
        self._sync_if_alone()

    def follow(self, state: PartitionState) -> None:
        self.log.settle()
        if self.is_sole and self.is_leader:
            self._high_watermark = self.log.next_offset
        self.leader_epoch = LeaderEpoch(state.leader_epoch)
        self.state = state
        # An epoch we led without writing anything: what comes next may be of an earlier one that others kept.
        self.log.epochs.truncate_end(self.log.next_offset)
        self.is_leader = self.is_sole = False
        self.progress = None
        self._uncommitted.clear()
        self._dismiss(NotLeaderOrFollower(f"{self.at} is led by broker {state.leader} now"))

    def adopt(self, state: PartitionState, me: int) -> None:
        """The same leadership goes on with other replicas or another in-sync set."""
        if self.state is not None and state.partition_epoch <= self.state.partition_epoch:
            return
        self.state = state
        self.log.settle()
        end = self.log.next_offset
        if len(state.replicas) == 1:
            self.is_sole, self.progress = True, None
            self._raise_high_watermark(end)
            self._acknowledge()
            self._tell_starts()
        elif self.progress is None:
            self.is_sole = False
            self._high_watermark = end
            self.progress = Progress(me, state, end, _now())
        else:
            self.progress.adopt(state, _now())
            self.advance()
            self._sync_if_alone()
            self._tell_starts()
            if not self.progress.may_commit(self.log.config.min_insync_replicas):
                # They would wait in vain; a retry finds its batch where it is.
                why = f"{self.at}: in sync are {list(state.isr)}, too few for acks=all"
                self._fail_acks(NotEnoughReplicasAfterAppend(why), spare_patient=True)

    # How far it is

    @property
    def in_sync_count(self) -> int:
        return 1 if self.progress is None else len(self.progress.state.isr)

    @property
    def high_watermark(self) -> Offset:
        """One replica: what is written is committed. Durability is promised by acks=all, not by visibility."""
        return self.log.next_offset if self.is_sole else self._high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Committed readers read up to here. Read it once per request: it moves with every marker (TRAPS L5)."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def is_settled(self) -> bool:
        """Whether all that was there when this leadership began is committed: before that, ends are not known (R10)."""
        return self.progress is None or self._high_watermark >= self.progress.epoch_start

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another leader than this one (TRAPS R4); -1 is a client that does not say."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.at}: epoch {epoch} is over, {self.leader_epoch} leads")
        raise UnknownLeaderEpoch(f"{self.at}: epoch {epoch} is not known here yet, {self.leader_epoch} leads")

    # Leading

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int, *, may_gather: bool = False) -> Appended:
        """With `may_gather`, have the log settled before anybody is told of the batch."""
        if not self.is_leader:
            raise self.not_leader()
        # With followers, producers wait for them and not for our file: a write that fails has to be told at once.
        may_gather = may_gather and self.is_sole
        try:
            appended = self.log.append(batch, header, self.leader_epoch, now_ms, may_gather=may_gather)
        except OutOfOrderSequence as gap:
            if self._refused is not None and self._refused.explain(header, gap.expected, _now()):
                raise NotEnoughReplicas(f"{self.at}: the batch before this one was refused, send both again") from None
            raise
        if appended.is_duplicate:
            return appended
        if not self.is_sole:
            self._written(appended, header.size)
        elif self.waiting:
            is_stable = self.last_stable_offset == appended.next_offset
            for wait in tuple(self.waiting):
                if is_stable or not wait.is_committed:
                    wait.appended(header.size)
        return appended

    def note_refused(self, header: BatchHeader) -> None:
        """A batch of a producer that counts was refused, and may be sent again: see refused_sequences."""
        if self._refused is None:
            self._refused = RefusedSequences()
        self._refused.note(header, _now())

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, now_ms: int, *, is_version_2: bool = False
    ) -> Appended:
        """End a producer's transaction here; committed readers who waited for that go on."""
        if not self.is_leader:
            raise self.not_leader()
        self.check_in_sync()
        stable = self.last_stable_offset
        appended = self.log.append_marker(
            marker, producer_id, producer_epoch, self.leader_epoch, now_ms, is_version_2=is_version_2
        )
        if not self.is_sole:
            self._written(appended, MARKER_BYTES)
        elif self.waiting:
            is_news = self.last_stable_offset > stable
            for wait in tuple(self.waiting):
                if not wait.is_committed:
                    wait.appended(MARKER_BYTES)
                elif is_news:
                    # How much came into sight is not counted: to answer with less than was asked for does no harm.
                    wait.end()
        return appended

    def safe(self, appended: Appended, acks: int) -> asyncio.Future[None] | None:
        """What the answer to the producer has to wait for; None if it need not wait."""
        log, config = self.log, self.log.config
        if not self.is_sole and acks == ACKS_ALL:
            self._flush_if_due()
            return self._committed(appended.next_offset)
        durable = log.sync.durable_offset
        if appended.next_offset <= durable:
            return None
        if (
            acks == ACKS_ALL and config.durability != "page-cache"
        ) or log.next_offset - durable >= config.flush_messages:
            # A repeated batch waits too: that the first copy is written does not say that it is durable yet.
            return log.sync.wait_for(log.next_offset)
        if config.flush_ms < NEVER_MS:
            self._flush_if_due()
        return None

    def check_in_sync(self) -> None:
        """Refuse what could not be acknowledged: too few replicas are in sync (TRAPS R6)."""
        minimum = self.log.config.min_insync_replicas
        if self.in_sync_count < minimum:
            raise NotEnoughReplicas(
                f"{self.at} has {self.in_sync_count} replicas in sync, min.insync.replicas is {minimum}"
            )

    def heard(
        self, node: int, broker_epoch: int, offset: Offset, log_start: Offset, *, is_leaving: bool = False
    ) -> bool:
        """A follower of this epoch asks for `offset`: true if it could be in sync again.

        One that `is_leaving` follows to its last moment, but nobody need wait for it.
        Raises NotLeaderOrFollower if it is none of ours.
        """
        progress, end = self.progress, self.log.next_offset
        if progress is None or not progress.heard(node, broker_epoch, offset, log_start, end, _now()):
            raise NotLeaderOrFollower(f"{self.at}: broker {node} in epoch {broker_epoch} is no follower here")
        progress.followers[node].is_leaving = is_leaving
        if end > self._high_watermark or self._ack_waits:
            self.advance()
        if self._start_waits:
            self._tell_starts()
        return progress.is_back(node, self._high_watermark)

    def advance(self) -> None:
        """See whether more is committed, and answer those who waited for it."""
        log, progress = self.log, self.progress
        if progress is not None and progress.may_commit(log.config.min_insync_replicas):
            own_end = log.written_end
            if log.config.durability == "fsync-all" and log.durable_offset < own_end:
                # Followers sync before they ask for more; read must not be what this copy alone might forget.
                own_end = log.durable_offset
                self._sync_if_needed()
            end = progress.committed_end(own_end, self._high_watermark, _now())
            if end > self._high_watermark:
                self._raise_high_watermark(end)
        self._acknowledge()

    def committed(self, offset: Offset) -> asyncio.Future[None] | None:
        """For coordinators: done once everything below `offset` is committed, however long that takes.

        None if it is. The future raises what keeps it from ever being so here.
        """
        if not self.is_leader:
            raise self.not_leader()
        if self.is_sole:
            must_sync = self.log.config.durability != "page-cache" and offset > self.log.durable_offset
            return self.log.sync.wait_for(offset) if must_sync else None
        return self._committed(offset, is_patient=True)

    def started(self, offset: Offset) -> asyncio.Future[None] | None:
        """Done when every replica in sync has let go of what lies below `offset`; None if they have."""
        if not self.is_leader:
            raise self.not_leader()
        if self._low_watermark() >= offset:
            return None
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start_waits.append((offset, wait))
        return wait

    def not_leader(self) -> NotLeaderOrFollower:
        leader = self.state.leader if self.state is not None else -1
        return NotLeaderOrFollower(f"{self.at} is led by broker {leader}, in epoch {self.leader_epoch}")

    # Following

    def replicated(self, leader_high_watermark: Offset) -> None:
        """Batches came from the leader, which has so much committed."""
        end = min(leader_high_watermark, self.log.next_offset)
        if end > self._high_watermark:
            self._raise_high_watermark(end)

    def cut(self, log: PartitionLog) -> None:
        """The log was truncated: this one goes on in its place."""
        self.log = log
        if log.next_offset < self._high_watermark:
            logger.error(
                "%s: was cut to %d, below its high watermark %d: records that were committed are gone",
                self.at,
                log.next_offset,
                self._high_watermark,
            )
        self._high_watermark = min(self._high_watermark, log.next_offset)
        self._stable_offset = min(self._stable_offset, log.next_offset)

    def begin_anew(self, log: PartitionLog) -> None:
        """The copy was damaged and is fetched once more, into an empty log."""
        self.log = log
        self._high_watermark = self._stable_offset = log.log_start

    def close(self) -> None:
        """The partition is leaving this broker: whoever waits for it is let go."""
        self.is_leader = False
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        self._dismiss(NotLeaderOrFollower(f"{self.at} is no longer kept here"))

    # Inside

    def _written(self, appended: Appended, size: int) -> None:
        self._uncommitted.append((appended.next_offset, size))
        if self.replicating.waiting:
            for wait in tuple(self.replicating.waiting):
                wait.appended(size)
        progress = self.progress
        assert progress is not None
        if len(progress.state.isr) == 1:
            # Nobody will ask for it to be committed.
            self.advance()

    def _raise_high_watermark(self, end: Offset) -> None:
        self._high_watermark = end
        size = 0
        while self._uncommitted and self._uncommitted[0][0] <= end:
            size += self._uncommitted.popleft()[1]
        if not self.waiting:
            return
        stable = self.log.last_stable_offset(end)
        is_news, self._stable_offset = stable > self._stable_offset, stable
        for wait in tuple(self.waiting):
            if not wait.is_committed or stable == end:
                wait.appended(size or MARKER_BYTES)
            elif is_news:
                wait.end()

    def _committed(self, offset: Offset, *, is_patient: bool = False) -> asyncio.Future[None] | None:
        """Done when all below `offset` counts as safe; None if it does already."""
        if offset <= self._safe_end():
            return None
        wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait_number += 1
        heapq.heappush(self._ack_waits, _AckWait(offset, self._wait_number, wait, is_patient))
        self._sync_if_needed()
        return wait

    def _syncs_before_ack(self) -> bool:
        """Whether our own copy must be on stable storage: where it is the only one, or where all are to be."""
        durability = self.log.config.durability
        return durability == "fsync-all" or (durability == "fsync" and self.in_sync_count == 1)

    def _sync_if_alone(self) -> None:
        """What was acknowledged because others had it too, unsynced: if they are gone, this copy has to last."""
        log = self.log
        if self.progress is not None and self._syncs_before_ack() and log.failure is None:
            log.sync.wait_for(log.next_offset)

    def _safe_end(self) -> Offset:
        if not self._syncs_before_ack():
            return self._high_watermark
        return min(self._high_watermark, self.log.durable_offset)

    def _acknowledge(self) -> None:
        if not self._ack_waits:
            return
        end = self._safe_end()
        while self._ack_waits and self._ack_waits[0].offset <= end:
            wait = heapq.heappop(self._ack_waits).done
            if not wait.done():
                wait.set_result(None)
        if self._ack_waits:
            self._sync_if_needed()

    def _sync_if_needed(self) -> None:
        if self._is_syncing or not self._syncs_before_ack() or self.log.durable_offset >= self.log.next_offset:
            return
        self._is_syncing = True
        log = self.log

        def synced(done: asyncio.Future[None]) -> None:
            self._is_syncing = False
            error = StorageFailed(f"{self.at} is closed") if done.cancelled() else done.exception()
            if log is not self.log:
                return
            if isinstance(error, PenstockError):
                self._fail_acks(error)
            elif error is None:
                self.advance()

        log.sync.wait_for(log.next_offset).add_done_callback(synced)

    def _fail_acks(self, error: PenstockError, *, spare_patient: bool = False) -> None:
        waits, self._ack_waits = self._ack_waits, []
        for each in waits:
            if spare_patient and each.is_patient:
                heapq.heappush(self._ack_waits, each)
            elif not each.done.done():
                each.done.set_exception(error)
                each.done.exception()  # a producer that hung up is not there to hear it

    def _low_watermark(self) -> Offset:
        start = self.log.log_start
        return start if self.progress is None else self.progress.low_watermark(start)

    def _tell_starts(self) -> None:
        low = self._low_watermark()
        for offset, wait in self._start_waits:
            if offset <= low and not wait.done():
                wait.set_result(None)
        self._start_waits = [each for each in self._start_waits if not each[1].done()]

    def _dismiss(self, error: PenstockError) -> None:
        self._fail_acks(error)
        for _, wait in self._start_waits:
            if not wait.done():
                wait.set_exception(error)
                wait.exception()
        self._start_waits = []
        for wait in (*self.waiting, *self.replicating.waiting):
            wait.end()

    def _flush_if_due(self) -> None:
        log, config = self.log, self.log.config
        if log.next_offset - log.durable_offset >= config.flush_messages:
            log.sync.wait_for(log.next_offset)
        elif self._flush_timer is None and config.flush_ms < NEVER_MS:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(config.flush_ms / 1000, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        if self.log.failure is None:
            self.log.sync.wait_for(self.log.next_offset)


def _now() -> float:
    return asyncio.get_running_loop().time()
