"""What readers of committed data cannot see, and who keeps it from them: the transaction that pins a partition.

Called by admin.doctor. `judge_transactions` is a plain function from what was seen to findings. A transaction that is
open within its time-out is a note: that is how transactions are. One that nobody will end, or that should long have
ended, is a finding.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.finding import Report
from penstock.admin.hanging import HeldTransaction, Standing, abort_command, explain_standing, look_at
from penstock.admin.offsets import LATEST, find_offsets
from penstock.admin.text import render_moment
from penstock.admin.transaction_views import TransactionView, led_partitions
from penstock.clock import SystemClock
from penstock.model import TopicPartition

# Asking every partition of a very large cluster twice would take longer than anybody waits for a diagnosis.
PARTITIONS_ASKED_MAX = 20_000
# A coordinator looks for transactions that are out of time every 10 s, and its clock is not ours.
GRACE_MS = 60_000
_NAMED_MAX = 10


class Pinned(NamedTuple):
    """A partition whose last stable offset lies before its end."""

    stable_offset: int
    end_offset: int

    @property
    def hidden(self) -> int:
        """Offsets, of which markers have some too: at most so many records are hidden."""
        return self.end_offset - self.stable_offset


def check_transactions(cluster: Cluster, topic: str | None, report: Report) -> None:
    asked = led_partitions(cluster, topic)[:PARTITIONS_ASKED_MAX]
    # In this order: a record that comes between the two questions is not counted as hidden.
    ends = find_offsets(cluster, asked, LATEST)
    stable = find_offsets(cluster, asked, LATEST, is_read_committed=True)
    pinned: dict[TopicPartition, Pinned] = {}
    for at in asked:
        first, end = stable[at].offset, ends[at].offset
        if first is not None and end is not None and first < end:
            pinned[at] = Pinned(first, end)
    if not pinned:
        report.sound.append(f"no open transaction hides records ({len(asked)} partitions)")
    elif not cluster.is_plaintext:
        report.notes.append(f"{_summary(pinned)}; which producers hold them can be asked over plaintext only")
    else:
        try:
            judge_transactions(pinned, look_at(cluster, pinned), SystemClock().now_ms(), report)
        except CommandFailed as failure:
            report.notes.append(f"{_summary(pinned)}; which producers hold them cannot be told: {failure.what}")


def judge_transactions(
    pinned: Mapping[TopicPartition, Pinned], held: Iterable[HeldTransaction], now_ms: int, report: Report
) -> None:
    """`held` in the order of partition and offset, as look_at gives it: the first of a partition is what pins it."""
    seen: set[TopicPartition] = set()
    known: dict[str, list[HeldTransaction]] = {}
    for one in held:
        is_pin = one.open.at not in seen
        seen.add(one.open.at)
        if one.standing is Standing.HANGING:
            _find_hanging(one, pinned.get(one.open.at) if is_pin else None, report)
        elif is_pin and one.coordinated is not None:
            known.setdefault(one.coordinated.transactional_id, []).append(one)
    for group in known.values():
        _judge_known(group, pinned, now_ms, report)


def _find_hanging(one: HeldTransaction, pin: Pinned | None, report: Report) -> None:
    opened = one.open
    name = f", transactional id {one.coordinated.transactional_id}" if one.coordinated else ""
    last_write = render_moment(opened.last_write_ms) or "at an unknown time"
    report.find(
        f"{opened.at}: a transaction of producer {opened.producer_id} (epoch {opened.producer_epoch}{name}) hangs, "
        f"open from offset {opened.start_offset}; its last write was {last_write}",
        f"No coordinator knows it, so none will ever end it. {_hidden_by(pin)}",
        f"Make sure that the producer does not run any more, then {abort_command(one)}.",
    )


def _judge_known(
    group: list[HeldTransaction], pinned: Mapping[TopicPartition, Pinned], now_ms: int, report: Report
) -> None:
    view = group[0].coordinated
    assert view is not None
    places = {one.open.at: pinned[one.open.at] for one in group if one.open.at in pinned}
    if not places:
        return  # what it hid when the ends were asked is seen by now
    who = (
        f"transactional id {view.transactional_id} (producer {view.producer_id}, epoch {view.producer_epoch}) pins "
        f"{_names(list(places))}, {view.state} since {render_moment(view.since_ms) or 'an unknown time'}"
    )
    if not _is_overdue(view, now_ms):
        report.notes.append(f"{who}: {_summary(places)}; {explain_standing(group[0])}")
    elif group[0].standing is Standing.ENDING:
        report.find(
            f"{who}, and still not all its markers are written",
            f"It is decided, but {_summary(places)}.",
            f"Look in the log of broker {view.coordinator} for why a marker cannot be written; see what is said of the "
            "partitions. A restart of that broker begins anew with the markers that are missing.",
        )
    else:
        report.find(
            f"{who}, longer than its time-out of {view.timeout_ms} ms",
            f"Its coordinator should have aborted it; until then {_summary(places)}.",
            f"Look in the log of broker {view.coordinator}, which coordinates it; starting a new producer with that "
            "transactional id aborts it at once.",
        )


def _is_overdue(view: TransactionView, now_ms: int) -> bool:
    return view.since_ms is not None and now_ms - view.since_ms > view.timeout_ms + GRACE_MS


def _hidden_by(pin: Pinned | None) -> str:
    if pin is None:
        return "Another transaction pins the partition now; when that ends, this one will."
    return (
        f"Readers of committed data stand at offset {pin.stable_offset} and do not see {pin.hidden} records or "
        "markers; nor is what lies there compacted."
    )


def _summary(pinned: Mapping[TopicPartition, Pinned]) -> str:
    hidden = sum(one.hidden for one in pinned.values())
    return f"readers of committed data do not see {hidden} records or markers at the end of {_names(list(pinned))}"


def _names(partitions: list[TopicPartition]) -> str:
    more = f" and {len(partitions) - _NAMED_MAX} more" if len(partitions) > _NAMED_MAX else ""
    return ", ".join(map(str, sorted(partitions)[:_NAMED_MAX])) + more
