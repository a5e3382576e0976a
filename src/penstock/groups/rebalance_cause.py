"""Why a group began to rebalance: a kind, for counting, and a sentence, for people.

Called by both kinds of groups, which remember the latest, and by groups.coordinator, which counts them for /metrics.
"""

from enum import StrEnum
from typing import NamedTuple

REASON_CHARACTERS_MAX = 1_000


class CauseKind(StrEnum):
    """Few and fixed: they are labels of a metric, and docs/groups.md says of each where to look."""

    JOINED = "joined"
    REJOINED = "rejoined"  # a member that was there: it means something else now, or is back under its old name
    LEFT = "left"
    TIMED_OUT = "timed_out"
    TOPICS_CHANGED = "topics_changed"
    OTHER = "other"


class Cause(NamedTuple):
    kind: CauseKind
    reason: str

    def began(self, wall_ms: int) -> "RebalanceCause":
        return RebalanceCause(self.reason[:REASON_CHARACTERS_MAX], wall_ms, self.kind)


class RebalanceCause(NamedTuple):
    """Members have a say in the reason, so it is kept no longer than it is useful."""

    reason: str
    wall_ms: int
    kind: CauseKind
