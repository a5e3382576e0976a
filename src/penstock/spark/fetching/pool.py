"""Connections to the brokers of one cluster, lent to one thread at a time and kept for the next.

Called by fetching.cluster and, through it, by fetching.partition_fetcher; safe for threads.
Laws:
- A connection is used by one borrower; a broken one is closed when it comes back, never lent again.
- What went wrong last at each place is remembered, for the one sentence that tells the user.
"""

import contextlib
import random
import threading
import time
from collections.abc import Generator, Iterable

from penstock.errors import MalformedFrame
from penstock.model import Endpoint
from penstock.spark.errors import SparkFailure, Unreachable
from penstock.spark.fetching.connection import BrokerConnection
from penstock.spark.fetching.errors import NotAdmitted
from penstock.spark.fetching.settings import ConnectionSettings
from penstock.spark.fetching.tls import HandshakeBroken

# What another try, perhaps at another broker, may mend.
PASSING = (OSError, MalformedFrame)
# A port that hangs up whenever TLS begins is a plaintext port; a broker that does so is going down, and back soon.
_BROKEN_HANDSHAKES_MAX = 4


class ConnectionPool:
    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._bootstrap = [Endpoint(host, port) for host, port in settings.bootstrap]
        self._brokers: dict[int, Endpoint] = {}
        self._idle: dict[Endpoint, list[BrokerConnection]] = {}
        self._lock = threading.Lock()
        self._failures: dict[Endpoint, str] = {}
        self._broken_handshakes = 0
        self._has_connected = False
        self._is_closed = False

    def learn(self, brokers: dict[int, Endpoint]) -> None:
        """Where the brokers are now. An empty answer, of a broker that knows nothing yet, teaches nothing."""
        if brokers:
            with self._lock:
                self._brokers = brokers

    @contextlib.contextmanager
    def lend(self, node_id: int) -> Generator[BrokerConnection]:
        endpoint = self._brokers.get(node_id)
        if endpoint is None:
            raise ConnectionError(f"broker {node_id} is not registered")
        connection = self._take(endpoint)
        with self._lent(connection):
            yield connection

    @contextlib.contextmanager
    def lend_any(self, *, prefers_idle: bool, patience_s: float) -> Generator[BrokerConnection]:
        """To whichever broker answers first; the last error if none does, or none of those there was time for."""
        deadline = time.monotonic() + patience_s
        connection: BrokerConnection | None = None
        failure: Exception | None = None
        for endpoint in self._places(prefers_idle):
            try:
                connection = self._take(endpoint)
                break
            except PASSING as error:
                failure = error
                if time.monotonic() >= deadline:
                    break
        if connection is None:
            raise failure or ConnectionError("no broker is known")
        with self._lent(connection):
            yield connection

    def unreachable(self, what: str, waited_s: float, last: object = None) -> Unreachable:
        """The error for whoever gave up: what was wanted, where it was tried, and what came of it."""
        with self._lock:
            failures = dict(self._failures)
        reasons = [f"{endpoint}: {why}" for endpoint, why in failures.items()]
        if last and not any(why in str(last) for why in failures.values()):
            reasons.insert(0, str(last))
        brokers = ", ".join(map(str, self._bootstrap))
        told = "; ".join(reasons) or "no answer"
        return Unreachable(f"{what} failed for {waited_s:.0f} s (kafka.bootstrap.servers {brokers}): {told}")

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _places(self, prefers_idle: bool) -> Iterable[Endpoint]:
        with self._lock:
            idle = [endpoint for endpoint, connections in self._idle.items() if connections] if prefers_idle else []
            known = list(self._brokers.values())
            failed = set(self._failures)
        random.shuffle(idle)
        random.shuffle(known)
        bootstrap = random.sample(self._bootstrap, len(self._bootstrap))
        # Where it went wrong last is tried last: a machine that is silent costs its whole time-out each time.
        return sorted(dict.fromkeys((*idle, *known, *bootstrap)), key=failed.__contains__)

    def _take(self, endpoint: Endpoint) -> BrokerConnection:
        now = time.monotonic()
        with self._lock:
            if self._is_closed:
                raise NotAdmitted("the connections to this cluster were closed here")
            idle = self._idle.get(endpoint, [])
            while idle:
                connection = idle.pop()
                if connection.expires_at > now:
                    return connection
                connection.close()
        try:
            connection = BrokerConnection.connect(endpoint, self._settings)
        except PASSING as error:
            self._note(endpoint, error)
            if isinstance(error, HandshakeBroken) and not self._has_connected:
                self._broken_handshakes += 1
                if self._broken_handshakes >= _BROKEN_HANDSHAKES_MAX:
                    raise NotAdmitted(str(error)) from error
            raise
        self._has_connected = True
        return connection

    @contextlib.contextmanager
    def _lent(self, connection: BrokerConnection) -> Generator[None]:
        try:
            yield
        except (*PASSING, SparkFailure) as error:
            self._note(connection.endpoint, error)
            raise
        else:
            with self._lock:
                self._failures.pop(connection.endpoint, None)
        finally:
            with self._lock:
                is_kept = not connection.is_broken and not self._is_closed
                if is_kept:
                    self._idle.setdefault(connection.endpoint, []).append(connection)
            if not is_kept:
                connection.close()

    def _note(self, endpoint: Endpoint, error: BaseException) -> None:
        text = str(error) or type(error).__name__
        with self._lock:
            self._failures[endpoint] = text.removeprefix(f"{endpoint} ")
