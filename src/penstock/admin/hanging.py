"""Hanging transactions: those a partition holds open while no coordinator knows of them, so that none will end them.

Called by `penstock transactions` and cli.check_transactions.
Law: a transaction is called hanging only if the partition held it open both before and after its coordinator was
asked and did not know it. One look at each would take a transaction that ends in between for a hanging one.
"""

from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.text import render_moment, safe_text
from penstock.admin.transaction_views import (
    ONGOING,
    OpenTransaction,
    TransactionView,
    describe_transactions,
    is_open,
    list_transactions,
    open_transactions,
)
from penstock.model import TopicPartition


class Standing(Enum):
    """How an open transaction of a partition stands with its coordinator."""

    ONGOING = "ongoing"
    ENDING = "ending"
    HANGING = "hanging"


class HeldTransaction(NamedTuple):
    """An open transaction of a partition, and what its coordinator says of the producer, if it knows it."""

    open: OpenTransaction
    standing: Standing
    coordinated: TransactionView | None


def compare(
    before: Iterable[OpenTransaction], known: Iterable[TransactionView], after: Iterable[OpenTransaction]
) -> list[HeldTransaction]:
    """Those that were open all the while, by partition and offset; `known` was asked between the two looks."""
    by_producer = {view.producer_id: view for view in known}
    still_open = {_identity(one) for one in after}
    held: list[HeldTransaction] = []
    for one in sorted(before):
        if _identity(one) not in still_open:
            continue
        view = by_producer.get(one.producer_id)
        if view is None or not is_open(view.state) or one.at not in view.partitions:
            standing = Standing.HANGING
        else:
            standing = Standing.ONGOING if view.state == ONGOING else Standing.ENDING
        held.append(HeldTransaction(one, standing, view))
    return held


def look_at(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[HeldTransaction]:
    """The open transactions of these partitions, judged as the law above has it."""
    before = open_transactions(cluster, partitions)
    if not before:
        return []
    producers = sorted({one.producer_id for one in before})
    listed = list_transactions(cluster, producer_ids=producers)
    known = describe_transactions(cluster, [one.transactional_id for one in listed])
    unsaid = {one.transactional_id for one in listed} - {view.transactional_id for view in known}
    if unsaid:
        raise CommandFailed(f"the coordinator of {min(unsaid)} has just changed", "Try again in a moment.")
    after = open_transactions(cluster, {one.at for one in before})
    return compare(before, known, after)


def choose_hanging(
    held: list[HeldTransaction], at: TopicPartition, start_offset: int | None, producer_id: int | None
) -> HeldTransaction:
    """The one transaction meant. Fails, with what to do instead, unless there is exactly one and it hangs."""
    meant = [
        one
        for one in held
        if start_offset in (None, one.open.start_offset) and producer_id in (None, one.open.producer_id)
    ]
    if not meant:
        raise CommandFailed(
            f"{at} has no such open transaction",
            "Open there: " + "; ".join(map(name_of, held)) if held else "None is open there.",
        )
    hanging = [one for one in meant if one.standing is Standing.HANGING]
    if not hanging:
        raise CommandFailed(f"{name_of(meant[0])} does not hang: {explain_standing(meant[0])}")
    if len(hanging) > 1:
        raise CommandFailed(
            f"{len(hanging)} transactions hang in {at}: {'; '.join(map(name_of, hanging))}",
            "Say which, with --start-offset.",
        )
    return hanging[0]


def explain_standing(held: HeldTransaction) -> str:
    """Who will end it, and when, and how to end it earlier."""
    view = held.coordinated
    assert view is not None, "a hanging transaction has nobody to end it"
    name = safe_text(view.transactional_id)
    if held.standing is Standing.ENDING:
        return f"its coordinator is writing the markers of {name} ({view.state}) and goes on until all are written"
    until = None if view.since_ms is None else render_moment(view.since_ms + view.timeout_ms)
    return (
        f"it belongs to {name}, which ends it, or its coordinator does when it times out ({until or 'unknown'}); "
        "starting a new producer with that transactional id aborts it at once"
    )


def abort_command(held: HeldTransaction) -> str:
    at, start = held.open.at, held.open.start_offset
    return f"`penstock transactions abort-hanging --topic {at.topic} --partition {at.partition} --start-offset {start}`"


def name_of(held: HeldTransaction) -> str:
    one = held.open
    who = f"producer {one.producer_id}, epoch {one.producer_epoch}"
    return f"the transaction of {who}, from offset {one.start_offset} of {one.at}"


def _identity(one: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return one.at, one.start_offset, one.producer_id
