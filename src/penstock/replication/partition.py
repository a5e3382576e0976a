"""One partition as its leader sees it: the log, the epoch it leads in, how far readers may read, who waits.

Called by handlers (produce, fetch, offsets, markers) and coordination's ledgers. `append` picks the offset and writes
in one turn of the loop, hence no lock.
"""

import asyncio

from penstock.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from penstock.log.partition_log import Appended, PartitionLog
from penstock.model import LeaderEpoch, Offset, TopicId, TopicPartition
from penstock.records.batch import BatchHeader
from penstock.records.markers import ControlType, Marker, encode_marker
from penstock.replication.waiting import FetchWait

MARKER_BYTES = len(encode_marker(Marker(ControlType.COMMIT, 0), offset=0, timestamp=0, producer_id=0, producer_epoch=0))


class Partition:
    __slots__ = ("_flush_timer", "at", "leader_epoch", "log", "topic_id", "waiting")

    def __init__(self, at: TopicPartition, topic_id: TopicId, leader_epoch: LeaderEpoch, log: PartitionLog) -> None:
        self.at = at
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.log = log
        self.waiting: set[FetchWait] = set()
        self._flush_timer: asyncio.TimerHandle | None = None

    @property
    def in_sync_count(self) -> int:
        return 1

    @property
    def high_watermark(self) -> Offset:
        """One replica: what is written is committed. Durability is promised by acks=all, not by visibility."""
        return self.log.next_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Committed readers read up to here. Read it once per request: it moves with every marker (TRAPS L5)."""
        log = self.log
        return log.last_stable_offset(log.next_offset)

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows another leader than this one (TRAPS R4); -1 is a client that does not say."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.at}: epoch {epoch} is over, {self.leader_epoch} leads")
        raise UnknownLeaderEpoch(f"{self.at}: epoch {epoch} is not known here yet, {self.leader_epoch} leads")

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        appended = self.log.append(batch, header, self.leader_epoch, now_ms)
        if self.waiting and not appended.is_duplicate:
            is_stable = self.last_stable_offset == appended.next_offset
            for wait in tuple(self.waiting):
                if is_stable or not wait.is_committed:
                    wait.appended(header.size)
        return appended

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, now_ms: int, *, is_version_2: bool = False
    ) -> Appended:
        """End a producer's transaction here; committed readers who waited for that go on."""
        stable = self.last_stable_offset
        appended = self.log.append_marker(
            marker, producer_id, producer_epoch, self.leader_epoch, now_ms, is_version_2=is_version_2
        )
        if self.waiting:
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
        unsynced = appended.next_offset - log.durable_offset
        if unsynced <= 0:
            return None
        if (
            acks == -1 and config.durability == "fsync"
        ) or log.next_offset - log.durable_offset >= config.flush_messages:
            # A repeated batch waits too: that the first copy is written does not say that it is durable yet.
            return log.sync.wait_for(log.next_offset)
        if self._flush_timer is None and config.flush_ms < 2**62:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(config.flush_ms / 1000, self._flush)
        return None

    def close(self) -> None:
        """The partition is leaving this broker: whoever waits for it is let go."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        for wait in tuple(self.waiting):
            wait.end()

    def _flush(self) -> None:
        self._flush_timer = None
        if self.log.failure is None:
            self.log.sync.wait_for(self.log.next_offset)
