"""Why a group does not move: judged from two looks at it, some seconds apart.

Called by admin.doctor. `judge` is a plain function from what was seen to findings.
"""

from collections.abc import Mapping

from penstock.admin.finding import Report
from penstock.admin.group_lag import GroupView, Member, PartitionLag
from penstock.model import TopicPartition

_REBALANCING = frozenset({"preparing rebalancing", "completing rebalancing"})
# Of consumer groups: most members read on while some are led to their new partitions.
_RECONCILING = frozenset({"assigning", "reconciling"})
_STEADY = frozenset({"stable"})


def needs_second_look(view: GroupView) -> bool:
    """Whether time must pass before one can tell: something waits to be read, or a rebalance is under way."""
    can_move = view.members or view.only_shows_progress
    return view.state in _REBALANCING | _RECONCILING or bool(can_move and view.total_lag)


def judge(before: GroupView, after: GroupView, topics: Mapping[str, int], elapsed_s: float, report: Report) -> None:
    """`topics`: the partitions of every topic that exists."""
    found = len(report.findings)
    group = after.group
    if after.does_not_exist:
        report.find(
            f"group {group} does not exist",
            "No consumer with this group.id has joined or committed, or its offsets have expired.",
            "Check the consumer's group.id with `penstock groups list`, and whether it reaches this cluster.",
        )
        return
    if after.state in _REBALANCING:
        _judge_rebalance(before, after, elapsed_s, report)
    elif after.state in _RECONCILING:
        _judge_reconciliation(before, after, elapsed_s, report)
    elif after.only_shows_progress:
        _note_progress(before, after, elapsed_s, report)
    elif not after.members:
        _judge_empty(after, report)
    _judge_offsets(after, topics, report)
    if after.members and after.state in _STEADY:
        _judge_owners(after, topics, report)
    if after.members and after.state in _STEADY | _RECONCILING:
        _judge_progress(before, after, elapsed_s, report)
    if len(report.findings) == found:
        report.sound.append(f"group {group}: {after.state}, {len(after.members)} members, lag {after.total_lag}")


def _judge_rebalance(before: GroupView, after: GroupView, elapsed_s: float, report: Report) -> None:
    if before.state not in _REBALANCING:
        report.notes.append(f"group {after.group} has just begun to rebalance")
        return
    who = ", ".join(_name(member) for member in after.members) or "nobody yet"
    report.find(
        f"group {after.group} has been rebalancing for {elapsed_s:.0f} s or more (members: {who}){_because(after)}",
        "Nobody in it reads while it does. It waits for a member that has not come back: one that is busy longer than "
        "max.poll.interval.ms, or one that joins and leaves again and again.",
        "Find the member whose log shows no poll or shows it rejoining, and restart it; make max.poll.records "
        "smaller or max.poll.interval.ms longer if its work is slow.",
    )


def _judge_reconciliation(before: GroupView, after: GroupView, elapsed_s: float, report: Report) -> None:
    if before.state not in _RECONCILING or before.facts.epoch != after.facts.epoch:
        report.notes.append(f"group {after.group} has just begun to rebalance{_because(after)}")
        return
    earlier = {member.member_id: member for member in before.members}
    holding = [
        (member, kept)
        for member in after.members
        if (past := earlier.get(member.member_id)) is not None
        and (kept := set(member.to_give_back) & set(past.to_give_back))
    ]
    for member, kept in holding:
        report.find(
            f"group {after.group}: {_name(member)} has not given back {', '.join(map(str, sorted(kept)))} for "
            f"{elapsed_s:.0f} s or more",
            "Another member is to read there and waits. It is put out of the group when its max.poll.interval.ms is "
            "over.",
            "Look at that process: it is busy with what it has polled, or its rebalance callback does not return.",
        )
    if not holding:
        report.find(
            f"group {after.group} has been rebalancing for {elapsed_s:.0f} s or more{_because(after)}",
            "Members learn their new partitions with their heartbeats, every few seconds; this takes longer.",
            "Find a member that sends none: one that hangs, or that is gone and whose session is not over yet.",
        )


def _because(view: GroupView) -> str:
    return "" if view.facts.rebalance is None else f" ({view.facts.rebalance.cause})"


def _judge_empty(view: GroupView, report: Report) -> None:
    if view.total_lag:
        report.find(
            f"group {view.group} has no members, and {view.total_lag} messages wait",
            "Nothing reads for this group.",
            "Start its consumers; if they run, compare their group.id and bootstrap.servers with this cluster.",
        )
    else:
        report.notes.append(f"group {view.group} has no members; nothing waits")


def _note_progress(before: GroupView, after: GroupView, elapsed_s: float, report: Report) -> None:
    """No finding: a query that waits for its next batch, or has ended for good, looks like one that hangs."""
    told = f"group {after.group} shows how far a Spark query is, and has no members"
    if not after.total_lag:
        report.notes.append(f"{told}; nothing waits")
    elif after.total_lag < before.total_lag or _commits(before) != _commits(after):
        report.notes.append(f"{told}; it moves, {after.total_lag} messages wait")
    else:
        report.notes.append(
            f"{told}; {after.total_lag} messages wait and it has not moved for {elapsed_s:.0f} s: see whether the "
            "query runs, unless its batches are further apart"
        )


