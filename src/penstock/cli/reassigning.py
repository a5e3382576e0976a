"""Moves of replicas, asked for, watched and taken back; and the throttle that keeps them from crowding out clients.

Called by the reassign, drain and rebalance commands. librdkafka has no request for them, so they go over a connection
of our own, in plaintext. A replica is removed only when all that replace it are in sync: the controller sees to that,
so a partition never has fewer copies during a move than before.
"""

import time
from collections.abc import Iterable, Mapping, Sequence

from penstock.admin.cluster import Cluster
from penstock.admin.cluster_view import ClusterView, Move, list_moves, view_cluster
from penstock.admin.failures import CommandFailed
from penstock.admin.offsets import describe_log_dirs, error_name
from penstock.admin.placing import Assignment, Replicas
from penstock.cli.configs import change_configs, overridden_configs
from penstock.cli.output import Progress, say
from penstock.clock import SystemClock
from penstock.errors import ErrorCode
from penstock.model import Endpoint, TopicPartition
from penstock.wire.apis import ApiKey

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

PARTITIONS_PER_REQUEST = 1000
POLL_S = 0.5
# Sizes are asked of every broker, so they are looked at less often than the list of moves.
SIZES_EVERY_S = 2.0
# So far may a broker's picture of the cluster be behind what another one was told.
LAG_MAX_S = 5.0


def begin(cluster: Cluster, view: ClusterView, targets: Mapping[TopicPartition, Replicas | None]) -> None:
    """Ask for each partition's replicas; None takes a move back. The failure names what was refused, and why."""
    cluster.require_plaintext("reassigning partitions")
    controller = None if view.controller is None else view.brokers[view.controller].endpoint
    refused: list[str] = []
    wanted = sorted(targets.items())
    for first in range(0, len(wanted), PARTITIONS_PER_REQUEST):
        refused += _alter(cluster, controller, wanted[first : first + PARTITIONS_PER_REQUEST])
    if refused:
        done = len(wanted) - len(refused)
        raise CommandFailed(
            f"{len(refused)} of {len(wanted)} partitions were refused: {'; '.join(refused[:5])}",
            f"The other {done} are being moved." if done else "Nothing is being moved.",
        )


def _alter(
    cluster: Cluster, controller: Endpoint | None, wanted: Sequence[tuple[TopicPartition, Replicas | None]]
) -> list[str]:
    topics: dict[str, list[dict[str, object]]] = {}
    for at, replicas in wanted:
        topics.setdefault(at.topic, []).append({"partition_index": at.partition, "replicas": replicas})
    body = {
        "timeout": int(cluster.timeout_s * 1000),
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    reply = cluster.request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body, controller)
    if int(reply.error_code):
        raise CommandFailed(f"reassigning partitions: {reply.error_message or error_name(int(reply.error_code))}")
    return [
        f"{topic.name}-{one.partition_index}: {one.error_message or error_name(int(one.error_code))}"
        for topic in reply.responses
        for one in topic.partitions
        # What was to be taken back may have come to its end in the meantime.
        if int(one.error_code) not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    ]


def wait_until_moved(
    cluster: Cluster, before: ClusterView, targets: Assignment, timeout_s: float | None
) -> ClusterView:
    """The cluster when none of the partitions is on its way any more; shows how far they are on a terminal.

    Whoever is asked may not have heard that a move began, or that it ended: only replicas that are where they were to
    be say so. If they are not, though nothing moves, somebody has taken moves back.
    """
    clock = SystemClock()
    started = clock.monotonic()
    copying = {at: set(replicas) - set(before.partitions[at].replicas) for at, replicas in targets.items()}
    sizes = _Sizes(cluster, before, copying)
    next_look_s = started
    still_since: float | None = None
    with Progress("moving replicas", total=sizes.total or None) as progress:
        while True:
            moving = {at: move for at, move in list_moves(cluster).items() if at in targets}
            now = clock.monotonic()
            if moving:
                still_since = None
                if timeout_s is not None and now - started > timeout_s:
                    raise CommandFailed(
                        f"{len(moving)} of {len(targets)} partitions were still on their way after {timeout_s:g} s",
                        "They go on; `penstock cluster status` shows how far they are.",
                    )
            else:
                still_since = now if still_since is None else still_since
                view = view_cluster(cluster)
                if _are_in_place(view, targets) or now - still_since > LAG_MAX_S:
                    return view
            if now >= next_look_s:
                next_look_s = now + SIZES_EVERY_S
                progress.advance(sizes.newly_copied(moving))
            time.sleep(POLL_S)


