"""Members of a classic group on a simulated cluster: they join, commit in their generation, fall silent, come back.

Called by simulate. What is checked is what makes a group worth having: once a commit of a later generation was
acknowledged, none of an earlier one succeeds any more (TRAPS G1). A member that was silent for longer than its session
goes on committing as if nothing had happened, which is how zombies behave.
"""

import asyncio
from typing import Any

from tests.simulation.client import LOST, Client
from tests.simulation.load import GROUP, Over

from penstock.errors import ErrorCode
from penstock.wire.apis import ApiKey

SESSION_MS = 1_500
REBALANCE_MS = 3_000
SILENCE_CHANCE = 0.05


class Generations:
    """What the members of one group were told together."""

    def __init__(self) -> None:
        self.highest_acknowledged = -1


class Member:
    def __init__(self, client: Client, group: str, topic: str, over: Over, seen: Generations) -> None:
        self._client = client
        self._group, self._topic = group, topic
        self._over = over
        self._seen = seen
        self._member_id = ""
        self._generation = -1
        self._offset = 0

    async def run(self) -> None:
        while not self._over.is_set:
            try:
                if self._generation < 0:
                    await self._join()
                else:
                    await self._live()
            except LOST:
                self._client.forget_coordinator(self._group, GROUP)
                await self._client.back_off()

    async def _live(self) -> None:
        chance = self._client.world.chance
        if chance.random() < SILENCE_CHANCE:
            await asyncio.sleep(SESSION_MS / 1000 * 1.5)
            await self._commit()
        elif chance.random() < 0.5:
            await self._commit()
        else:
            body = {
                "group_id": self._group,
                "generation_id": self._generation,
                "member_id": self._member_id,
                "group_instance_id": None,
            }
            answer = await self._ask(ApiKey.HEARTBEAT, 4, body)
            self._judge(answer.error_code if answer is not None else ErrorCode.NONE)
        await asyncio.sleep(0.2)

    async def _commit(self) -> None:
        self._offset += 1
        generation, before = self._generation, self._seen.highest_acknowledged
        part = {
            "partition_index": 1,
            "committed_offset": self._offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        body = {
            "group_id": self._group,
            "generation_id_or_member_epoch": generation,
            "member_id": self._member_id,
            "group_instance_id": None,
            "topics": [{"name": self._topic, "partitions": [part]}],
        }
        answer = await self._ask(ApiKey.OFFSET_COMMIT, 8, body)
        if answer is None:
            return
        code = answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            if generation < before:
                self._client.world.problem(
                    f"group {self._group}: a commit of generation {generation} succeeded after one of {before}"
                )
            self._seen.highest_acknowledged = max(self._seen.highest_acknowledged, generation)
        self._judge(code)

    def _judge(self, code: int) -> None:
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self._generation = -1
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._generation, self._member_id = -1, ""

    async def _join(self) -> None:
        body = {
            "group_id": self._group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        }
        answer = await self._ask(ApiKey.JOIN_GROUP, 9, body)
        if answer is None:
            await self._client.back_off()
            return
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            return
        if answer.error_code != ErrorCode.NONE:
            self._judge(answer.error_code)
            await self._client.back_off()
            return
        self._member_id = answer.member_id
        members = [each.member_id for each in answer.members] if answer.leader == self._member_id else []
        body = {
            "group_id": self._group,
            "generation_id": answer.generation_id,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": member, "assignment": b"some"} for member in members],
        }
        generation = answer.generation_id
        answer = await self._ask(ApiKey.SYNC_GROUP, 5, body)
        if answer is None or answer.error_code != ErrorCode.NONE:
            self._judge(answer.error_code if answer is not None else ErrorCode.NONE)
            await self._client.back_off()
            return
        self._generation = generation

    async def _ask(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        coordinator = await self._client.coordinator(self._group, GROUP)
        if coordinator is None:
            await self._client.back_off()
            return None
        answer = await self._client.ask(coordinator, api_key, version, body)
        code = _code(answer)
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._client.forget_coordinator(self._group, GROUP)
            await self._client.back_off()
            return None
        return answer


def _code(answer: Any) -> int:
    if hasattr(answer, "error_code"):
        return answer.error_code
    return answer.topics[0].partitions[0].error_code
