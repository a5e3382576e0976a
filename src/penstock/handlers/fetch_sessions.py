"""Fetch sessions (KIP-227): a consumer names its partitions once and afterwards sends only what changed.

Called by handlers.fetch. A session belongs to whoever knows its random id; the cache has a fixed number of places, and
a client that finds none simply goes on naming everything.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from uuid import UUID

from penstock.clock import Clock, Rng
from penstock.errors import ErrorCode, PenstockError
from penstock.wire.fetch import FetchPartition, FetchRequest, FetchTopic

SESSIONLESS = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
EVICT_AFTER_S = 120.0
# All sessions together: anybody may open one that names 50,000 partitions, of topics that need not exist.
BYTES_MAX = 16 << 20
PARTITION_BYTES = 450
NAME_CHARACTER_BYTES = 4

TopicKey = str | UUID


class SessionRefused(PenstockError):
    def __init__(self, code: ErrorCode, what: str) -> None:
        super().__init__(what)
        self.code = code


@dataclass(slots=True)
class Wanted:
    """One partition a fetch is about, and what the client was last told of it."""

    topic: TopicKey
    ask: FetchPartition
    high_watermark: int = -1
    log_start: int = -1

    @property
    def key(self) -> Hashable:
        return (self.topic, self.ask.partition)

    @property
    def size(self) -> int:
        """About how many bytes a session needs to remember it."""
        return PARTITION_BYTES + (NAME_CHARACTER_BYTES * len(self.topic) if isinstance(self.topic, str) else 0)


@dataclass(slots=True)
class FetchSession:
    id: int
    epoch: int
    uses_topic_ids: bool
    last_used: float
    partitions: dict[Hashable, Wanted]
    size: int


@dataclass(slots=True)
class FetchPlan:
    """What to read for one request. `session` is None when the client goes without."""

    wanted: list[Wanted]
    session: FetchSession | None
    is_incremental: bool


class FetchSessions:
    def __init__(self, clock: Clock, rng: Rng, slots_max: int) -> None:
        self._clock = clock
        self._rng = rng
        self._slots_max = slots_max
        self._sessions: dict[int, FetchSession] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, uses_topic_ids: bool) -> FetchPlan:
        """Which partitions this request is about, after it has had its effect on its session."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            earlier = self._sessions.get(request.session_id)
            if earlier is not None:
                self.end(earlier)
            wanted = _named(request.topics)
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._open(wanted, uses_topic_ids)
            return FetchPlan(wanted, session, is_incremental=False)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if session.epoch != request.session_epoch:
            raise SessionRefused(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {request.session_epoch}",
            )
        if session.uses_topic_ids != uses_topic_ids:
            raise SessionRefused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a session keeps to names or to topic ids")
        session.epoch = session.epoch + 1 if session.epoch < EPOCH_MAX else 1
        session.last_used = self._clock.monotonic()
        self._update(session, request)
        return FetchPlan(list(session.partitions.values()), session, is_incremental=True)

    def served(self, session: FetchSession, wanted: Iterable[Wanted]) -> None:
        """Put partitions that gave data behind the others, so that a busy one can't starve the rest."""
        for each in wanted:
            if session.partitions.pop(each.key, None) is not None:
                session.partitions[each.key] = each

    def end(self, session: FetchSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            self._size -= session.size

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        """Take in what a request changes about its session."""
        for wanted in _named(request.topics):
            known = session.partitions.get(wanted.key)
            if known is None:
                session.partitions[wanted.key] = wanted
                session.size += wanted.size
                self._size += wanted.size
            else:
                known.ask = wanted.ask
        for topic in request.forgotten_topics:
            for index in topic.partitions:
                gone = session.partitions.pop((_topic_key(topic.name, topic.topic_id), index), None)
                if gone is not None:
                    session.size -= gone.size
                    self._size -= gone.size
        if self._size > BYTES_MAX and not self._make_room(0, session.last_used):
            self.end(session)
            raise SessionRefused(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no room for fetch session {session.id} to grow"
            )

    def _open(self, wanted: list[Wanted], uses_topic_ids: bool) -> FetchSession | None:
        now = self._clock.monotonic()
        partitions = {each.key: each for each in wanted}
        size = sum(each.size for each in partitions.values())
        if not self._make_room(size, now):
            return None
        while len(self._sessions) >= self._slots_max:
            if not self._evict_one(now):
                return None
        session_id = SESSIONLESS
        while session_id == SESSIONLESS or session_id in self._sessions:
            session_id = self._rng.below(EPOCH_MAX) + 1
        session = FetchSession(session_id, 1, uses_topic_ids, now, partitions, size)
        self._sessions[session_id] = session
        self._size += size
        return session

    def _make_room(self, size: int, now: float) -> bool:
        while size <= BYTES_MAX < self._size + size:
            if not self._evict_one(now):
                return False
        return size <= BYTES_MAX

    def _evict_one(self, now: float) -> bool:
        """Make room by ending the session that was idle longest, if it was idle long enough."""
        oldest = min(self._sessions.values(), key=lambda session: session.last_used, default=None)
        if oldest is None or now - oldest.last_used < EVICT_AFTER_S:
            return False
        self.end(oldest)
        return True


def _named(topics: list[FetchTopic]) -> list[Wanted]:
    return [
        Wanted(_topic_key(topic.name, topic.topic_id), partition) for topic in topics for partition in topic.partitions
    ]


def _topic_key(name: str | None, topic_id: UUID | None) -> TopicKey:
    key = name if name is not None else topic_id
    assert key is not None
    return key
