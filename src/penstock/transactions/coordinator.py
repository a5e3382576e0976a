"""The transaction coordinator: which partition keeps a transactional id, whether it is led here, what time asks for.

Called by handlers.transactions, handlers.producer_ids and handlers.produce, and by the broker, which tells it what it
leads. Codes are those of the newest request versions; a handler of an older one says INVALID_PRODUCER_EPOCH where this
says PRODUCER_FENCED.
Invariants:
- An id is served by the one broker that leads its partition of `__transaction_state`, and only once that is loaded.
- Every prepared transaction of a partition led here has a task that sends its markers and then completes it.
- Every marker carries the leader epoch of that partition: a successor's markers fence those we may still be sending.

A transaction of one message costs three records here (ongoing, prepared, complete), one batch and one marker in its
partition. The client waits for two fsyncs of ours, ongoing and prepared; what is decided in one turn of the loop shares
them. The next, if it comes at once, waits for the marker, and its ongoing shares a batch with complete.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, NamedTuple

from penstock.clock import Clock
from penstock.config.broker_settings import BrokerSettings
from penstock.coordination import Led, Ledger, LedPartitions, call_at, partition_of, read_clock
from penstock.errors import ErrorCode, InvalidRequest, PenstockError, TransactionalIdNotFound
from penstock.model import TopicPartition
from penstock.transactions import transaction as rules
from penstock.transactions.markers import Backoff, CoordinatorReplaced, WriteMarkers, deliver, markers_of
from penstock.transactions.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NeedsProducerId, State, Transaction
from penstock.transactions.transaction_records import TransactionRecord
from penstock.transactions.transaction_shard import PartitionsToAdd, ProducerGrant, TransactionShard

log = logging.getLogger(__name__)

SWEEP_IDS_PER_TURN = 500

_Led = Led[TransactionRecord, TransactionShard]  # a partition of `__transaction_state`


class TransactionDescription(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


class TransactionCoordinator:
    def __init__(
        self,
        config: BrokerSettings,
        clock: Clock,
        allocate_producer_id: Callable[[], Awaitable[int]],
        write_markers: WriteMarkers,
    ) -> None:
        # What the topic has, once it exists; until then what it will be made with.
        self.partition_count = config.transaction_state_log_num_partitions
        self._config = config
        self._clock = clock
        self._allocate_producer_id = allocate_producer_id
        self._write_markers = write_markers
        # When one ends there is nobody left to tell: requests wait for its shard, and what sends its markers stops.
        self._led: LedPartitions[TransactionRecord, TransactionShard] = LedPartitions(clock, lambda led, error: None)
        self._abort_timer: asyncio.TimerHandle | None = None
        self._expiry_timer: asyncio.TimerHandle | None = None
        # For /metrics: since the start. Aborted counts the timed out ones too.
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0

    # What this broker leads

    async def lead(self, ledger: Ledger) -> None:
        """Load the partition and serve its ids; requests are told to wait meanwhile. What was prepared goes on."""
        transactions = TransactionShard(lambda transactional_id, after: self._moved(led, transactional_id, after))
        led: _Led = self._led.begin(ledger, transactions)
        count = await self._led.load(led)
        if count is None:
            return
        for transactional_id, transaction in transactions.transactions.items():
            if transaction.state.is_prepared:
                led.run(self._write_and_complete(led, transactional_id, transaction))
        if self._abort_timer is None:
            self._set_abort_timer()
            self._set_expiry_timer()
        ids = len(transactions.transactions)
        log.info("%s: loaded %d transactional ids from %d records", ledger.topic_partition, ids, count)

    def resign(self, partition: int) -> None:
        self._led.resign(partition)

    def close(self) -> None:
        self._led.close()
        for timer in (self._abort_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()

    def partition_of(self, transactional_id: str) -> int:
        return partition_of(transactional_id, self.partition_count)

    # What producers ask. Raises NotCoordinator, CoordinatorLoadInProgress, and what the log has against a record.

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        *,
        bumps_epoch_on_end: bool = True,
    ) -> ProducerGrant:
        """The producer's id and epoch; whoever had this transactional id before is fenced.

        With `bumps_epoch_on_end` the abort of what is found open is one of version 2, whoever opened it.
        """
        has_expectation = producer_id != NO_PRODUCER_ID
        if not transactional_id or has_expectation != (producer_epoch != NO_PRODUCER_EPOCH):
            return ProducerGrant(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            return ProducerGrant(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        expected = (producer_id, producer_epoch) if has_expectation else None
        new_producer_id = None
        while True:
            led = self._leader_of(transactional_id)
            waiter = self._waiter()
            request = (timeout_ms, expected, new_producer_id)
            now = read_clock(self._clock)
            step = led.machine.initialise(transactional_id, request, bumps_epoch_on_end, waiter, now)
            if not isinstance(step, NeedsProducerId):
                led.shard.perform(step)
                return await waiter
            new_producer_id = await self._new_producer_id()
            if new_producer_id is None:
                return ProducerGrant(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        connection: int | None = None,
    ) -> ErrorCode:
        """The partitions are part of the transaction, which is open from now on if it was not.

        While the markers of the transaction before go out, the request waits a little: a client that was told to come
        again would wait much longer. `connection`: the one on which the producer itself asks; what comes late, on one
        that it has left, would open a transaction that nobody is going to end.
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        producer = (producer_id, producer_epoch)
        if connection is not None:
            if self._is_late(transactional_id, producer, connection):
                return ErrorCode.CONCURRENT_TRANSACTIONS
            self._leader_of(transactional_id).machine.hear(transactional_id, producer, connection)
        deadline_s = None
        while True:
            led = self._leader_of(transactional_id)
            waiter = self._waiter()
            if led.machine.is_busy(transactional_id):
                now_s = self._clock.monotonic()
                if deadline_s is None:
                    deadline_s = now_s + self._config.add_partitions_to_txn_retry_backoff_max_ms / 1000
                if now_s < deadline_s:
                    code = await self._park(led, transactional_id, producer, partitions, deadline_s)
                    if code is not None:
                        return code
                    continue
            now = read_clock(self._clock)
            led.shard.perform(led.machine.add_partitions(transactional_id, producer, partitions, waiter, now))
            return await waiter

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """For each partition whether the transaction, open now, has it."""
        if not transactional_id:
            return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
        current = self._leader_of(transactional_id).machine.transactions.get(transactional_id)
        return rules.verify_partitions(current, producer_id, producer_epoch, partitions)

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        is_version_2: bool,
        connection: int | None = None,
    ) -> ProducerGrant:
        """The transaction is decided when this returns; its markers follow. Version 2 gives the epoch for the next.

        In version 1 all transactions of a producer have one epoch: a request that the network kept back until the next
        one is open is known by the `connection` it comes on.
        """
        if not transactional_id:
            return ProducerGrant(ErrorCode.INVALID_REQUEST)
        producer = (producer_id, producer_epoch)
        if not is_version_2 and connection is not None and self._is_late(transactional_id, producer, connection):
            return ProducerGrant(ErrorCode.CONCURRENT_TRANSACTIONS)
        new_producer_id = None
        while True:
            led = self._leader_of(transactional_id)
            waiter = self._waiter()
            now = read_clock(self._clock)
            step = (
                led.machine.end_and_bump(transactional_id, producer, is_commit, new_producer_id, waiter, now)
                if is_version_2
                else led.machine.end(transactional_id, producer, is_commit, waiter, now)
            )
            if not isinstance(step, NeedsProducerId):
                led.shard.perform(step)
                return await waiter
            new_producer_id = await self._new_producer_id()
            if new_producer_id is None:
                return ProducerGrant(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _is_late(self, transactional_id: str, producer: tuple[int, int], connection: int) -> bool:
        if not self._leader_of(transactional_id).machine.is_late(transactional_id, producer, connection):
            return False
        log.warning("a request of %r came too late, on a connection its producer has left", transactional_id)
        return True

    # For operators, metrics and doctor

    def describe(self, transactional_id: str) -> TransactionDescription:
        if not transactional_id:
            raise InvalidRequest("a transactional id needs a name")
        current = self._leader_of(transactional_id).machine.transactions.get(transactional_id)
        if current is None:
            raise TransactionalIdNotFound(transactional_id)
        return _description(transactional_id, current)

    def list_transactions(
        self,
        producer_ids: Collection[int] = (),
        states: Collection[str] = (),
        duration_ms: int = -1,
        matches: Callable[[str], bool] | None = None,
    ) -> list[TransactionDescription]:
        """Those of all ids kept here that pass every filter given. Raises CoordinatorLoadInProgress.

        `duration_ms`: begun longer ago than that; negative for all.
        """
        self._led.check_loaded("transactional ids")
        now_ms = self._clock.now_ms()
        return [
            _description(transactional_id, transaction)
            for transactional_id, transaction in self.transactions()
            if (not producer_ids or transaction.producer_id in producer_ids)
            and (not states or transaction.state.label in states)
            and (duration_ms < 0 or now_ms - transaction.started_ms > duration_ms)
            and (matches is None or matches(transactional_id))
        ]

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        for led in self._led.active():
            yield from led.machine.transactions.items()

    def open_count(self) -> int:
        return sum(len(led.machine.open_since_ms) for led in self._led.active())

    def oldest_open_since_ms(self) -> int | None:
        """When the oldest open transaction began, in wall time."""
        return min((ms for led in self._led.active() for ms in led.machine.open_since_ms.values()), default=None)

    # Inside

    def _leader_of(self, transactional_id: str) -> _Led:
        partition = partition_of(transactional_id, self.partition_count)
        return self._led.at(partition, f"transactional id {transactional_id!r}")

    def _waiter(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _new_producer_id(self) -> int | None:
        try:
            return await self._allocate_producer_id()
        except PenstockError as error:
            # Old clients do not expect REQUEST_TIMED_OUT and die of it (KAFKA-14417); that we load, they believe.
            log.warning("no producer ids to give: %s", error)
            return None

    async def _park(
        self,
        led: _Led,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        deadline_s: float,
    ) -> ErrorCode | None:
        """The code once the id is no longer busy; None if the caller has to ask again."""
        waiter = self._waiter()
        request = PartitionsToAdd(producer, partitions, waiter)

        def give_up() -> None:
            # One that is no longer parked is on its way to the log, and hears from there.
            if led.machine.unpark(transactional_id, request) and not waiter.done():
                waiter.set_result(None)

        led.machine.park(transactional_id, request)
        timer = call_at(self._clock, deadline_s, give_up)
        try:
            return await waiter
        finally:
            timer.cancel()
            led.machine.unpark(transactional_id, request)

    def _moved(self, led: _Led, transactional_id: str, after: Transaction | None) -> None:
        if not led.is_active or after is None:
            return
        if after.state.is_prepared:
            led.run(self._write_and_complete(led, transactional_id, after))
        elif after.state is State.COMPLETE_COMMIT:
            self.committed += 1
        elif after.state is State.COMPLETE_ABORT:
            self.aborted += 1

    async def _write_and_complete(self, led: _Led, transactional_id: str, prepared: Transaction) -> None:
        try:
            await deliver(markers_of(prepared, led.leader_epoch), self._write_markers, self._clock)
        except CoordinatorReplaced as error:
            log.warning("%r is no longer ours to complete: %s", transactional_id, error)
            return
        backoff = Backoff(self._clock)
        transactions = led.machine
        # Still the very state whose markers were sent: nothing else may have moved it, and a refused append has not.
        while transactions.transactions.get(transactional_id) is prepared:
            # Moving: the log is slow to commit, and the record is still on its way.
            if not transactions.is_moving(transactional_id):
                waiter = self._waiter()
                led.shard.perform(transactions.complete(transactional_id, waiter, read_clock(self._clock)))
                try:
                    await waiter
                except PenstockError as error:
                    log.warning("%r could not be completed yet: %s", transactional_id, error)
                else:
                    return
            await backoff.wait()

    def _set_abort_timer(self) -> None:
        interval_s = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000
        self._abort_timer = call_at(self._clock, self._clock.monotonic() + interval_s, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._set_abort_timer()
        now = read_clock(self._clock)
        for led in self._led.active():
            for transactional_id in led.machine.open_since_ms:
                waiter = self._waiter()
                step = led.machine.time_out(transactional_id, waiter, now)
                if step is not None:
                    log.info("the transaction of %r is aborted: its time is up", transactional_id)
                    waiter.add_done_callback(self._count_timed_out)
                    led.shard.perform(step)

    def _count_timed_out(self, prepared: asyncio.Future[Any]) -> None:
        # One that failed is still open, and the next round finds it.
        if prepared.exception() is None:
            self.timed_out += 1

    def _set_expiry_timer(self) -> None:
        interval_s = self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000
        self._expiry_timer = call_at(self._clock, self._clock.monotonic() + interval_s, self._expire)

    def _expire(self) -> None:
        self._set_expiry_timer()
        self._expire_some([(led, name) for led in self._led.active() for name in led.machine.transactions])

    def _expire_some(self, rest: list[tuple[_Led, str]]) -> None:
        """A part of the ids each turn, so that a broker of many ids does not stand still."""
        now = read_clock(self._clock)
        for led, transactional_id in rest[:SWEEP_IDS_PER_TURN]:
            if led.is_active:
                step = led.machine.expire(transactional_id, self._config.transactional_id_expiration_ms, now)
                if step is not None:
                    led.shard.perform(step)
        if len(rest) > SWEEP_IDS_PER_TURN:
            asyncio.get_running_loop().call_soon(self._expire_some, rest[SWEEP_IDS_PER_TURN:])


def _description(transactional_id: str, current: Transaction) -> TransactionDescription:
    return TransactionDescription(
        transactional_id,
        current.producer_id,
        current.producer_epoch,
        current.state.label,
        current.timeout_ms,
        current.started_ms,
        tuple(sorted(current.partitions)),
    )
