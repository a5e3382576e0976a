"""What one other broker leads and we keep copies of: one connection, one fetch at a time, all partitions in it.

Made by replication.followers, one for each leader that has something for us. Speaks Fetch as a replica, in an
incremental session: after the first request only what changed is named.
Laws (TRAPS R1-R4, R7):
- A log is cut only where the leader says that it differs, by epochs, and as often as it says so; never at a high
  watermark. What else such an answer says, its high watermark above all, is not believed.
- An answer counts only for the leadership it was asked in, and only if the partition has been followed ever since: its
  log may be gone by now, or be another that is still empty.
- What is fetched is checked before it is written, and in the leader's order; the next fetch tells that we have it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from penstock.client.connection import ClientConnection
from penstock.clock import Clock
from penstock.config import BrokerConfig
from penstock.errors import CorruptMessage, ErrorCode, MalformedFrame, PenstockError, StorageFailed
from penstock.log.directory import LogDirectory
from penstock.log.partition_log import PartitionLog
from penstock.metrics import Counter
from penstock.model import NO_EPOCH, Endpoint, LeaderEpoch, Offset, TopicPartition
from penstock.replication.partition import Partition
from penstock.replication.throttle import ReplicationThrottle
from penstock.wire.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic, ForgottenTopic
from penstock.wire.fetch_client import FetchResponse, encode_fetch_request, parse_fetch_response

logger = logging.getLogger(__name__)

VERSION = 17
CLIENT_ID = "penstock-replica"
BACKOFF_FIRST_S = 0.02
# Beyond the wait itself: a leader that answers nothing for so long is not worth waiting for.
ANSWER_S = 10.0
# What is slowed or not to be written is looked at again so often at least: that may have changed meanwhile.
LOOK_AGAIN_S = 1.0
SESSION_EPOCH_MAX = 2**31 - 1

Key = tuple[UUID, int]
# The leader, when it was asked and when it answered, and what it gave.
TraceRound = Callable[[int, float, float, list[tuple[TopicPartition, FetchPartitionResult]]], None]


@dataclass(slots=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    node_id: int
    config: BrokerConfig
    clock: Clock
    logs: LogDirectory
    throttle: ReplicationThrottle
    broker_epoch: Callable[[], int]
    find_endpoint: Callable[[int], Endpoint | None]
    # Around every cut: meanwhile the partition takes no other role.
    cut: Callable[[Partition, Callable[[], Awaitable[PartitionLog]]], Awaitable[None]]
    # The copy here is damaged, or its disk fails.
    on_broken: Callable[[Partition, PenstockError], None]
    received: Counter = field(default_factory=Counter)  # bytes of batches taken
    # Told of every round that brought something, where tracing is switched on.
    trace: TraceRound | None = None


@dataclass(slots=True)
class Following:
    """One partition of the leader: the leadership it is fetched in, and when it may be asked for again."""

    partition: Partition
    epoch: LeaderEpoch
    retry_at: float = 0.0
    failures: int = 0
    # What the session knows of it; None before it was named.
    told: FetchPartition | None = field(default=None)

    @property
    def is_current(self) -> bool:
        partition = self.partition
        return not partition.is_leader and partition.leader_epoch == self.epoch

    def ask(self, partition_max_bytes: int) -> FetchPartition:
        log = self.partition.log
        end = log.next_offset
        last_epoch = log.epochs.epoch_at(Offset(end - 1)) if end > log.log_start else NO_EPOCH
        return FetchPartition(
            self.partition.at.partition, self.epoch, end, last_epoch, log.log_start, partition_max_bytes
        )


class LeaderFetcher:
    def __init__(self, leader: int, context: FetcherContext) -> None:
        self.leader = leader
        self._context = context
        self._following: dict[Key, Following] = {}
        self._in_session: dict[Key, Following] = {}
        self._session_id = 0
        self._session_epoch = 0
        self._connection: ClientConnection | None = None
        self._failures = 0
        self._changed = asyncio.Event()
        self._is_waiting = False
        self.task = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        return len(self._following)

    def follow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.at.partition)
        self._following[key] = Following(partition, partition.leader_epoch)
        self._changed.set()
        if self._is_waiting:
            # A fetch that waits for data of other partitions would keep this one waiting too: ask anew.
            self._is_waiting = False
            asyncio.get_running_loop().call_soon(self._interrupt)

    def leave(self, partition: Partition) -> None:
        self._following.pop((partition.topic_id, partition.at.partition), None)
        self._changed.set()

    async def close(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    async def _run(self) -> None:
        try:
            while True:
                self._changed.clear()
                active, wait_s = self._active()
                if not active:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await self._changed.wait()
                    continue
                try:
                    await self._round(active)
                    self._failures = 0
                except (OSError, MalformedFrame, _SessionLost) as error:
                    await self._start_over(error)
                except Exception as error:
                    # A fault of ours. Unsaid and unmended it would end all that is fetched from this leader, for good.
                    logger.exception("broker %d: what it sent could not be taken", self.leader)
                    await self._start_over(error)
        finally:
            await self._disconnect()

    def _active(self) -> tuple[dict[Key, Following], float | None]:
        """What may be asked for now; and if nothing, how long until something may."""
        now = asyncio.get_running_loop().time()
        active: dict[Key, Following] = {}
        wait_s: float | None = None
        for key, each in self._following.items():
            partition = each.partition
            if not each.is_current:
                continue
            if partition.log.failure is not None:
                # It is being cut, or is broken until it is repaired; nobody tells us when that is over.
                wait_s = LOOK_AGAIN_S if wait_s is None else min(wait_s, LOOK_AGAIN_S)
                continue
            ready_at = max(each.retry_at, self._context.throttle.ready_at(partition, now))
            if ready_at <= now:
                active[key] = each
            else:
                wait_s = min(ready_at - now, LOOK_AGAIN_S if wait_s is None else wait_s)
        return active, wait_s

    async def _round(self, active: dict[Key, Following]) -> None:
        config = self._context.config
        connection = await self._connect()
        # What left while we connected is not spoken of: in a new life of this broker it would be taken for good.
        active = {key: each for key, each in active.items() if self._is_followed(key, each)}
        request = self._request(active, config)
        frame = encode_fetch_request(VERSION, 0, CLIENT_ID, request)
        trace, now = self._context.trace, self._context.clock.monotonic
        sent_at = now() if trace is not None else 0.0
        self._is_waiting = True
        try:
            wait_s = config.replica_fetch_wait_max_ms / 1000 + ANSWER_S
            response = parse_fetch_response(VERSION, await connection.exchange(frame, timeout_s=wait_s))
        finally:
            self._is_waiting = False
        if response.error_code != ErrorCode.NONE:
            raise _SessionLost(f"fetch session refused: {response.error_code}")
        self._session_id = response.session_id
        self._session_epoch = self._session_epoch % SESSION_EPOCH_MAX + 1 if response.session_id else 0
        if not response.session_id:
            self._in_session.clear()
        answered_at = now() if trace is not None else 0.0
        await self._take_all(response, active)
        if trace is not None and (given := _given(response, active)):
            trace(self.leader, sent_at, answered_at, given)

    async def _connect(self) -> ClientConnection:
        if self._connection is None or self._connection.is_broken:
            await self._disconnect()
            endpoint = self._context.find_endpoint(self.leader)
            if endpoint is None:
                raise ConnectionRefusedError(f"broker {self.leader} is not registered")
            self._connection = await ClientConnection.connect(endpoint, client_id=CLIENT_ID, negotiate=False)
        return self._connection

    def _request(self, active: dict[Key, Following], config: BrokerConfig) -> FetchRequest:
        topics: dict[UUID, list[FetchPartition]] = {}
        for key, each in active.items():
            ask = each.ask(config.replica_fetch_max_bytes)
            if self._in_session.get(key) is not each or each.told != ask:
                topics.setdefault(key[0], []).append(ask)
                each.told = ask
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in [key for key in self._in_session if key not in active]:
            forgotten.setdefault(topic_id, []).append(index)
        self._in_session = dict(active)
        return FetchRequest(
            replica_id=self._context.node_id,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=config.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(None, topic_id, asks) for topic_id, asks in topics.items()],
            forgotten_topics=[ForgottenTopic(None, topic_id, indexes) for topic_id, indexes in forgotten.items()],
            rack_id="",
            replica_epoch=self._context.broker_epoch(),
        )

    async def _take_all(self, response: FetchResponse, active: dict[Key, Following]) -> None:
        later: list[tuple[Following, FetchPartitionResult]] = []
        syncs: list[asyncio.Future[None]] = []
        for topic in response.topics:
            for result in topic.partitions:
                assert topic.topic_id is not None
                key = (topic.topic_id, result.partition)
                each = active.get(key)
                if each is None or not self._is_followed(key, each):
                    continue
                if result.error_code == ErrorCode.NONE and result.diverging_epoch is None:
                    self._take(each, result)
                    if each.partition.log.config.durability == "fsync-all":
                        syncs.append(each.partition.log.sync.wait_for(each.partition.log.next_offset))
                elif result.diverging_epoch is not None or result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    later.append((each, result))
                else:
                    self._put_off(each, ErrorCode(result.error_code).name)
        for each, result in later:
            await self._cut(each, result)
        if syncs:
            # The next fetch says that we have it, which is to mean: on stable storage.
            await asyncio.wait(syncs)

    def _is_followed(self, key: Key, each: Following) -> bool:
        """Whether it is still followed, and has been without a break."""
        return self._following.get(key) is each and each.is_current

    def _take(self, each: Following, result: FetchPartitionResult) -> None:
        """Write what came."""
        partition, log = each.partition, each.partition.log
        records = result.records
        assert isinstance(records, memoryview)
        try:
            if records:
                taken = log.append_replicated(records, self._context.clock.now_ms())
                self._context.throttle.count(partition, taken)
                self._context.received.value += taken
            partition.replicated(Offset(result.high_watermark))
            start = min(Offset(result.log_start_offset), partition.high_watermark)
            if start > log.log_start:
                log.advance_start(start)
            each.failures = 0
        except StorageFailed as error:
            self._context.on_broken(partition, error)
        except CorruptMessage as error:
            # On the wire or on the leader's disk: not ours. Asked again, it may come whole.
            logger.error("%s: broker %d sent a damaged batch: %s", partition.at, self.leader, error)
            self._put_off(each, "CORRUPT_MESSAGE")

    async def _cut(self, each: Following, result: FetchPartitionResult) -> None:
        partition, log = each.partition, each.partition.log
        logs = self._context.logs
        if not self._is_followed((partition.topic_id, partition.at.partition), each):
            return
        if result.diverging_epoch is not None:
            point = truncation_point(log, *result.diverging_epoch)
            logger.info(
                "%s: differs from broker %d after epoch %d, offset %d; cut from %d to %d",
                partition.at, self.leader, *result.diverging_epoch, log.next_offset, point,
            )  # fmt: skip
            await self._context.cut(partition, lambda: logs.truncate(log, point))
        else:
            start = Offset(result.log_start_offset)
            logger.warning(
                "%s: what comes after %d is no longer at broker %d; begins anew at %d",
                partition.at, log.next_offset, self.leader, start,
            )  # fmt: skip
            await self._context.cut(partition, lambda: logs.restart_at(log, start))

    def _put_off(self, each: Following, why: str) -> None:
        limit_s = self._context.config.replica_fetch_backoff_ms / 1000
        each.retry_at = asyncio.get_running_loop().time() + min(BACKOFF_FIRST_S * 2**each.failures, limit_s)
        each.failures = min(each.failures + 1, 16)
        if each.failures > 5:
            logger.warning("%s: broker %d refuses: %s", each.partition.at, self.leader, why)

    async def _start_over(self, error: Exception) -> None:
        """The connection or the session is lost: begin both anew, after a moment."""
        await self._disconnect()
        if isinstance(error, _Interrupted):
            return
        limit_s = self._context.config.replica_fetch_backoff_ms / 1000
        wait_s = min(BACKOFF_FIRST_S * 2**self._failures, limit_s)
        self._failures = min(self._failures + 1, 16)
        logger.log(
            logging.WARNING if self._failures == 5 else logging.DEBUG,
            "broker %d cannot be fetched from: %s", self.leader, error or type(error).__name__,
        )  # fmt: skip
        await asyncio.sleep(wait_s)

    async def _disconnect(self) -> None:
        # The id is kept: named in the first request of the next session it ends the old one, which else took up room.
        self._session_epoch = 0
        self._in_session.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort(_Interrupted("closed here"))

    def _interrupt(self) -> None:
        if self._connection is not None:
            self._connection.abort(_Interrupted("there is more to ask for"))


class _SessionLost(Exception):
    pass


class _Interrupted(ConnectionAbortedError):
    """Not the leader's fault: we have something else to ask."""


def _given(response: FetchResponse, active: dict[Key, Following]) -> list[tuple[TopicPartition, FetchPartitionResult]]:
    """What came with records, by name."""
    return [
        (each.partition.at, result)
        for topic in response.topics
        for result in topic.partitions
        if topic.topic_id is not None
        and (each := active.get((topic.topic_id, result.partition))) is not None
        and len(result.records) > 0
    ]


def truncation_point(log: PartitionLog, epoch: int, end: int) -> Offset:
    """Where our log and the leader's part, as far as its answer tells: the end of `epoch` there is `end`.

    An epoch we do not know may have been written by a leader we missed: then our own part of what came before it is
    all that can be right, and the next answer tells more (KIP-279).
    """
    own_epoch, own_end = log.epochs.end_of(LeaderEpoch(epoch), log.next_offset)
    if own_epoch == NO_EPOCH:
        return log.log_start
    return Offset(min(own_end, end)) if own_epoch == epoch else own_end
