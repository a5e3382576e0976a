"""What keeps a partition from being read, told apart by what can be done about it.

Raised by everything in fetching; Unreachable, for a cluster that gives no answer, is in penstock.spark.errors.
"""

from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure


class NotAdmitted(SparkFailure):
    """The broker will not talk to us as we are set up: TLS, password, mechanism or rights. Trying again is no use."""


class NotServed(SparkFailure):
    """The broker is too old or too strange: it lacks an API or a version that reading needs."""


class TopicGone(SparkFailure):
    def __init__(self, at: TopicPartition) -> None:
        super().__init__(f"{at} no longer exists: its topic was deleted, or deleted and made anew")
        self.at = at

    def __reduce__(self) -> tuple[type["TopicGone"], tuple[TopicPartition]]:
        return type(self), (self.at,)


class OffsetGone(SparkFailure):
    """What was asked for lies outside the log: deleted if below `log_start`, lost if beyond `end`."""

    def __init__(self, at: TopicPartition, wanted: int, log_start: int, end: int) -> None:
        super().__init__(f"offset {wanted} of {at} is gone: the log now holds offsets {log_start} to {end} (exclusive)")
        self.at, self.wanted, self.log_start, self.end = at, wanted, log_start, end

    def __reduce__(self) -> tuple[type["OffsetGone"], tuple[TopicPartition, int, int, int]]:
        return type(self), (self.at, self.wanted, self.log_start, self.end)


class NotYetReadable(SparkFailure):
    """The broker answers, but does not give out what was asked for: a transaction stays open, or replicas lag."""

    def __init__(self, at: TopicPartition, position: int, readable_end: int, end: int, waited_s: float) -> None:
        super().__init__(
            f"{at} was readable up to offset {readable_end} only, where {end} was wanted, for {waited_s:.0f} s: "
            f"a transaction is open there (see `penstock transactions`), or its replicas are behind; "
            f"end it, or read with isolation.level=read_uncommitted"
        )
        self.at, self.position, self.readable_end, self.end = at, position, readable_end, end
        self.waited_s = waited_s

    def __reduce__(self) -> tuple[type["NotYetReadable"], tuple[TopicPartition, int, int, int, float]]:
        return type(self), (self.at, self.position, self.readable_end, self.end, self.waited_s)


class FetchRefused(SparkFailure):
    """An error of the broker that no new attempt will mend."""