def _commits(view: GroupView) -> dict[TopicPartition, int | None]:
    return {one.at: one.committed for one in view.partitions}


def _judge_offsets(view: GroupView, topics: Mapping[str, int], report: Report) -> None:
    gone = sorted({one.at.topic for one in view.partitions if one.at.topic not in topics})
    for topic in gone:
        report.find(
            f"group {view.group} reads topic {topic}, which does not exist",
            "Its consumers get errors or nothing for it.",
            f"Create it again, or forget its offsets: `penstock groups delete-offsets {view.group} --topic {topic}`.",
        )
    for one in view.partitions:
        if one.at.topic in topics:
            _judge_offset(view.group, one, report)


def _judge_offset(group: str, one: PartitionLag, report: Report) -> None:
    if one.error is not None:
        report.find(
            f"group {group}: the end of {one.at} cannot be asked ({one.error})",
            "Its consumers cannot read that partition either.",
            "See what is said of the partition itself, or of the broker that leads it.",
        )
    elif one.committed is not None and one.start is not None and one.committed < one.start:
        report.find(
            f"group {group}: {one.at} is committed at {one.committed}, but starts at {one.start}",
            f"Retention has run past the consumer: {one.start - one.committed} messages are gone unread. It will jump "
            "to wherever its auto.offset.reset says, which by default is the end.",
            f"Keep messages longer (retention.ms of {one.at.topic}) or read faster; to read what is left, "
            f"`penstock groups reset-offsets {group} --topic {one.at.topic}:{one.at.partition} --to-earliest`.",
        )
    elif one.committed is not None and one.end is not None and one.committed > one.end:
        report.find(
            f"group {group}: {one.at} is committed at {one.committed}, but ends at {one.end}",
            "The topic was made anew, or has lost its end: new messages below the committed offset may be skipped.",
            f"`penstock groups reset-offsets {group} --topic {one.at.topic}:{one.at.partition} --to-earliest`, "
            "with the group stopped.",
        )


def _judge_owners(view: GroupView, topics: Mapping[str, int], report: Report) -> None:
    owned = {at for member in view.members for at in member.partitions}
    for topic in sorted({at.topic for at in owned} & topics.keys()):
        orphans = [number for number in range(topics[topic]) if TopicPartition(topic, number) not in owned]
        if orphans:
            report.find(
                f"group {view.group}: nobody owns partition {', '.join(map(str, orphans))} of {topic}",
                "What is written there is not read.",
                "Were partitions added? Members notice within metadata.max.age.ms (5 minutes); else restart one of "
                "them to make the group rebalance.",
            )
    unread: dict[str, int] = {}
    for one in view.partitions:
        if one.at.topic in topics:
            unread[one.at.topic] = unread.get(one.at.topic, 0) + (one.lag or 0)
    for topic in sorted(unread.keys() - {at.topic for at in owned}):
        if unread[topic]:
            report.find(
                f"group {view.group} has members, but none reads {topic}, where {unread[topic]} messages wait",
                "It has committed offsets there, so some consumer of the group used to.",
                "Subscribe a member to it, or forget it: "
                f"`penstock groups delete-offsets {view.group} --topic {topic}`.",
            )
    idle = [member for member in view.members if not member.partitions]
    if idle:
        names = ", ".join(map(_name, idle))
        report.notes.append(f"group {view.group}: {names} has nothing to read: more members than partitions")


def _judge_progress(before: GroupView, after: GroupView, elapsed_s: float, report: Report) -> None:
    earlier = {one.at: one for one in before.partitions}
    stuck: dict[Member, list[PartitionLag]] = {}
    for one in after.partitions:
        past = earlier.get(one.at)
        if one.owner is None or past is None or not one.lag or not past.lag:
            continue
        if one.committed == past.committed:
            stuck.setdefault(one.owner, []).append(one)
    for member, partitions in stuck.items():
        where = ", ".join(str(one.at) for one in partitions)
        waiting = sum(one.lag or 0 for one in partitions)
        report.find(
            f"group {after.group}: {_name(member)} has committed nothing for {elapsed_s:.0f} s on {where}, where "
            f"{waiting} messages wait",
            "It sends heartbeats, so it keeps its partitions, but its work does not get on; nobody else can take over.",
            "Look at that process: a message it cannot handle, a call that blocks, or commits that are switched off.",
        )
    grown = after.total_lag - before.total_lag
    if grown > 0 and not stuck:
        report.find(
            f"group {after.group}: the lag grows, by {grown} to {after.total_lag} in {elapsed_s:.0f} s",
            "It reads, but more slowly than messages come; retention will overtake it in the end.",
            "Add members (up to one a partition), add partitions, or make the work on a message cheaper.",
        )


def _name(member: Member) -> str:
    return f"{member.instance_id or member.client_id or member.member_id} on {member.host}"
