"""A streaming query's progress as a consumer group, so that its lag shows wherever lags of groups are looked at.

Called by stream_reader.py (the driver's side) and reading.py (the tasks' side). Checkpoints stay the truth: nobody
reads the group to find out where to go on, and nothing that goes wrong here fails a query.

What is committed: the position that Spark hands to `latestOffset`. Batches run one after the other, so all before it
is done. An idle query asks again and again, so its lag falls to nothing at once. A query with the trigger
`availableNow` asks once more after its last batch, and is then ended by SIGKILL: the reader settles (waits, for a
while) before it says that nothing is left. With the trigger `once` there is no such question, and the last batch shows
as lag until the next run.

Which group: the one the options name, else `spark-<query name>`, which only the tasks know (query_name.py). Until the
driver has learned it, the first task of a batch commits where its partition stood when the batch began, with a token
of this run as the commit's metadata; the driver looks through the groups `spark-*` for its token. A restarted query
that has planned no batch yet looks for the token kept in its checkpoint, with which the driver commits: only a task
knows whether the query has got another name since. No group, topic or file is needed for it that would not be there
anyway.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from penstock.model import TopicPartition
from penstock.spark.options import GROUP_PREFIX, NO_GROUP

if TYPE_CHECKING:
    from penstock.spark.offsets import Position

log = logging.getLogger("penstock.spark")

COMMIT_INTERVAL_S = 1.0
SEARCH_INTERVAL_S = 1.0
SEARCH_INTERVAL_S_MAX = 30.0
SETTLE_DEADLINE_S = 5.0
URGENT_INTERVAL_S = 0.1


class GroupClient(Protocol):
    """What is asked of the cluster: librdkafka's (group_client.py), or a double in tests."""

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None: ...

    def find(self, prefix: str, metadata: str) -> str | None: ...

    def close(self) -> None: ...


class ProgressGroup:
    """Commits in a thread of its own, the last position told, at most once a second."""

    def __init__(
        self, open_client: Callable[[], GroupClient], group: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_client, self._clock = open_client, clock
        self._group = group
        self._is_named = group is not None
        self._run_token = ""
        self._found_by = ""
        self._changed = threading.Condition()
        self._told: Position | None = None
        self._done: Position | None = None
        self._is_urgent = False
        self._may_search = False
        self._is_committing = False
        self._thread: threading.Thread | None = None

    @property
    def must_announce(self) -> bool:
        """Whether tasks have to say what the query is called."""
        return not self._is_named and (self._group is None or self._found_by != self._run_token)

    def announced(self, token: str) -> None:
        """Tasks of a batch that is planned commit with this token: what was found by another may have an old name."""
        with self._changed:
            if self._is_named or token == self._run_token:
                return
            self._run_token, self._group, self._may_search = token, None, True
            self._changed.notify_all()
            # A commit that is still on its way could arrive after the task's, and take its token away again.
            self._changed.wait_for(lambda: not self._is_committing, SETTLE_DEADLINE_S)

    def told(self, position: "Position") -> None:
        """All before `position` is done. Returns at once."""
        # An idle query says the same again and again.
        if self._group == NO_GROUP or not position.offsets or position == self._told:
            return
        with self._changed:
            self._told = position
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-progress", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def may_search(self) -> None:
        """A task may have announced the query by now, or did so in a run before."""
        with self._changed:
            self._may_search = True
            self._changed.notify_all()

    def settle(self, deadline_s: float = SETTLE_DEADLINE_S) -> bool:
        """Wait until what was told is committed; False where it was not in time."""
        end = time.monotonic() + deadline_s
        with self._changed:
            self._is_urgent = True
            self._changed.notify_all()
            while self._told != self._done and self._can_commit() and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            self._is_urgent = False
            return self._told == self._done

    def _run(self) -> None:
        client: GroupClient | None = None
        pause_s, search_pause_s, last_error = 0.0, SEARCH_INTERVAL_S, ""
        while True:
            position = self._next(pause_s)
            pause_s = COMMIT_INTERVAL_S
            try:
                client = client or self._open_client()
                group = self._group or self._find(client, position)
                if group is not None:
                    self._commit(client, group, position)
                else:
                    pause_s, search_pause_s = search_pause_s, min(search_pause_s * 2, SEARCH_INTERVAL_S_MAX)
            except Exception as error:  # whatever it is, the query is not to suffer from it
                if str(error) != last_error:
                    log.warning("the query's progress was not committed to a group, will try again: %s", error)
                last_error = str(error)

    def _commit(self, client: GroupClient, group: str, position: "Position") -> None:
        with self._changed:
            if self._group != group:  # a batch was planned meanwhile
                return
            self._is_committing = True
        try:
            client.commit(group, position.offsets, position.query)
            self._done = position
        finally:
            with self._changed:
                self._is_committing = False
                self._changed.notify_all()

    def _find(self, client: GroupClient, position: "Position") -> str | None:
        token = self._run_token or position.query
        found = client.find(GROUP_PREFIX, token)
        with self._changed:
            if token != (self._run_token or position.query):
                # A batch was planned meanwhile, whose tasks know better.
                return None
            self._group, self._found_by = found, token
        return found

    def _next(self, pause_s: float) -> "Position":
        """The next position to commit, not before the pause is over, unless somebody waits for it."""
        since = self._clock()
        with self._changed:
            while True:
                position = self._told
                if position is None or position == self._done or not self._can_commit():
                    self._changed.wait()
                    continue
                # An urgent one waits a little too: a commit that fails must not spin.
                left = since + (min(pause_s, URGENT_INTERVAL_S) if self._is_urgent else pause_s) - self._clock()
                if left <= 0:
                    return position
                self._changed.wait(left)

    def _can_commit(self) -> bool:
        """Whether the group is known, or could be found."""
        has_token = bool(self._run_token) or (self._told is not None and bool(self._told.query))
        return self._group is not None or (self._may_search and has_token)


def announce(client: GroupClient, label: str, at: TopicPartition, start: int, token: str) -> threading.Thread:
    """From a task: its partition stood at `start` when the batch began. In a thread, for rows should not wait."""

    def commit() -> None:
        try:
            with closing(client):
                client.commit(GROUP_PREFIX + label, {at: start}, token)
        except Exception as error:  # as above
            log.warning("the query %s could not announce its lag's group: %s", label, error)

    thread = threading.Thread(target=commit, name="penstock-announce", daemon=True)
    thread.start()
    return thread
