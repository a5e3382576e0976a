"""Administration through each client: topics, settings, groups, offsets, records, the cluster, quotas."""

import pytest
from client import Client, numbered
from driver import ClientError
from roster import clients

from penstock.testing import EmbeddedBroker

TOPIC = "parcels"
GROUP = "couriers"


@clients()
def test_topics_are_created_listed_widened_and_deleted(client: Client) -> None:
    client.create_topic(TOPIC, 2, retention_ms="3600000")
    assert TOPIC in client.admin("list_topics")
    assert client.admin("describe_topic", topic=TOPIC)["partitions"] == 2
    client.admin("create_partitions", topic=TOPIC, count=5)
    assert client.admin("describe_topic", topic=TOPIC)["partitions"] == 5
    client.admin("delete_topic", topic=TOPIC)
    assert TOPIC not in client.admin("list_topics")


@clients()
def test_errors_of_administration_have_their_names(client: Client) -> None:
    client.create_topic(TOPIC)
    with pytest.raises(ClientError, match=r"(?i)already.?exists"):
        client.create_topic(TOPIC)
    with pytest.raises(ClientError, match=r"(?i)unknown.?topic|does not host|does not exist"):
        client.admin("delete_topic", topic="nowhere")
    with pytest.raises(ClientError, match=r"(?i)invalid.*partition|partition.*invalid|InvalidPartitions"):
        client.create_topic("none", 0)


@clients("alter_config")
def test_one_setting_of_a_topic_changes_and_the_others_stay(client: Client) -> None:
    client.create_topic(TOPIC, retention_ms="3600000")
    client.admin("alter_config", kind="topic", name=TOPIC, change={"cleanup.policy": "compact"})
    changed = client.admin("describe_config", kind="topic", name=TOPIC)
    assert (changed["cleanup.policy"], changed["retention.ms"]) == ("compact", "3600000")
    client.admin("alter_config", kind="topic", name=TOPIC, change={"retention.ms": None})
    assert client.admin("describe_config", kind="topic", name=TOPIC)["retention.ms"] == "604800000"


@clients("replace_config")
def test_all_settings_of_a_topic_are_replaced_at_once(client: Client) -> None:
    client.create_topic(TOPIC, retention_ms="3600000")
    client.admin("replace_config", kind="topic", name=TOPIC, configs={"cleanup.policy": "compact"})
    changed = client.admin("describe_config", kind="topic", name=TOPIC)
    assert (changed["cleanup.policy"], changed["retention.ms"]) == ("compact", "604800000")


@clients()
def test_settings_of_the_broker_are_described(client: Client) -> None:
    described = client.admin("describe_config", kind="broker", name="1")
    assert described["num.partitions"] == "1"


@clients()
def test_a_group_is_listed_and_described(client: Client) -> None:
    client.create_topic(TOPIC, 2)
    client.produce(TOPIC, numbered(10, partitions=2))
    member = client.member(GROUP, TOPIC)
    member.wait_for_records(10)
    member.commit()
    assert GROUP in client.admin("list_groups")
    described = client.admin("describe_group", group=GROUP)
    assert described["state"].lower() == "stable"
    (only,) = described["members"]
    assert sorted(only["partitions"]) == [[TOPIC, 0], [TOPIC, 1]]
    assert sorted(client.admin("group_offsets", group=GROUP)) == [[TOPIC, 0, 5], [TOPIC, 1, 5]]
    member.close()
    assert client.admin("describe_group", group=GROUP)["state"].lower() == "empty"


@clients("delete_group")
def test_a_group_is_deleted_once_it_is_empty(client: Client) -> None:
    client.produce(TOPIC, numbered(10))
    member = client.member(GROUP, TOPIC)
    member.wait_for_records(10)
    member.commit()
    with pytest.raises(ClientError, match=r"(?i)no[nt].?empty"):
        client.admin("delete_group", group=GROUP)
    member.close()
    client.admin("delete_group", group=GROUP)
    assert GROUP not in client.admin("list_groups")


@clients("alter_offsets")
def test_the_offsets_of_a_group_are_moved(client: Client) -> None:
    client.produce(TOPIC, numbered(10))
    first = client.member(GROUP, TOPIC)
    first.wait_for_records(10)
    first.commit()
    first.close()
    client.admin("alter_offsets", group=GROUP, offsets=[[TOPIC, 0, 4]])
    again = client.member(GROUP, TOPIC)
    assert [int(record.value or b"") for record in again.wait_for_records(6)] == list(range(4, 10))


@clients("delete_offsets")
def test_the_offsets_of_a_group_are_deleted(client: Client) -> None:
    client.produce(TOPIC, numbered(10))
    member = client.member(GROUP, TOPIC)
    member.wait_for_records(10)
    member.commit()
    member.close()
    client.admin("delete_offsets", group=GROUP, topic=TOPIC, partition=0)
    assert client.admin("group_offsets", group=GROUP) == []


@clients()
def test_both_ends_of_a_partition_are_told(client: Client) -> None:
    client.produce(TOPIC, numbered(10))
    assert client.admin("list_offset", topic=TOPIC, partition=0, at="earliest") == 0
    assert client.admin("list_offset", topic=TOPIC, partition=0, at="latest") == 10
    assert client.admin("list_offset", topic=TOPIC, partition=0, at={"time": 1000}) == 0


@clients("max_timestamp")
def test_the_record_with_the_latest_time_is_found(client: Client) -> None:
    client.produce(TOPIC, numbered(10))
    assert client.admin("list_offset", topic=TOPIC, partition=0, at="max_timestamp") in range(10)


@clients()
def test_the_cluster_is_described(client: Client, penstock_broker: EmbeddedBroker) -> None:
    described = client.admin("describe_cluster")
    host, _, port = penstock_broker.bootstrap.rpartition(":")
    assert described["brokers"] == [[1, host, int(port)]]
    assert described["controller"] == 1
    assert described.get("cluster_id", "a client may keep it to itself")


@clients("log_dirs")
def test_log_directories_tell_the_size_of_partitions(client: Client) -> None:
    client.create_topic(TOPIC)
    client.produce(TOPIC, numbered(100))
    sizes = {(topic, partition): size for topic, partition, size in client.admin("log_dirs")}
    assert sizes[TOPIC, 0] > 100


@clients("quotas")
def test_quotas_of_a_client_are_set_told_and_removed(client: Client) -> None:
    client.admin("set_quota", client_id="greedy", limits={"producer_byte_rate": 1000000.0})
    assert client.admin("quotas", client_id="greedy") == {"producer_byte_rate": 1000000.0}
    client.admin("set_quota", client_id="greedy", limits={"producer_byte_rate": None})
    assert client.admin("quotas", client_id="greedy") == {}
