"""Groups that change their protocol while they run: members of both kinds in one group, in virtual time."""

import asyncio
from typing import Any

import pytest
from tests.unit.groups.consuming import World, refused, settle

from penstock.errors import ErrorCode, NotEnoughReplicas
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.group_state import EMPTY, PREPARING, STABLE
from penstock.groups.member import JoinReply, JoinRequest, Leaver, SyncReply, SyncRequest
from penstock.groups.subscription import read_assignment, write_assignment

SESSION_MS = 10_000


def subscription(owned: bytes = b"\x00\x00\x00\x00", topic: str = "orders") -> bytes:
    name = len(topic).to_bytes(2) + topic.encode()
    return b"\x00\x01" + b"\x00\x00\x00\x01" + name + b"\xff\xff\xff\xff" + owned


class Classic:
    """A classic consumer: cooperative, so that it says what it owns when it joins."""

    def __init__(self, world: World, name: str, **said: Any) -> None:
        self.world = world
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.said: dict[str, Any] = {"instance_id": None, "metadata": None, **said}

    @property
    def metadata(self) -> bytes:
        if self.said["metadata"] is not None:
            return self.said["metadata"]
        owned = write_assignment(1, [("orders", self.owned)] if self.owned else [])[2:-4]
        return subscription(owned)

    async def join(self, **changes: Any) -> JoinReply:
        fields: dict[str, Any] = {
            "member_id": self.member_id,
            "instance_id": self.said["instance_id"],
            "client_id": self.name,
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": 20_000,
            "protocol_type": "consumer",
            "protocols": (("range", self.metadata),),
            "reason": "",
            "new_member_id": f"{self.name}-{id(self)}",
            "must_know_its_id": False,
        }
        reply = await self.world.coordinator.join("g", JoinRequest(**{**fields, **changes}))
        if reply.code is ErrorCode.NONE:
            self.member_id, self.generation = reply.member_id, reply.generation
        return reply

    async def sync(self, assignments: dict[str, bytes] | None = None, **changes: Any) -> SyncReply:
        fields: dict[str, Any] = {
            "member_id": self.member_id,
            "instance_id": self.said["instance_id"],
            "generation": self.generation,
            "protocol_type": "consumer",
            "protocol": "range",
            "assignments": assignments or {},
        }
        reply = await self.world.coordinator.sync("g", SyncRequest(**{**fields, **changes}))
        if reply.code is ErrorCode.NONE:
            given = read_assignment(reply.assignment)
            assert given is not None
            self.owned = tuple(index for _, indexes in given.partitions for index in indexes)
        return reply

    def beat(self, generation: int | None = None) -> ErrorCode:
        said = self.generation if generation is None else generation
        return self.world.coordinator.heartbeat("g", self.member_id, self.said["instance_id"], said)

    async def catch_up(self) -> None:
        """Join and sync as long as it is told to."""
        for _ in range(10):
            if self.beat() is not ErrorCode.REBALANCE_IN_PROGRESS:
                return
            await self.join()
            await self.sync()
        raise AssertionError("told to join for ever")


async def classic_group(world: World, count: int = 2, **said: Any) -> list[Classic]:
    members = [Classic(world, f"classic{place}", **said) for place in range(count)]
    await asyncio.gather(*(member.join() for member in members))
    share = 4 // count
    assignments = {
        member.member_id: write_assignment(1, [("orders", range(place * share, place * share + share))])
        for place, member in enumerate(members)
    }
    await asyncio.gather(*(member.sync(assignments) for member in members))
    return members


@pytest.fixture
def settings() -> dict[str, str]:
    return {"group.initial.rebalance.delay.ms": "0"}


async def mixed(world: World) -> tuple[list[Classic], Any]:
    """Two classic members and one of the new protocol, each with its part."""
    classics = await classic_group(world)
    one = world.client("one")
    await one.beat()
    for _ in range(4):
        for classic in classics:
            await classic.catch_up()
        await one.beat()
    return classics, one


async def test_a_classic_group_becomes_a_consumer_group_and_its_members_stay(world: World) -> None:
    classics, one = await mixed(world)
    assert world.group.state is STABLE
    held = [*classics[0].owned, *classics[1].owned, *one.partitions()]
    assert sorted(held) == [0, 1, 2, 3]
    assert len(one.partitions()) == 1
    assert [classic.beat() for classic in classics] == [ErrorCode.NONE] * 2


async def test_a_partition_of_a_classic_member_is_given_on_only_when_it_has_joined_without_it(world: World) -> None:
    classics = await classic_group(world)
    one = world.client("one")
    await one.beat()
    assert one.partitions() == []
    assert [classic.beat() for classic in classics] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    for classic in classics:
        await classic.join()
    await one.beat()
    assert one.partitions() == [], "they have been told, and still hold"
    for classic in classics:
        await classic.sync()
        await classic.catch_up()
    await one.beat()
    assert len(one.partitions()) == 1


