"""Client quotas: how much a user, a client id or an address may ask for, and how long it waits after asking for more.

Called by handlers (bytes, changes of topics), server (time of the loop, new connections) and broker.py (replace).
Limits, their order of precedence and the arithmetic are Kafka's. Amounts are recorded first and judged after, so one
request may go over; the wait makes up for it.
Invariants:
- A kind of quota nobody has set is None: its cost on the walk is one test.
- Memory is bounded whatever client ids are sent: SENSORS_MAX of each kind, and idle ones go.
- Time is handed in, in monotonic seconds, and never goes back.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from penstock.errors import InvalidRequest
from penstock.model import Principal

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
CLIENT_KEYS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE})
IP_KEYS = frozenset({CONNECTION_CREATION_RATE})
# The others may have a fraction.
WHOLE_KEYS = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})

SENSORS_MAX = 10_000
THROTTLE_MS_MAX = 2**31 - 1

# Whom a quota is for: pairs of USER, CLIENT_ID or IP and a name; None stands for all that have none of their own.
Entity = frozenset[tuple[str, str | None]]
Limits = Mapping[Entity, float]
# Who shares one measurement: user and client id, "" where the limit does not tell them apart; or an address.
_Sharer = tuple[str, str]


class Quotas:
    """All quotas of a broker; each attribute is None while no quota of that kind exists."""

    __slots__ = ("_controller_window", "_window", "connections", "controller", "fetch", "produce", "request")

    def __init__(self, window: tuple[int, float] = (11, 1.0), controller_window: tuple[int, float] = (11, 1.0)) -> None:
        """A window: how many samples are kept, and how many seconds each is long."""
        self.produce: RateQuota | None = None
        self.fetch: RateQuota | None = None
        # The amount is the loop's time in seconds, times 100: at 100 a client may keep one broker's loop busy.
        self.request: RateQuota | None = None
        self.controller: MutationQuota | None = None
        self.connections: ConnectionQuota | None = None
        self._window = window
        self._controller_window = controller_window

    def replace(self, entries: Mapping[Entity, Mapping[str, float]]) -> None:
        """Take the quotas the metadata holds now. What clients have used so far keeps counting."""
        limits: dict[str, dict[Entity, float]] = {key: {} for key in CLIENT_KEYS | IP_KEYS}
        for entity, values in entries.items():
            for key, value in values.items():
                # A key of a newer version must not keep this one from starting.
                if key in limits:
                    limits[key][entity] = value
        self.produce = self._rate_quota(self.produce, limits[PRODUCER_BYTE_RATE], math.inf)
        self.fetch = self._rate_quota(self.fetch, limits[CONSUMER_BYTE_RATE], math.inf)
        # A request that was slow once must not silence its client for longer than a window.
        self.request = self._rate_quota(self.request, limits[REQUEST_PERCENTAGE], self._window[1])
        self.controller, mutations = None, self.controller
        if limits[CONTROLLER_MUTATION_RATE]:
            self.controller = mutations or MutationQuota(self._controller_window)
            self.controller.limits = _ClientLimits(limits[CONTROLLER_MUTATION_RATE])
        self.connections, connections = None, self.connections
        if limits[CONNECTION_CREATION_RATE]:
            self.connections = connections or ConnectionQuota(self._window)
            self.connections.limits = limits[CONNECTION_CREATION_RATE]

    def _rate_quota(self, quota: "RateQuota | None", limits: Limits, throttle_seconds_max: float) -> "RateQuota | None":
        if not limits:
            return None
        quota = quota or RateQuota(self._window, throttle_seconds_max)
        quota.limits = _ClientLimits(limits)
        return quota


class RateQuota:
    """A rate each client may keep up, measured over the last windows."""

    __slots__ = ("_amount_seconds", "_sensors", "limits", "throttle_seconds_max")

    def __init__(self, window: tuple[int, float], throttle_seconds_max: float = math.inf) -> None:
        self.limits = _ClientLimits({})
        self.throttle_seconds_max = throttle_seconds_max
        self._sensors = _Sensors(window)
        self._amount_seconds = max(1, window[0] - 1) * window[1]

    def record(self, principal: Principal, client_id: str | None, amount: float, now: float) -> int:
        """Count what a client used; gives how many milliseconds it must wait, 0 while within its quota."""
        found = self.limits.find(principal.name, client_id or "")
        if found is None:
            return 0
        sharer, limit = found
        excess = self._sensors.of(sharer, now).record(amount, limit, now)
        return _milliseconds(min(excess, self.throttle_seconds_max))

    def unrecord(self, principal: Principal, client_id: str | None, amount: float, now: float) -> None:
        """Take back what was recorded but not given: a throttled fetch is answered empty."""
        self.record(principal, client_id, -amount, now)

    def amount_max(self, principal: Principal, client_id: str | None) -> float:
        """More than this in one go is over the quota even after silence; a fetch is cut to it."""
        found = self.limits.find(principal.name, client_id or "")
        return math.inf if found is None else found[1] * self._amount_seconds


class MutationQuota:
    """Topics and partitions a client may create or delete: a bucket that refills at the limit (KIP-599)."""

    __slots__ = ("_buckets", "_burst_seconds", "limits")

    def __init__(self, window: tuple[int, float]) -> None:
        self.limits = _ClientLimits({})
        self._burst_seconds = window[0] * window[1]
        # Mutations left, as of, refilled at; the client used last stands last.
        self._buckets: dict[_Sharer, tuple[float, float, float]] = {}

    def exceeded_ms(self, principal: Principal, client_id: str | None, now: float) -> int:
        """How long a client must wait before it may change anything; 0 when it may."""
        return self.record(principal, client_id, 0, now)

    def record(self, principal: Principal, client_id: str | None, mutations: int, now: float) -> int:
        """Count changes made; gives how many milliseconds to wait. Who has any left may overdraw once."""
        found = self.limits.find(principal.name, client_id or "")
        if found is None:
            return 0
        sharer, limit = found
        burst = limit * self._burst_seconds
        left, since, _ = self._buckets.pop(sharer, (burst, now, limit))
        left = min(burst, left + limit * (now - since)) - mutations
        self._buckets[sharer] = (left, now, limit)
        if len(self._buckets) > SENSORS_MAX:
            self._sweep(now)
        # Rounded up: told 0, a client would take it for leave.
        return min(math.ceil(-left / limit * 1000), THROTTLE_MS_MAX) if left < 0 else 0

    def _sweep(self, now: float) -> None:
        # A full bucket is like a new one, so forgetting it changes no answer.
        self._buckets = {
            sharer: (left, since, limit)
            for sharer, (left, since, limit) in self._buckets.items()
            if left + limit * (now - since) < limit * self._burst_seconds
        }
        while len(self._buckets) > SENSORS_MAX:
            del self._buckets[next(iter(self._buckets))]


class ConnectionQuota:
    """New connections a second from one address."""

    __slots__ = ("_sensors", "_throttle_seconds_max", "limits")

    def __init__(self, window: tuple[int, float]) -> None:
        self.limits: Limits = {}
        self._throttle_seconds_max = window[1]
        self._sensors = _Sensors(window)

    def record(self, address: str, now: float) -> int:
        """Count a new connection; gives for how many milliseconds it is to be held back before it is closed."""
        limit = self.limits.get(frozenset({(IP, address)}))
        if limit is None:
            limit = self.limits.get(frozenset({(IP, None)}))
        if limit is None:
            return 0
        sensor = self._sensors.of((IP, address), now)
        excess = sensor.record(1, limit, now)
        if excess > 0:
            # A connection that was refused does not count against the next one.
            sensor.record(-1, limit, now)
        return _milliseconds(min(excess, self._throttle_seconds_max))


class _ClientLimits:
    """Which limit applies to a client, and with whom it shares it: of Kafka's eight levels the first that exists."""

    __slots__ = ("_found", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._found: dict[tuple[str, str], tuple[_Sharer, float] | None] = {}

    def find(self, user: str, client_id: str) -> tuple[_Sharer, float] | None:
        client = (user, client_id)
        if client not in self._found:
            if len(self._found) >= SENSORS_MAX:
                self._found.clear()
            self._found[client] = self._look_up(user, client_id)
        return self._found[client]

    def _look_up(self, user: str, client_id: str) -> tuple[_Sharer, float] | None:
        # Sharers of different levels must not meet: a user named "" is not everybody.
        levels: tuple[tuple[tuple[tuple[str, str | None], ...], _Sharer], ...] = (
            (((USER, user), (CLIENT_ID, client_id)), (f"u{user}", f"c{client_id}")),
            (((USER, user), (CLIENT_ID, None)), (f"u{user}", f"c{client_id}")),
            (((USER, user),), (f"u{user}", "")),
            (((USER, None), (CLIENT_ID, client_id)), (f"u{user}", f"c{client_id}")),
            (((USER, None), (CLIENT_ID, None)), (f"u{user}", f"c{client_id}")),
            (((USER, None),), (f"u{user}", "")),
            (((CLIENT_ID, client_id),), ("", f"c{client_id}")),
            (((CLIENT_ID, None),), ("", f"c{client_id}")),
        )
        for entity, sharer in levels:
            limit = self._limits.get(frozenset(entity))
            if limit is not None:
                return sharer, limit
        return None


class _Sensors:
    """One sensor for each sharer that was active lately."""

    __slots__ = ("_sensors", "_sweep_at", "_window")

    def __init__(self, window: tuple[int, float]) -> None:
        self._window = window
        self._sensors: dict[_Sharer, RateSensor] = {}
        self._sweep_at = -math.inf

    def __len__(self) -> int:
        return len(self._sensors)

    def of(self, sharer: _Sharer, now: float) -> "RateSensor":
        if now >= self._sweep_at:
            self._sweep(now)
        sensor = self._sensors.get(sharer)
        if sensor is None:
            if len(self._sensors) >= SENSORS_MAX:
                del self._sensors[next(iter(self._sensors))]
            sensor = self._sensors[sharer] = RateSensor(*self._window)
        return sensor

    def _sweep(self, now: float) -> None:
        # A sensor without a sample left counts like a new one, so forgetting it changes no answer.
        span = self._window[0] * self._window[1]
        self._sweep_at = now + span
        self._sensors = {sharer: sensor for sharer, sensor in self._sensors.items() if now - sensor.last_used < span}


class RateSensor:
    """What was used lately, in samples of one window each."""

    __slots__ = ("_samples", "last_used", "window_num", "window_seconds")

    def __init__(self, window_num: int, window_seconds: float) -> None:
        self.window_num = window_num
        self.window_seconds = window_seconds
        self.last_used = -math.inf
        # [start, last use, amount], oldest first; one more than the windows, since the oldest still overlaps them.
        self._samples: deque[list[float]] = deque(maxlen=window_num + 1)

    def record(self, amount: float, limit: float, now: float) -> float:
        """Count an amount; gives how many seconds longer all of it should have taken at the limit."""
        samples = self._samples
        while samples and now - samples[0][1] >= self.window_num * self.window_seconds:
            samples.popleft()
        if not samples or now - samples[-1][0] >= self.window_seconds:
            samples.append([now, now, 0.0])
        sample = samples[-1]
        sample[1] = self.last_used = now
        sample[2] += amount
        elapsed = now - samples[0][0]
        # Windows before the first sample count as quiet ones, so that a burst after silence is not taken for a rate.
        missing = self.window_num - 1 - int(elapsed / self.window_seconds)
        if missing > 0:
            elapsed += missing * self.window_seconds
        # From rate = used / elapsed and wait = (rate - limit) / limit * elapsed.
        return sum(sample[2] for sample in samples) / limit - elapsed


def validate_quota(entity: Iterable[tuple[str, str | None]], key: str, value: float) -> None:
    """Refuse a quota that AlterClientQuotas may not set; raises InvalidRequest."""
    kinds = [kind for kind, _ in entity]
    if not kinds or len(set(kinds)) != len(kinds) or not set(kinds) <= {USER, CLIENT_ID, IP}:
        raise InvalidRequest(
            f"a quota is for a user, a client-id, both, or an ip, not for {', '.join(kinds) or 'nobody'}"
        )
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequest("a quota for an ip cannot also be for a user or a client-id")
    for kind, name in entity:
        if name == "":
            raise InvalidRequest(f"the {kind} of a quota is empty; leave it out for the default")
        if kind == IP and name is not None:
            try:
                ip_address(name)
            except ValueError:
                raise InvalidRequest(f"{name!r} is not an IP address") from None
    keys = IP_KEYS if IP in kinds else CLIENT_KEYS
    if key not in keys:
        raise InvalidRequest(f"{key!r} is not a quota of {' and '.join(kinds)}; there are {', '.join(sorted(keys))}")
    if not (math.isfinite(value) and value > 0):
        raise InvalidRequest(f"{key} = {value}: a quota is a number above 0")
    if key in WHOLE_KEYS and value != int(value):
        raise InvalidRequest(f"{key} = {value}: a whole number is needed")


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), THROTTLE_MS_MAX) if seconds > 0 else 0
