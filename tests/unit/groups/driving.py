"""One classic group for tests, driven as the coordinator drives it: decisions are committed at once unless held."""

from typing import Any

from penstock.coordination import Decision, Now
from penstock.errors import ErrorCode
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.group_state import STABLE
from penstock.groups.member import JoinRequest, Leaver, SyncRequest

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"range-metadata"),)


class Answer:
    """A waiter that keeps what it was told."""

    def __init__(self) -> None:
        self.value: Any = None

    def done(self) -> bool:
        return self.value is not None

    def set_result(self, result: Any, /) -> None:
        assert self.value is None
        self.value = result

    def set_exception(self, exception: Any, /) -> None:
        raise AssertionError(exception)

    @property
    def code(self) -> ErrorCode | None:
        return None if self.value is None else self.value.code


class Driver:
    """Time, a group, and the log its records go to."""

    def __init__(self, initial_delay_ms: int = 0, size_max: int = 1000) -> None:
        self.group = ClassicGroup("g", initial_delay_ms, size_max)
        self.steady_ms = 1_000
        self.records: list[Any] = []
        self.held: list[Decision[Any]] | None = None
        self._ids = 0

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000 + self.steady_ms, self.steady_ms)

    def carry_out(self, step: Decision[Any]) -> None:
        if step.records and self.held is not None:
            self.held.append(step)
            return
        self.commit(step)

    def commit(self, step: Decision[Any]) -> None:
        replies = []
        for record in step.records:
            self.records.append(record)
            replies += self.group.committed(record.metadata, self.now)
        for waiter, reply in [*replies, *step.replies]:
            waiter.set_result(reply)

    def refuse(self, step: Decision[Any], code: ErrorCode) -> None:
        assert step.undo is not None
        for waiter, reply in step.undo(code):
            waiter.set_result(reply)

    def join(self, member_id: str = "", **changes: Any) -> Answer:
        self._ids += 1
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "reason": "",
            "new_member_id": f"m{self._ids}",
            "must_know_its_id": False,
        }
        answer = Answer()
        self.carry_out(self.group.join(JoinRequest(**{**fields, **changes}), answer, self.now))
        return answer

    def sync(self, member_id: str, generation: int | None = None, **changes: Any) -> Answer:
        fields: dict[str, Any] = {
            "member_id": member_id,
            "instance_id": None,
            "generation": self.group.generation if generation is None else generation,
            "protocol_type": None,
            "protocol": None,
            "assignments": {},
        }
        answer = Answer()
        self.carry_out(self.group.sync(SyncRequest(**{**fields, **changes}), answer, self.now))
        return answer

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, generation, self.now)

    def leave(self, *leavers: Leaver) -> list[ErrorCode]:
        step, codes = self.group.leave(leavers, self.now)
        self.carry_out(step)
        return codes

    def check_commit(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        return self.group.check_commit(member_id, instance_id, generation, self.now)

    def advance(self, ms: int) -> None:
        """Let time pass, doing what falls due when it falls due."""
        end = self.steady_ms + ms
        while (deadline := self.group.next_deadline_ms()) is not None and deadline <= end:
            self.steady_ms = max(self.steady_ms, deadline)
            self.carry_out(self.group.tick(self.now))
        self.steady_ms = end

    def stable(self, members: int, **changes: Any) -> list[str]:
        """A stable group of so many members, the first of them its leader."""
        joins = [self.join(**changes) for _ in range(members)]
        self.advance(0)
        ids = [join.value.member_id for join in joins]
        followers = [self.sync(member_id) for member_id in ids[1:]]
        leader = self.sync(ids[0], assignments={member_id: member_id.encode() for member_id in ids})
        assert all(answer.code is ErrorCode.NONE for answer in [*followers, leader])
        assert self.group.state is STABLE
        return ids
