"""What to ask next of a partition's leader, and what to make of the answer.

Called by fetching.partition_fetcher, on its thread; `abort` alone comes from another one.
Laws:
- The position moves only over whole batches, by their last offset, and only forward.
- Errors that pass are ridden out until there was no progress for the deadline.
- A broker's silence is no proof that nothing is there: offsets are passed over when a batch behind them shows it, and
  at the very end of a log, where none can, after SILENCE_S.
"""

import threading
import time
from uuid import UUID

from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.spark.fetching.batch_heads import first_offset, next_offset
from penstock.spark.fetching.chunk import FetchedChunk
from penstock.spark.fetching.cluster import Absence, Cluster, check_code, error_name
from penstock.spark.fetching.connection import BrokerConnection
from penstock.spark.fetching.errors import FetchRefused, NotYetReadable, OffsetGone, TopicGone
from penstock.spark.fetching.fetch_messages import (
    NAMED_VERSION_MAX,
    VERSION_MAX,
    VERSION_MIN,
    Answered,
    Asked,
    encode_fetch,
    is_flexible,
    parse_fetch,
)
from penstock.spark.fetching.metadata import Leader
from penstock.spark.fetching.patience import Patience
from penstock.spark.fetching.pool import PASSING
from penstock.wire.apis import ApiKey

MAX_WAIT_MS = 500
# After so many empty answers in a row, the log itself is looked at.
SILENCES_MAX = 4
# So long the end of a log stays silent before it counts as compacted away: nothing lies behind it that would prove it.
SILENCE_S = 10.0
# A leader that has just been elected may not know yet how much of its log is committed.
BEYOND_END_PATIENCE_S = 10.0
_ASK_BYTES_MIN = 64 * 1024
_ROW_BYTES_GUESS = 1024
_ASK_BYTES_MAX = 256 * 1024 * 1024
_THROTTLE_MAX_S = 5.0


