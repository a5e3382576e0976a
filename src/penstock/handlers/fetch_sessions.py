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


@dataclass(slots=True)
class FetchSession:
    id: int
    epoch: int
    uses_topic_ids: bool
    last_used: float
    partitions: dict[Hashable, Wanted]


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

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, uses_topic_ids: bool) -> FetchPlan:
        """Which partitions this request is about, after it has had its effect on its session."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(request.session_id, None)
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
        for wanted in _named(request.topics):
            known = session.partitions.get(wanted.key)
            if known is None:
                session.partitions[wanted.key] = wanted
            else:
                known.ask = wanted.ask
        for topic in request.forgotten_topics:
            for index in topic.partitions:
                session.partitions.pop((_topic_key(topic.name, topic.topic_id), index), None)
        return FetchPlan(list(session.partitions.values()), session, is_incremental=True)

    def served(self, session: FetchSession, wanted: Iterable[Wanted]) -> None:
        """Put partitions that gave data behind the others, so that a busy one can't starve the rest."""
        for each in wanted:
            if session.partitions.pop(each.key, None) is not None:
                session.partitions[each.key] = each

    def _open(self, wanted: list[Wanted], uses_topic_ids: bool) -> FetchSession | None:
        now = self._clock.monotonic()
        if len(self._sessions) >= self._slots_max and not self._evict_one(now):
            return None
        session_id = SESSIONLESS
        while session_id == SESSIONLESS or session_id in self._sessions:
            session_id = self._rng.below(EPOCH_MAX) + 1
        session = FetchSession(session_id, 1, uses_topic_ids, now, {each.key: each for each in wanted})
        self._sessions[session_id] = session
        return session

    def _evict_one(self, now: float) -> bool:
        """Make room by ending the session that was idle longest, if it was idle long enough."""
        oldest = min(self._sessions.values(), key=lambda session: session.last_used, default=None)
        if oldest is None or now - oldest.last_used < EVICT_AFTER_S:
            return False
        del self._sessions[oldest.id]
        return True


def _named(topics: list[FetchTopic]) -> list[Wanted]:
    return [
        Wanted(_topic_key(topic.name, topic.topic_id), partition) for topic in topics for partition in topic.partitions
    ]


def _topic_key(name: str | None, topic_id: UUID | None) -> TopicKey:
    key = name if name is not None else topic_id
    assert key is not None
    return key
