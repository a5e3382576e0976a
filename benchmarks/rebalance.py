"""What a rebalance of a large group costs the broker: CPU from the change until every member holds its new partitions.

The members are those of a group of the consumer protocol, played by one connection: each sends its heartbeats as a
client does, says what it holds, and gives back at once what is taken from it. Of the CPU measured, what as many
heartbeats cost that change nothing is taken off. `assignor_*` is the assignment alone, in this process.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness import RawConnection, broker, create_topic
from penstock.groups.assignors import MemberSubscription, uniform

MEMBERS = 200
PARTITIONS = 2_000
TOPICS = 4
GROUP = "bench"
ROUNDS = 5

FIND_COORDINATOR, HEARTBEAT, DESCRIBE = 10, 68, 69
JOIN, LEAVE = 0, -1
AGAIN = (14, 15, 16)  # the coordinator is loading, not there yet, or still elsewhere
AGAIN_AFTER_S = 0.01

Held = dict[uuid.UUID, set[int]]


@dataclass
class Player:
    """One member, as its client knows it."""

    connection: RawConnection
    topics: list[str]
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = JOIN
    held: Held = field(default_factory=dict)

    def heartbeat(self) -> bool:
        """Whether the answer changed anything."""
        body: dict[str, Any] = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": self.epoch}
        if self.epoch == JOIN:
            body |= {"rebalance_timeout": 300_000, "subscribed_topic_names": self.topics, "topic_partitions": []}
        else:
            body["topic_partitions"] = [
                {"topic_id": topic_id, "partitions": sorted(held)} for topic_id, held in self.held.items()
            ]
        answer = self.connection.call(HEARTBEAT, 1, body)
        while answer.error_code in AGAIN:
            time.sleep(AGAIN_AFTER_S)
            answer = self.connection.call(HEARTBEAT, 1, body)
        assert answer.error_code == 0, answer
        before = (self.epoch, self.held)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.held = {one.topic_id: set(one.partitions) for one in answer.assignment.topic_partitions}
        return before != (self.epoch, self.held)

    def leave(self) -> None:
        body = {"group_id": GROUP, "member_id": self.member_id, "member_epoch": LEAVE}
        assert self.connection.call(HEARTBEAT, 1, body).error_code == 0


class Group:
    def __init__(self, connection: RawConnection, cpu_s: Callable[[], float], topics: list[str]) -> None:
        self.connection = connection
        self.members: list[Player] = []
        self._cpu_s = cpu_s
        self._topics = topics
        self.idle_cpu_s = 0.0

    def join(self, count: int = 1) -> None:
        new = [Player(self.connection, self._topics) for _ in range(count)]
        for member in new:
            member.heartbeat()
        self.members += new

    def settle(self) -> int:
        """Heartbeats of all until none changes anything; gives how many it took."""
        rounds = 1
        while sum(member.heartbeat() for member in self.members):
            rounds += 1
        return rounds * len(self.members)

    def measure_idle(self) -> None:
        began = self._cpu_s()
        for _ in range(ROUNDS):
            assert self.settle() == len(self.members)
        self.idle_cpu_s = (self._cpu_s() - began) / ROUNDS / len(self.members)

    def measure(self, change: Callable[[], None]) -> float:
        """CPU of the change and of what it leads to, beyond that of heartbeats sent anyway."""
        began = self._cpu_s()
        change()
        heartbeats = self.settle()
        return max(0.0, self._cpu_s() - began - heartbeats * self.idle_cpu_s)

    def check(self) -> None:
        loads = sorted(sum(map(len, member.held.values())) for member in self.members)
        assert sum(loads) == PARTITIONS, sum(loads)
        assert loads[-1] - loads[0] <= 1, loads


def two_hundred_members() -> dict[str, Any]:
    with broker("offsets.topic.num.partitions=1") as running, running.connect() as connection:
        topics = [f"bench-{number}" for number in range(TOPICS)]
        for topic in topics:
            create_topic(running, topic, PARTITIONS // TOPICS)
        while (
            connection.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [GROUP]})
            .coordinators[0]
            .error_code
        ):
            time.sleep(AGAIN_AFTER_S)
        group = Group(connection, running.cpu_s, topics)
        began = running.cpu_s()
        group.join(MEMBERS)
        group.settle()
        formed_s = running.cpu_s() - began
        group.check()
        group.measure_idle()
        joined = sorted(group.measure(group.join) for _ in range(ROUNDS))
        left = sorted(group.measure(lambda: group.members.pop().leave()) for _ in range(ROUNDS))
        group.check()
        answer = connection.call(DESCRIBE, 1, {"group_ids": [GROUP], "include_authorized_operations": False})
        assert answer.groups[0].group_state == "Stable", answer.groups[0].group_state
        heartbeat_us = group.idle_cpu_s * 1e6
    return {
        "members": MEMBERS,
        "partitions": PARTITIONS,
        "formed_cpu_s": formed_s,
        "one_joins_cpu_s": joined[ROUNDS // 2],
        "one_leaves_cpu_s": left[ROUNDS // 2],
        "idle_heartbeat_us": heartbeat_us,
        **_assignor(),
    }


def _assignor() -> dict[str, float]:
    topics = {uuid.uuid4(): PARTITIONS // TOPICS for _ in range(TOPICS)}
    ids = list(topics)

    def took_ms(subscriptions: Callable[[int], frozenset[uuid.UUID]]) -> float:
        members = [MemberSubscription(f"m{number}", None, None, subscriptions(number)) for number in range(MEMBERS + 1)]
        past = uniform(members[:-1], {}, topics)
        began = time.process_time()
        for _ in range(ROUNDS):
            uniform(members, past, topics)
        return (time.process_time() - began) / ROUNDS * 1000

    return {
        "assignor_alike_ms": took_ms(lambda _: frozenset(ids)),
        "assignor_mixed_ms": took_ms(lambda number: frozenset(ids[: 2 + number % 3])),
    }