class FetchSteps:
    def __init__(
        self,
        cluster: Cluster,
        at: TopicPartition,
        topic_id: UUID | None,
        start: int,
        end: int,
        *,
        is_committed: bool,
        max_bytes: int,
        deadline_s: float,
        is_closed: threading.Event,
    ) -> None:
        self._cluster, self._at, self._topic_id = cluster, at, topic_id
        self.position, self._end = start, end
        self._is_committed = is_committed
        self._max_bytes = max_bytes
        self._ask_bytes = min(max_bytes, max(_ASK_BYTES_MIN, (end - start) * _ROW_BYTES_GUESS))
        self._is_closed = is_closed
        self._patience = Patience(deadline_s, is_closed)
        self._absence = Absence()
        self._beyond_end_since: float | None = None
        self._nothing_came = 0
        self._silent_since = 0.0
        self._last_error: object = None
        self._is_by_name = False
        self._is_dead_end = False
        self._connection: BrokerConnection | None = None

    def step(self) -> FetchedChunk | None:
        """The next chunk; None when `end` is reached or the fetcher was closed."""
        # What the reader took for the chunk before is not the broker's fault.
        self._patience.begin()
        while self.position < self._end and not self._is_closed.is_set():
            if self._is_dead_end:
                raise FetchRefused(f"{self._at}: behind offset {self.position} the broker sent no record batches")
            try:
                answered = self._ask()
            except PASSING as error:
                if self._is_closed.is_set():
                    break
                self._last_error = error
                self._cluster.forget([self._at])
                self._wait()
                continue
            if answered is not None:
                chunk = self._take(answered)
                if chunk is not None:
                    return chunk
        if self._is_by_name and not self._is_closed.is_set():
            self._confirm_topic()
        return None

    def abort(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.abort()

    def _ask(self) -> Answered | None:
        leader = self._cluster.leader(self._at, self._patience)
        if leader is None or (self._topic_id is not None and leader.topic_id not in (None, self._topic_id)):
            self._cluster.forget([self._at])
            self._not_there()
            return None
        self._absence.ended(self._at)
        if self._topic_id is None:
            self._topic_id = leader.topic_id
        if leader.node_id < 0:
            self._last_error = f"{self._at} has no leader"
            self._wait()
            return None
        with self._cluster.pool.lend(leader.node_id) as connection:
            self._connection = connection
            try:
                return self._fetch(connection, leader)
            finally:
                self._connection = None

    def _fetch(self, connection: BrokerConnection, leader: Leader) -> Answered:
        high = NAMED_VERSION_MAX if self._topic_id is None else VERSION_MAX
        version = connection.version(ApiKey.FETCH, VERSION_MIN, high)
        self._is_by_name |= version <= NAMED_VERSION_MAX and self._topic_id is not None
        asked = Asked(
            self._at.topic,
            self._topic_id,
            self._at.partition,
            leader.epoch,
            self.position,
            self._ask_bytes,
            MAX_WAIT_MS,
            self._is_committed and not self._is_probing,
        )
        body = connection.call(ApiKey.FETCH, version, encode_fetch(version, asked), is_flexible=is_flexible(version))
        return parse_fetch(version, asked, body)

    def _take(self, answered: Answered) -> FetchedChunk | None:
        code = answered.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return None
        if code != ErrorCode.NONE:
            check_code(code, self._at)
            self._last_error = f"{self._at}: {error_name(code)}"
            # Whatever it is, another look at who leads does no harm; most of what passes is about that.
            self._cluster.forget([self._at])
            self._wait()
            return None
        self._beyond_end_since = None
        if len(answered.records):
            if self._is_probing:
                self._prove_gap(answered.records)
                return None
            return self._advance(answered)
        self._without_records(answered)
        return None

    def _advance(self, answered: Answered) -> FetchedChunk | None:
        reached, is_wrong = next_offset(answered.records)
        if reached is None and not is_wrong:
            # Only a part of one batch: brokers since Kafka 0.10.1 send the first one whole, however large it is.
            self._ask_bytes = min(self._ask_bytes * 2, _ASK_BYTES_MAX)
            self._last_error = f"a batch at offset {self.position} is larger than {self._ask_bytes} bytes"
            self._wait()
            return None
        if reached is not None and reached <= self.position and not is_wrong:
            raise FetchRefused(f"{self._at}: asked for offset {self.position}, the broker sent what lies before it")
        if reached is not None:
            self._expect(len(answered.records), reached - self.position)
            self.position = reached
        # Whoever decodes the chunk says better what is wrong with it, and there is no way on behind it.
        self._is_dead_end = is_wrong
        self._nothing_came = 0
        return FetchedChunk(
            answered.records, list(answered.aborted), answered.log_start, answered.last_stable, answered.high_watermark
        )

    def _expect(self, size: int, offsets: int) -> None:
        """Ask for about as much as is left to read: what comes behind `end` would be fetched in vain."""
        left = (self._end - self.position - offsets) * size // max(offsets, 1)
        self._ask_bytes = min(self._max_bytes, max(_ASK_BYTES_MIN, left + left // 8))

    def _without_records(self, answered: Answered) -> None:
        if not answered.is_there or answered.preferred_replica >= 0 or answered.throttle_ms > 0:
            # Left out of the answer, or empty with a time to wait: that is how brokers throttle. Sent elsewhere: only
            # where a broker's own selector of replicas does so unasked. None of it says that there is nothing.
            self._last_error = "the broker throttles this client (its quota), or sends it to another replica"
            self._is_closed.wait(min(answered.throttle_ms / 1000, _THROTTLE_MAX_S))
            self._wait()
            return
        # Some brokers tell the last stable offset only to who asked for committed records.
        is_stable = self._is_committed and not self._is_probing
        readable_end = answered.last_stable if is_stable else answered.high_watermark
        if readable_end >= self._end:
            self._silent()
            return
        self._nothing_came = 0
        if self._patience.is_spent:
            if answered.high_watermark < self._end:
                self._check_end()
            raise NotYetReadable(self._at, self.position, readable_end, self._end, self._patience.spent_s)
        # The broker waited MAX_WAIT_MS already; one that did not must not be asked without end.
        self._last_error = f"readable up to offset {readable_end} only"
        self._patience.pause()

    @property
    def _is_probing(self) -> bool:
        """Whether what is asked for next is a look at the log, open transactions and all, and not records to hand on.

        Behind the last stable offset there may be the batch which shows that nothing lies before it.
        """
        return self._nothing_came > 0 and self._nothing_came % SILENCES_MAX == 0

    def _silent(self) -> None:
        """Readable, and yet nothing came: compacted away, or a broker that is short of memory or waits for a disk."""
        now = time.monotonic()
        if self._nothing_came == 0:
            self._silent_since = now
        self._nothing_came += 1
        if self._nothing_came > SILENCES_MAX and now - self._silent_since >= SILENCE_S and self._ends()[1] == self._end:
            self.position = self._end
            return
        self._last_error = f"the broker says that offsets up to {self._end} are readable, and sends none"
        self._wait()

    def _prove_gap(self, records: memoryview) -> None:
        """What lies first from the position on, of whatever transaction."""
        first = first_offset(records)
        if first is not None and first >= self._end:
            self.position = self._end
            return
        self._nothing_came += 1
        self._last_error = f"the broker has records from offset {first} on, and does not send them"
        self._wait()

    def _check_end(self) -> None:
        """Raise if the log was cut before `end`: whoever leads now never had what is missing."""
        log_start, log_end = self._ends()
        # What is still there of an open transaction is not gone.
        if self.position >= log_end and log_end < self._end:
            raise OffsetGone(self._at, self.position, log_start, log_end)

    def _out_of_range(self) -> None:
        log_start, log_end = self._ends()
        now = time.monotonic()
        if self._beyond_end_since is None:
            self._beyond_end_since = now
        is_lasting = now - self._beyond_end_since >= BEYOND_END_PATIENCE_S
        if self.position < log_start or (self.position > log_end and is_lasting):
            raise OffsetGone(self._at, self.position, log_start, log_end)
        self._last_error = f"offset {self.position} is outside {log_start} to {log_end}"
        self._cluster.forget([self._at])
        self._wait()

    def _ends(self) -> tuple[int, int]:
        earliest, _ = self._cluster.list_offsets({self._at: -2}, "read_uncommitted")[self._at]
        latest, _ = self._cluster.list_offsets({self._at: -1}, "read_uncommitted")[self._at]
        return earliest, latest

    def _confirm_topic(self) -> None:
        """Read by name, though the topic has an id: what was read is only right if it is still the same topic."""
        self._patience.begin()
        while not self._is_closed.is_set():
            self._cluster.forget([self._at])
            try:
                leader = self._cluster.leader(self._at, self._patience)
            except PASSING as error:
                self._last_error = error
                self._wait()
                continue
            if leader is not None and leader.topic_id in (None, self._topic_id):
                return
            self._not_there()

    def _not_there(self) -> None:
        if self._absence.is_certain(self._at):
            raise TopicGone(self._at)
        self._last_error = f"{self._at} is not there"
        self._wait()

    def _wait(self) -> None:
        if self._patience.is_spent:
            what = f"reading {self._at} at offset {self.position}"
            raise self._cluster.pool.unreachable(what, self._patience.spent_s, self._last_error)
        self._patience.pause()
