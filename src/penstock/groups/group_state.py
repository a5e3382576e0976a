"""The states of groups, and what leads a classic group from one to the next.

Called by groups.classic_group, and by groups.consumer_group, whose state follows from its epochs and is never set.
The names are those that DescribeGroups, ConsumerGroupDescribe and ListGroups show.
"""

from enum import Enum, auto


class GroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Of consumer groups only.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class Event(Enum):
    REBALANCE = auto()
    ALL_JOINED = auto()
    EMPTIED = auto()
    ASSIGNED = auto()
    DELETED = auto()
    DELETION_REFUSED = auto()


EMPTY, PREPARING, COMPLETING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
STABLE, DEAD = GroupState.STABLE, GroupState.DEAD
ASSIGNING, RECONCILING = GroupState.ASSIGNING, GroupState.RECONCILING

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