async def test_a_rebalance_of_the_classic_group_is_broken_off_by_the_change(world: World) -> None:
    (only,) = await classic_group(world, 1)
    joining = asyncio.ensure_future(Classic(world, "late").join())
    await asyncio.sleep(0)
    classic = world.coordinator.find("g")
    assert classic is not None
    assert classic.state is PREPARING
    await world.client("one").beat()
    assert (await joining).code is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(world.coordinator.find("g"), ConsumerGroup)
    assert only.beat() is ErrorCode.REBALANCE_IN_PROGRESS


async def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_leaves(world: World) -> None:
    classics, one = await mixed(world)
    epoch = world.group.facts.epoch
    await one.leave()
    group = world.coordinator.find("g")
    assert isinstance(group, ClassicGroup)
    assert group.generation == epoch
    assert [classic.beat() for classic in classics] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    await asyncio.gather(*(classic.join() for classic in classics))
    leader = next(classic for classic in classics if classic.member_id == group.members.leader)
    await asyncio.gather(
        *(classic.sync({leader.member_id: b""} if classic is leader else None) for classic in classics)
    )
    assert group.state is STABLE
    await world.restart()
    loaded = world.coordinator.find("g")
    assert isinstance(loaded, ClassicGroup)
    assert loaded.generation == epoch + 1


async def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_falls_silent(world: World) -> None:
    classics, _one = await mixed(world)
    for _ in range(60):
        await asyncio.sleep(1)
        for classic in classics:
            classic.beat()
    assert isinstance(world.coordinator.find("g"), ClassicGroup)


async def test_a_mixed_group_survives_a_restart(world: World) -> None:
    classics, one = await mixed(world)
    known = world.group.facts
    await world.restart()
    assert world.group.facts.members == known.members
    assert [classic.beat() for classic in classics] == [ErrorCode.NONE] * 2
    await one.beat()
    assert world.group.facts.epoch == known.epoch


async def test_a_change_of_protocol_the_log_refuses_has_not_happened(world: World, ledger: Any) -> None:
    classics = await classic_group(world)
    ledger.refusal = NotEnoughReplicas("one of two")
    assert await refused(world.client("one").send()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ledger.refusal = None
    assert isinstance(world.coordinator.find("g"), ClassicGroup)
    assert [classic.beat() for classic in classics] == [ErrorCode.NONE] * 2
    one = world.client("one")
    await one.beat()
    ledger.refusal = NotEnoughReplicas("one of two")
    assert await refused(one.leave()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ledger.refusal = None
    assert isinstance(world.coordinator.find("g"), ConsumerGroup)
    await one.beat()


@pytest.mark.parametrize("settings", [{"group.consumer.migration.policy": "downgrade"}])
async def test_a_group_stays_classic_where_the_broker_is_told_so(world: World) -> None:
    await classic_group(world)
    assert await refused(world.client("one").send()) is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    "settings", [{"group.consumer.migration.policy": "upgrade", "group.initial.rebalance.delay.ms": "0"}]
)
async def test_a_group_of_classic_members_stays_a_consumer_group_where_the_broker_is_told_so(world: World) -> None:
    classics, one = await mixed(world)
    await one.leave()
    for classic in classics:
        await classic.catch_up()
    assert world.group.state is STABLE
    assert sorted([*classics[0].owned, *classics[1].owned]) == [0, 1, 2, 3]


async def test_a_group_that_is_not_of_consumers_stays_classic(world: World) -> None:
    member = Classic(world, "worker", metadata=b"any")
    await member.join(protocol_type="connect")
    assert await refused(world.client("one").send()) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_whose_members_cannot_be_understood_stays_classic(world: World) -> None:
    await classic_group(world, 1, metadata=b"\x00")
    assert await refused(world.client("one").send()) is ErrorCode.GROUP_ID_NOT_FOUND


async def test_empty_groups_change_without_further_ado(world: World) -> None:
    (only,) = await classic_group(world, 1)
    await world.coordinator.leave("g", [Leaver(only.member_id, None, "")])
    one = world.client("one")
    await settle(one)
    assert one.partitions() == [0, 1, 2, 3]
    await one.leave()
    assert world.group.state is EMPTY
    again = Classic(world, "again")
    assert (await again.join()).code is ErrorCode.NONE
    assert isinstance(world.coordinator.find("g"), ClassicGroup)
    await again.sync({again.member_id: b""})
    await world.restart()
    assert isinstance(world.coordinator.find("g"), ClassicGroup)


# Classic members of a consumer group


async def test_a_classic_member_can_join_a_consumer_group(world: World) -> None:
    one = world.client("one")
    await settle(one)
    classic = Classic(world, "classic")
    required = await classic.join(must_know_its_id=True)
    assert required.code is ErrorCode.MEMBER_ID_REQUIRED
    assert (await classic.join(member_id=required.member_id)).code is ErrorCode.NONE
    await one.beat()
    await one.beat()
    await classic.sync()
    await classic.catch_up()
    assert sorted([*classic.owned, *one.partitions()]) == [0, 1, 2, 3]


async def test_a_classic_member_that_does_not_join_again_in_time_is_out(world: World) -> None:
    classics, one = await mixed(world)
    await world.client("two").beat()
    for _ in range(22):
        for classic in classics:
            classic.beat()
        await one.beat()
        await asyncio.sleep(1)
    assert all(classic.member_id not in world.group.facts.members for classic in classics)
    assert "no JoinGroup in time" in world.group.last_rebalance_cause


async def test_a_classic_member_that_does_not_fetch_its_assignment_is_out(world: World) -> None:
    one = world.client("one")
    await settle(one)
    classic = Classic(world, "classic")
    await classic.join()
    for _ in range(22):
        classic.beat()
        await one.beat()
        await asyncio.sleep(1)
    assert classic.member_id not in world.group.facts.members
    assert "no SyncGroup in time" in world.group.last_rebalance_cause


async def test_a_classic_member_that_falls_silent_is_out_after_its_own_session(world: World) -> None:
    classics, one = await mixed(world)
    for _ in range(SESSION_MS // 1000 + 1):
        classics[0].beat()
        await one.beat()
        await asyncio.sleep(1)
    assert classics[0].member_id in world.group.facts.members
    assert classics[1].member_id not in world.group.facts.members


async def test_classic_members_are_checked_as_in_a_classic_group(world: World) -> None:
    classics, one = await mixed(world)
    first = classics[0]
    assert first.beat(first.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert (await first.sync(generation=first.generation + 1)).code is ErrorCode.ILLEGAL_GENERATION
    assert (await first.sync(protocol="other")).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await first.sync(member_id="nobody")).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await first.sync(instance_id="nobody")).code is ErrorCode.UNKNOWN_MEMBER_ID
    heartbeat = world.coordinator.heartbeat
    assert heartbeat("g", "one", None, one.epoch) is ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    other = Classic(world, "other")
    assert (await other.join(protocol_type="connect")).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await other.join(protocols=(("mine", subscription()),))).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await other.join(protocols=(("range", b"\x00"),))).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    by = (first.member_id, None, first.generation - 1)
    assert await world.commit(world.client(by[0]), epoch=by[2]) is ErrorCode.ILLEGAL_GENERATION


