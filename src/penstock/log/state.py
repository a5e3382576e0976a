"""A log as it lies on disk: what opening or recovering it finds, and what cutting it leaves.

Made by log.recovery and log.directory; log.partition_log begins with it.
"""

from dataclasses import dataclass, field

from penstock.log.aborted import AbortedTransactions
from penstock.log.checkpoints import LeaderEpochs
from penstock.log.producers import Producers
from penstock.log.segment import Segment
from penstock.model import Offset

_NOWHERE = Offset(0)


@dataclass(slots=True)
class LogState:
    """What opening or recovering a log found on disk."""

    segments: list[Segment]
    log_start: Offset
    durable_offset: Offset
    producers: Producers
    epochs: LeaderEpochs
    has_directory: bool
    aborted: AbortedTransactions = field(default_factory=AbortedTransactions)
    # The newest of the producers' snapshots that the next recovery would begin with; 0 for none.
    snapshot_offset: Offset = _NOWHERE
