"""The clients that ask and push: what each is asked for, and whether it is time for its next word.

Called by handlers.telemetry. Plain rules from state and time: nothing here waits or reads a clock.
Invariants:
- At most INSTANCES_MAX are known; past that the one silent for longest is forgotten, which only costs it a question.
- An instance silent for three of its intervals, and a minute at least, is forgotten.
- Between two pushes lies an interval; the first after a question may come at once, since clients spread it themselves.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.errors import (
    ErrorCode,
    InvalidRequest,
    PenstockError,
    ThrottlingQuotaExceeded,
)
from penstock.telemetry.subscriptions import Subscriptions, Wish

INSTANCES_MAX = 4_096
SILENCE_S_MIN = 60.0
SILENCE_INTERVALS = 3
NEVER = float("-inf")
# After one of these a client asks anew at once, and is right to do so.
_ASKS_ANEW = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


class UnknownSubscriptionId(PenstockError):
    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class TelemetryTooLarge(PenstockError):
    code = ErrorCode.TELEMETRY_TOO_LARGE


class Client(NamedTuple):
    """What is known of whoever is at the other end of a connection."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int

    def facts(self, instance_id: UUID) -> Mapping[str, str]:
        return {
            "client_instance_id": str(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


class Instance:
    __slots__ = (
        "asked_at",
        "client",
        "id",
        "is_ended",
        "last_error",
        "last_heard",
        "pushed_at",
        "revision",
        "wish",
    )

    def __init__(self, instance_id: UUID, client: Client, wish: Wish, revision: int, now: float) -> None:
        self.id = instance_id
        self.client = client
        self.wish = wish
        self.revision = revision  # of the subscriptions that the wish was made from
        self.asked_at = NEVER
        self.pushed_at = NEVER
        self.last_heard = now
        self.last_error = ErrorCode.NONE
        self.is_ended = False

    @property
    def silence_s_max(self) -> float:
        return max(SILENCE_S_MIN, SILENCE_INTERVALS * self.wish.interval_ms / 1000)

    def ask(self, now: float) -> None:
        """It asks what to push. Raises ThrottlingQuotaExceeded if that is too soon."""
        is_due = now - max(self.asked_at, self.pushed_at) >= self.wish.interval_ms / 1000
        if not is_due and self.last_error not in _ASKS_ANEW:
            raise ThrottlingQuotaExceeded(f"client instance {self.id} asks more often than it is to push")
        self.asked_at = now
        self.last_error = ErrorCode.NONE

    def push(self, subscription_id: int, now: float, *, is_last: bool) -> None:
        """It pushes. Raises InvalidRequest, ThrottlingQuotaExceeded or UnknownSubscriptionId."""
        if self.is_ended:
            raise InvalidRequest(f"client instance {self.id} has said that it ends")
        is_due = self.asked_at > self.pushed_at or now - self.pushed_at >= self.wish.interval_ms / 1000
        if not is_due and not is_last:
            raise ThrottlingQuotaExceeded(f"client instance {self.id} pushes more often than it was told")
        if is_due:
            self.pushed_at = now
        self.is_ended = is_last
        if subscription_id != self.wish.id:
            raise UnknownSubscriptionId(f"client instance {self.id} is asked for something else now; it is to ask anew")


class Instances:
    def __init__(self, subscriptions: Subscriptions, on_forgotten: Callable[[UUID], None]) -> None:
        self._subscriptions = subscriptions
        self._on_forgotten = on_forgotten
        # The one heard of last is last.
        self._known: OrderedDict[UUID, Instance] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def heard(self, instance_id: UUID, client: Client, now: float) -> Instance:
        """The instance of this id; made if it is not known, for it may have been with another broker before."""
        revision = self._subscriptions.revision
        instance = self._known.get(instance_id)
        if instance is None:
            wish = self._subscriptions.wish_for(instance_id, client.facts(instance_id))
            instance = self._known[instance_id] = Instance(instance_id, client, wish, revision, now)
            while len(self._known) > INSTANCES_MAX:
                self._on_forgotten(self._known.popitem(last=False)[0])
        elif instance.revision != revision:
            instance.revision = revision
            wish = self._subscriptions.wish_for(instance_id, instance.client.facts(instance_id))
            if wish != instance.wish:
                # It may ask at once: what it knows is out of date.
                instance.wish, instance.asked_at, instance.pushed_at = wish, NEVER, NEVER
        instance.last_heard = now
        self._known.move_to_end(instance_id)
        return instance

    def has(self, instance: Instance) -> bool:
        return self._known.get(instance.id) is instance

    def forget_silent(self, now: float) -> None:
        """Forget those that have not been heard of for too long."""
        for each in [each for each in self._known.values() if now - each.last_heard > each.silence_s_max]:
            del self._known[each.id]
            self._on_forgotten(each.id)
