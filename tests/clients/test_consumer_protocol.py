"""The consumer protocol (KIP-848) as the clients that have it speak it, and groups with members of both protocols."""

import pytest
from client import Client, Consumer, numbered, partitions_of, sorted_values, wait_until_shared
from roster import clients

from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.testing import EmbeddedBroker
from penstock.testing.plugin import BrokerFactory

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
ALL = partitions_of(TOPIC, PARTITIONS)
ABLE = ("confluent", "java-4.4")
NEW = {"protocol": "consumer"}


@pytest.fixture
def penstock_broker(penstock_broker_factory: BrokerFactory) -> EmbeddedBroker:
    """Asks members to report often, so that no test waits for the next heartbeat."""
    return penstock_broker_factory(
        {"group.consumer.min.heartbeat.interval.ms": "100", "group.consumer.heartbeat.interval.ms": "200"}
    )


def wait_for_all(members: list[Consumer], count: int) -> None:
    members[0].wait_until(lambda: sum(len(member.records) for member in members) >= count, f"{count} records in all")
    assert sorted_values(*members) == list(range(count))


def epochs(broker: EmbeddedBroker) -> tuple[int, dict[str, int]]:
    group = broker.broker.groups.find(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group.facts.epoch, {member.member_id: member.standing.epoch for member in group.facts.members.values()}


@clients(only=ABLE)
def test_two_members_share_and_one_inherits_and_nothing_stops_that_need_not(client: Client) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    first = client.member(GROUP, TOPIC, **NEW)
    first.wait_until(lambda: first.assigned == ALL, "all partitions")
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all([first], 40)
    first.commit()

    second = client.member(GROUP, TOPIC, **NEW)
    wait_until_shared([first, second], ALL)
    assert set(first.revoked) == second.assigned, "only what the second was given was ever taken from the first"
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    wait_for_all([first, second], 80)
    first.commit()
    second.commit()

    second.close()
    first.wait_until(lambda: first.assigned == ALL, "the partitions of the one who left")
    client.produce(TOPIC, numbered(40, start=80, partitions=PARTITIONS))
    wait_for_all([first, second], 120)


@clients(only=ABLE)
def test_a_restart_of_the_broker_moves_nothing(client: Client, penstock_broker: EmbeddedBroker) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    members = [client.member(GROUP, TOPIC, **NEW) for _ in range(2)]
    wait_until_shared(members, ALL)
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all(members, 40)
    for member in members:
        member.commit()
    before, revoked = epochs(penstock_broker), [list(member.revoked) for member in members]
    penstock_broker.crash_and_restart()
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    wait_for_all(members, 80)
    assert epochs(penstock_broker) == before
    assert [member.revoked for member in members] == revoked


@clients(only=ABLE)
def test_committed_offsets_are_where_the_next_member_starts(client: Client) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    first = client.member(GROUP, TOPIC, **NEW)
    wait_for_all([first], 40)
    first.commit()
    first.close()
    client.produce(TOPIC, numbered(8, start=40, partitions=PARTITIONS))
    second = client.member(GROUP, TOPIC, **NEW)
    second.wait_until(lambda: len(second.records) >= 8, "what came after the commit")
    assert sorted_values(second) == list(range(40, 48))


@clients(only=ABLE)
def test_new_partitions_are_read(client: Client, penstock_broker: EmbeddedBroker) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    member = client.member(GROUP, TOPIC, **NEW)
    member.wait_until(lambda: member.assigned == ALL, "all partitions")
    client.admin("create_partitions", topic=TOPIC, count=PARTITIONS + 2)
    more = partitions_of(TOPIC, PARTITIONS + 2)
    member.wait_until(lambda: member.assigned == more, "the new partitions too")


@clients(only=("confluent",))
def test_a_pattern_finds_topics_that_come_later(client: Client) -> None:
    client.create_topic("orders", 1)
    member = client.member(GROUP, "^ord.*", **NEW)
    member.wait_until(lambda: member.assigned == {("orders", 0)}, "the topic that is there")
    client.create_topic("ordinary", 1)
    client.create_topic("disorder", 1)
    both = {("orders", 0), ("ordinary", 0)}
    member.wait_until(lambda: member.assigned == both, "the topic that came later")


@clients(only=ABLE)
def test_a_static_member_comes_back_to_its_partitions(client: Client, penstock_broker: EmbeddedBroker) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    first = client.member(GROUP, TOPIC, instance_id="left", **NEW)
    other = client.member(GROUP, TOPIC, instance_id="right", **NEW)
    wait_until_shared([first, other], ALL)
    had, (epoch, _) = set(first.assigned), epochs(penstock_broker)
    first.close()
    back = client.member(GROUP, TOPIC, instance_id="left", **NEW)
    back.wait_until(lambda: back.assigned == had, "the partitions it had")
    assert epochs(penstock_broker)[0] == epoch
    assert not other.revoked or had.isdisjoint(other.assigned)


@clients(only=ABLE)
@pytest.mark.parametrize("strategy", ["range", "cooperative"])
def test_a_group_moves_to_the_new_protocol_and_back_while_it_reads(
    client: Client, penstock_broker: EmbeddedBroker, strategy: str
) -> None:
    def group() -> object:
        return penstock_broker.broker.groups.find(GROUP)

    client.create_topic(TOPIC, PARTITIONS)
    old = [client.member(GROUP, TOPIC, strategy=strategy) for _ in range(2)]
    wait_until_shared(old, ALL)
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all(old, 40)
    for member in old:
        member.commit()
    assert isinstance(group(), ClassicGroup)

    new = client.member(GROUP, TOPIC, **NEW)
    wait_until_shared([*old, new], ALL)
    assert isinstance(group(), ConsumerGroup)
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    wait_for_all([*old, new], 80)
    for member in (*old, new):
        member.commit()

    new.close()
    wait_until_shared(old, ALL)
    client.produce(TOPIC, numbered(40, start=80, partitions=PARTITIONS))
    wait_for_all([*old, new], 120)
    assert isinstance(group(), ClassicGroup)