def _are_in_place(view: ClusterView, targets: Assignment) -> bool:
    partitions = view.partitions
    return all(at not in partitions or partitions[at].replicas == replicas for at, replicas in targets.items())


class _Sizes:
    """Bytes that the new replicas have of what their leaders had, by what the brokers' directories say."""

    def __init__(self, cluster: Cluster, view: ClusterView, copying: Mapping[TopicPartition, Iterable[int]]) -> None:
        self._cluster = cluster
        self._copying = copying
        held = self._held()
        self._wanted = {
            (at, node): held.get((at, leader), 0)
            for at, nodes in copying.items()
            for node in nodes
            if (leader := view.partitions[at].leader) is not None
        }
        self.total = sum(self._wanted.values())
        self._told = 0

    def newly_copied(self, moving: Mapping[TopicPartition, Move]) -> int:
        held = self._held()
        copied = sum(
            min(held.get((at, node), 0), wanted) if at in moving else wanted
            for (at, node), wanted in self._wanted.items()
        )
        fresh = max(0, copied - self._told)
        self._told += fresh
        return fresh

    def _held(self) -> dict[tuple[TopicPartition, int], int]:
        if not any(self._copying.values()):
            return {}
        return {
            (at, log_dir.broker): size
            for log_dir in describe_log_dirs(self._cluster)
            for at, size in log_dir.sizes.items()
            if at in self._copying
        }


# The throttle, set as Kafka's own tool sets it


def throttle(cluster: Cluster, view: ClusterView, targets: Assignment, bytes_per_s: int) -> None:
    """Limit what the replicas that are to be filled take from those that have it, at either end."""
    sources: dict[str, set[str]] = {}
    takers: dict[str, set[str]] = {}
    brokers: set[int] = set()
    for at, replicas in targets.items():
        present = view.partitions[at].original
        fresh = [node for node in replicas if node not in present]
        if fresh:
            sources.setdefault(at.topic, set()).update(f"{at.partition}:{node}" for node in present)
            takers.setdefault(at.topic, set()).update(f"{at.partition}:{node}" for node in fresh)
            brokers.update((*present, *fresh))
    # Whom it concerns before how much: a rate alone slows nobody, a list without a rate neither.
    for topic in sources:
        present_configs = overridden_configs(cluster, "topic", topic)
        pairs = {
            LEADER_REPLICAS: _merged(present_configs.get(LEADER_REPLICAS, ""), sources[topic]),
            FOLLOWER_REPLICAS: _merged(present_configs.get(FOLLOWER_REPLICAS, ""), takers[topic]),
        }
        change_configs(cluster, "topic", topic, pairs, ())
    rates = {LEADER_RATE: str(bytes_per_s), FOLLOWER_RATE: str(bytes_per_s)}
    for node in sorted(brokers & view.brokers.keys()):
        change_configs(cluster, "broker", str(node), rates, ())


def unthrottle(cluster: Cluster, view: ClusterView, topics: Iterable[str]) -> bool:
    """Take the throttle away again; false if there was none."""
    found = False
    for kind, names, settings in (
        ("broker", [str(node) for node in view.brokers], (LEADER_RATE, FOLLOWER_RATE)),
        ("topic", sorted(set(topics)), (LEADER_REPLICAS, FOLLOWER_REPLICAS)),
    ):
        for name in names:
            present = [setting for setting in settings if setting in overridden_configs(cluster, kind, name)]
            if present:
                change_configs(cluster, kind, name, {}, present)
                found = True
    return found


def _merged(present: str, fresh: set[str]) -> str:
    if present == "*":
        return present
    return ",".join(sorted({*filter(None, present.split(",")), *fresh}))


def move(
    cluster: Cluster,
    view: ClusterView,
    targets: Assignment,
    *,
    throttle_bytes_s: int | None,
    waits: bool,
    timeout_s: float | None = None,
) -> ClusterView:
    """The whole of it, for commands that make a plan themselves: throttle, begin, wait, take the throttle away.

    The cluster as it was seen when the moves were done; as it was before, if nobody `waits`.
    """
    if throttle_bytes_s is not None:
        throttle(cluster, view, targets, throttle_bytes_s)
    begin(cluster, view, dict(targets))
    if not waits:
        say("The moves go on by themselves; `penstock cluster status` shows what is left of them.")
        if throttle_bytes_s is not None:
            say("They are throttled until `penstock cluster reassign verify` finds them done.")
        return view
    after = wait_until_moved(cluster, view, targets, timeout_s)
    if throttle_bytes_s is not None:
        unthrottle(cluster, view, (at.topic for at in targets))
    return after
