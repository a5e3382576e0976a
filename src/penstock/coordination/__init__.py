"""One runtime for all that is kept in internal topics: decide -> append -> commit -> apply -> reply."""

from penstock.coordination.led_partitions import Led, LedPartitions, partition_of
from penstock.coordination.machine import Decision, Ledger, Now, Reply, StateMachine, Waiter, call_at, read_clock
from penstock.coordination.shard import BATCH_BYTES_MAX, Shard, ShardState, as_coordinator_error

__all__ = [
    "BATCH_BYTES_MAX",
    "Decision",
    "Led",
    "LedPartitions",
    "Ledger",
    "Now",
    "Reply",
    "Shard",
    "ShardState",
    "StateMachine",
    "Waiter",
    "as_coordinator_error",
    "call_at",
    "partition_of",
    "read_clock",
]
