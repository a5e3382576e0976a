"""Known bugs of brokers like this one (TRAPS), each switched on by replacing the one function that guards against it.

Called by simulate (--canary NAME) and test_canaries. A harness that does not notice these proves nothing when green.
Each says in what kind of seed it shows: which faults, how many in sync, how many nodes; the rest is left to chance.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.node_disk import NodeDisk

import penstock.groups.classic_refusals
import penstock.handlers.fetch
import penstock.log.producers
import penstock.log.recovery
from penstock.errors import ErrorCode
from penstock.handlers import replica_fetch
from penstock.log.group_sync import GroupSync
from penstock.model import Offset
from penstock.replication.fetcher import LeaderFetcher
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.joining import Joining
from penstock.replication.progress import Progress
from penstock.replication.replicas import Replicas
from penstock.transactions.transaction_shard import TransactionShard


@dataclass(frozen=True)
class Canary:
    trap: str
    install: Callable[[], None]
    kinds: tuple[str, ...] | None = None
    nodes: int = 3
    min_insync: int = 2
    is_all_synced: bool = False
    is_version_2: bool = True

    def change_plan(self, plan: Any) -> Any:
        return replace(
            plan,
            kinds=self.kinds,
            nodes=self.nodes,
            min_insync=self.min_insync,
            is_all_synced=self.is_all_synced,
            is_version_2=self.is_version_2,
        )


def truncate_to_the_high_watermark() -> None:
    """Whoever follows a new leader first cuts its log at its own high watermark."""
    take = Replicas.take

    def cutting(self: Replicas, partition: Any, state: Any) -> None:
        was_epoch = partition.leader_epoch
        take(self, partition, state)
        is_new = not partition.is_leader and partition.leader_epoch != was_epoch
        if is_new and partition not in self._cutting and partition.log.next_offset > partition.high_watermark:
            log, end = partition.log, partition.high_watermark
            asyncio.get_running_loop().create_task(self.cut(partition, lambda: self.logs.truncate(log, end)))

    Replicas.take = cutting


def believe_the_high_watermark_before_the_cut() -> None:
    """An answer that says where the logs part also says how much is committed, and that is taken first."""
    diverging = replica_fetch.diverging_result
    admit = replica_fetch.admit_replica
    seen: dict[int, int] = {}

    def admitting(context: Any, partition: Any, fetch: Any, ask: Any) -> Any:
        seen[partition.at.partition] = partition.high_watermark
        return admit(context, partition, fetch, ask)

    def telling(index: int, parting: tuple[int, int]) -> Any:
        return diverging(index, parting)._replace(high_watermark=seen.get(index, -1))

    cut = LeaderFetcher._cut

    async def believing(self: LeaderFetcher, each: Any, result: Any) -> None:
        if result.diverging_epoch is not None:
            each.partition.replicated(Offset(result.high_watermark))
            await asyncio.sleep(0.06)
        await cut(self, each, result)

    penstock.handlers.fetch.admit_replica = admitting
    penstock.handlers.fetch.diverging_result = telling
    LeaderFetcher._cut = believing


def shrink_before_the_store_says_so() -> None:
    """Replicas that lag count no more from the moment the leader asks for them to be dropped."""
    begin = InSyncReplicas._begin

    def begin_at_once(self: InSyncReplicas, partition: Any, isr: tuple[int, ...], epochs: dict[int, int]) -> None:
        begin(self, partition, isr, epochs)
        if not epochs:
            shrunk = replace(partition.progress.state, isr=isr)
            partition.progress.state = shrunk
            partition.advance()

    InSyncReplicas._begin = begin_at_once


def commit_with_too_few_in_sync() -> None:
    Progress.may_commit = lambda self, min_insync: True


def believe_a_former_life() -> None:
    """A fetch of a broker's earlier incarnation counts as one of the present."""
    Progress.is_current = lambda self, follower, broker_epoch: True

    def add(self: InSyncReplicas, partition: Any, node: int) -> None:
        progress = partition.progress
        if partition in self._changing or progress is None or partition.log.failure is not None:
            return
        progress.adding = frozenset({node})
        isr = tuple(each for each in progress.state.replicas if each in progress.maximal_in_sync)
        self._begin(partition, isr, {})

    InSyncReplicas.add = add


def stay_in_sync_after_an_unclean_stop() -> None:
    async def disown(self: Joining, *_: Any) -> None:
        pass

    Joining.disown = disown


def try_a_failed_sync_again() -> None:
    finish = GroupSync._finish

    def finish_or_try_again(self: GroupSync, upto: Any, began: float, done: Any) -> None:
        if not done.cancelled() and isinstance(done.exception(), OSError):
            work = self._prepare()
            again = self._disk.run(work.job)
            again.add_done_callback(lambda future: self._finish(work.upto, began, future))
            return
        finish(self, upto, began, done)

    GroupSync._finish = finish_or_try_again


def believe_the_page_cache() -> None:
    """What recovery reads after a failed sync and a restart counts as safe after a sync, which passes it over."""
    penstock.log.recovery._write_again = lambda *_: None


def leave_directories_unsynced() -> None:
    NodeDisk.sync_directory = lambda self, path: None


def remember_four_batches() -> None:
    penstock.log.producers.BATCHES_KEPT = 4


def commit_in_any_generation() -> None:
    penstock.groups.classic_refusals.of_commit = lambda *_, **__: ErrorCode.NONE


def take_late_ends() -> None:
    """Clients of version 1, which this plan uses, have one epoch for all transactions: their connection alone tells."""
    TransactionShard.is_late = lambda *_: False


CANARIES = {
    "truncate-to-high-watermark": Canary(
        "R1", truncate_to_the_high_watermark, ("kill", "kill_several", "shut_down", "stop", "expire_lease")
    ),
    "high-watermark-before-cut": Canary(
        "R3", believe_the_high_watermark_before_the_cut, ("isolate", "stop", "kill", "expire_lease", "cut_one_way")
    ),
    "shrink-before-store": Canary(
        "R5", shrink_before_the_store_says_so, ("isolate", "cut_pair", "cut_from_store", "disturb_store", "stop"),
        min_insync=1,
    ),
    "commit-below-min-insync": Canary(
        "R6", commit_with_too_few_in_sync, ("isolate", "cut_pair", "cut_one_way", "stop"), min_insync=3
    ),
    "former-life": Canary("R8", believe_a_former_life, ("hold_back_and_wipe", "kill", "wipe")),
    "in-sync-after-unclean-stop": Canary("R9", stay_in_sync_after_an_unclean_stop, ("lose_power", "wipe", "kill")),
    "sync-tried-again": Canary("L1", try_a_failed_sync_again, ("fail_sync", "lose_power"), nodes=1, min_insync=1),
    "page-cache-believed": Canary("L1", believe_the_page_cache, ("fail_sync",), nodes=1, min_insync=1),
    "directory-not-synced": Canary("L2", leave_directories_unsynced, ("lose_power",), nodes=1, min_insync=1),
    "four-batches": Canary("P1", remember_four_batches, ("reset_connections", "stall_connections", "cut_clients")),
    "late-end": Canary("P5", take_late_ends, ("stall_connections",), is_version_2=False),
    "any-generation": Canary("G1", commit_in_any_generation, ("stall_connections", "cut_clients", "kill")),
}  # fmt: skip
