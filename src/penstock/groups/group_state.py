"""The states of a classic group and what leads from one to the next.

Called by groups.classic_group; the names are those that DescribeGroups and ListGroups show.
"""

from enum import Enum, auto


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    REBALANCE = auto()
    ALL_JOINED = auto()
    EMPTIED = auto()
    ASSIGNED = auto()
    DELETED = auto()
    DELETION_REFUSED = auto()


EMPTY, PREPARING, COMPLETING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE, DEAD = GroupState.STABLE, GroupState.DEAD

TRANSITIONS = {
    (EMPTY, Event.REBALANCE): PREPARING,
    (STABLE, Event.REBALANCE): PREPARING,
    (COMPLETING, Event.REBALANCE): PREPARING,
    (PREPARING, Event.ALL_JOINED): COMPLETING,
    (PREPARING, Event.EMPTIED): EMPTY,
    (COMPLETING, Event.ASSIGNED): STABLE,
    (EMPTY, Event.DELETED): DEAD,
    (DEAD, Event.DELETION_REFUSED): EMPTY,
}