async def test_leaving_by_the_classic_protocol_has_a_code_for_each(world: World) -> None:
    classics, _one = await mixed(world)
    codes = await world.coordinator.leave(
        "g",
        [
            Leaver(classics[0].member_id, None, ""),
            Leaver("nobody", None, ""),
            Leaver("one", None, ""),
            Leaver("", "no instance", ""),
        ],
    )
    assert codes == [ErrorCode.NONE, *[ErrorCode.UNKNOWN_MEMBER_ID] * 3]
    assert classics[0].member_id not in world.group.facts.members


async def test_an_administrator_removes_a_static_member_by_its_instance(world: World) -> None:
    one, two = world.client("one", instance_id="left"), world.client("two")
    await settle(one, two)
    assert await world.coordinator.leave("g", [Leaver("other", "left", "")]) == [ErrorCode.FENCED_INSTANCE_ID]
    assert await world.coordinator.leave("g", [Leaver("", "left", "")]) == [ErrorCode.NONE]
    assert list(world.group.facts.members) == ["two"]


async def test_a_static_instance_changes_its_protocol_and_keeps_its_partitions(world: World) -> None:
    (only,) = await classic_group(world, 1, instance_id="left")
    one = world.client("one", instance_id="left")
    await one.beat()
    assert one.partitions() == [0, 1, 2, 3]
    assert only.beat() is ErrorCode.FENCED_INSTANCE_ID
    await settle(one, world.client("two"))  # who goes on with the new protocol, and the group with it
    back = Classic(world, "back", instance_id="left")
    assert (await back.join()).code is ErrorCode.NONE
    await back.sync()
    assert sorted(back.owned) == one.partitions()
    assert await refused(one.send()) is ErrorCode.FENCED_INSTANCE_ID


async def test_the_group_is_classic_again_when_the_last_of_the_new_protocol_comes_back_as_classic(
    world: World, ledger: Any
) -> None:
    await classic_group(world, 1, instance_id="left")
    one = world.client("one", instance_id="left")
    await one.beat()
    back = Classic(world, "back", instance_id="left")
    ledger.refusal = NotEnoughReplicas("one of two")
    assert await refused(back.join()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ledger.refusal = None
    await one.beat()
    assert list(world.group.facts.members) == ["one"], "what the log refuses has not happened"
    assert (await back.join()).code is ErrorCode.NONE
    group = world.coordinator.find("g")
    assert isinstance(group, ClassicGroup)
    assert group.members.leader == back.member_id
    assert back.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    await back.join()
    await back.sync({back.member_id: write_assignment(1, [("orders", range(4))])})
    assert (group.state, sorted(back.owned)) == (STABLE, [0, 1, 2, 3])
    await world.restart()
    assert isinstance(world.coordinator.find("g"), ClassicGroup)
    assert back.beat() is ErrorCode.NONE
