"""Consumer groups as each client runs them: sharing, leaving, cooperating, static members, and committed offsets."""

from contextlib import suppress

from client import Client, Consumer, numbered, partitions_of, sorted_values, wait_until_shared
from driver import ClientError
from roster import clients

from penstock.testing import EmbeddedBroker

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 4
ALL = partitions_of(TOPIC, PARTITIONS)


def wait_for_all(members: list[Consumer], count: int) -> None:
    """Wait until the members have had the numbers up to `count` between them; each must have come once."""
    members[0].wait_until(lambda: sum(len(member.records) for member in members) >= count, f"{count} records in all")
    assert sorted_values(*members) == list(range(count))


@clients()
def test_two_members_share_the_partitions_and_one_inherits_them(client: Client) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    first = client.member(GROUP, TOPIC)
    first.wait_until(lambda: first.assigned == ALL, "all partitions")
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all([first], 40)
    first.commit()

    second = client.member(GROUP, TOPIC)
    wait_until_shared([first, second], ALL)
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    wait_for_all([first, second], 80)
    assert second.records, "the second member has its share"
    first.commit()
    second.commit()

    second.close()
    first.wait_until(lambda: first.assigned == ALL, "the partitions of the one who left")
    client.produce(TOPIC, numbered(40, start=80, partitions=PARTITIONS))
    wait_for_all([first, second], 120)


@clients("cooperative")
def test_cooperative_members_keep_what_does_not_move(client: Client) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    first = client.member(GROUP, TOPIC, strategy="cooperative")
    first.wait_until(lambda: first.assigned == ALL, "all partitions")
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all([first], 40)
    first.commit()

    second = client.member(GROUP, TOPIC, strategy="cooperative")
    wait_until_shared([first, second], ALL)
    assert set(first.revoked) == second.assigned, "only what the second was given was ever taken from the first"
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    wait_for_all([first, second], 80)


@clients("static_members")
def test_a_static_member_that_comes_back_disturbs_nobody(client: Client) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    first = client.member(GROUP, TOPIC, instance_id="one")
    second = client.member(GROUP, TOPIC, instance_id="two")
    wait_until_shared([first, second], ALL)
    share, taken_before = set(second.assigned), list(first.revoked)

    second.close()
    again = client.member(GROUP, TOPIC, instance_id="two")
    again.wait_until(lambda: again.assigned == share, "the share it had")
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all([first, again], 40)
    assert first.revoked == taken_before, "the other member saw no rebalance"


@clients("static_members", "fencing")
def test_of_two_static_members_of_one_name_the_older_commits_no_more(client: Client) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    older = client.member(GROUP, TOPIC, instance_id="one")
    wait_for_all([older], 40)
    newer = client.member(GROUP, TOPIC, instance_id="one")
    wait_for_all([newer], 40)
    # Most clients say that they were fenced, each in its own words; a few keep silent.
    with suppress(ClientError):
        older.commit()
    assert client.admin("group_offsets", group=GROUP) == []
    newer.commit()
    assert len(client.admin("group_offsets", group=GROUP)) == PARTITIONS


@clients()
def test_committed_offsets_are_resumed_after_a_crash(client: Client, penstock_broker: EmbeddedBroker) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    before = client.member(GROUP, TOPIC)
    wait_for_all([before], 40)
    before.commit()
    before.close()

    penstock_broker.crash_and_restart()
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    after = client.member(GROUP, TOPIC)
    wait_for_all([before, after], 80)


@clients()
def test_a_member_outlives_a_crash_of_the_broker(client: Client, penstock_broker: EmbeddedBroker) -> None:
    client.create_topic(TOPIC, PARTITIONS)
    member = client.member(GROUP, TOPIC)
    client.produce(TOPIC, numbered(40, partitions=PARTITIONS))
    wait_for_all([member], 40)
    member.commit()

    penstock_broker.crash_and_restart()
    client.produce(TOPIC, numbered(40, start=40, partitions=PARTITIONS))
    wait_for_all([member], 80)
    member.commit()
