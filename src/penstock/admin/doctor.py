"""Why is this node or this group not moving: all checks of a cluster, in order.

Called by `penstock doctor` and by the console. Changes nothing.
"""

import threading
from collections.abc import Callable

from penstock.admin.check_groups import judge, needs_second_look
from penstock.admin.check_node import check_advertised, check_disks, check_partitions
from penstock.admin.check_transactions import check_transactions
from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.finding import Report
from penstock.admin.gaps import find_gaps, skip_gaps
from penstock.admin.group_lag import GroupView, list_groups, view_groups
from penstock.admin.text import safe_text

# Longer than consumers take between two automatic commits (5 s): a shorter look would call them all stuck.
INTERVAL_S = 6.0


def check_cluster(
    cluster: Cluster,
    group: str | None,
    topic: str | None,
    interval_s: float,
    report: Report,
    say: Callable[[str], None],
) -> None:
    """`say` gets a line for whoever waits. Raises CommandFailed when the cluster stops answering."""
    if not check_advertised(cluster, report):
        return  # whatever else is asked would end in the same time-out
    topics = check_partitions(cluster, topic, report)
    check_disks(cluster, report)
    check_transactions(cluster, topic, report)
    names = [group] if group is not None else [one.group_id for one in list_groups(cluster)]
    before = [view for view in _look(cluster, names, report) if _reads(view, topic) or view.group == group]
    gaps = find_gaps(cluster, before)
    before = [skip_gaps(view, gaps) for view in before]
    undecided = [view.group for view in before if needs_second_look(view)]
    after = {view.group: view for view in before}
    if undecided:
        say(f"Looking again in {interval_s:g} s at {', '.join(map(safe_text, undecided))}…")
        threading.Event().wait(interval_s)
        after |= {view.group: skip_gaps(view, gaps) for view in _look(cluster, undecided, report)}
    for view in before:
        judge(view, after[view.group], topics, interval_s, report)


def _look(cluster: Cluster, names: list[str], report: Report) -> list[GroupView]:
    found: list[GroupView] = []
    for name in names:
        try:
            found += view_groups(cluster, [name])
        except CommandFailed as failure:
            report.find(
                f"group {name} cannot be described: {failure.what}",
                "Its members may have the same trouble.",
                failure.advice or "Try again in a moment.",
            )
    return found


def _reads(view: GroupView, topic: str | None) -> bool:
    return topic is None or any(one.at.topic == topic for one in view.partitions)
