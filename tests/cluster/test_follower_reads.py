"""A consumer that says where it stands reads from the replica that stands there (KIP-392)."""

from cluster_client import DEADLINE_S, Client
from confluent_kafka import Consumer, TopicPartition

from penstock.testing.fault_proxy import CLIENTS
from penstock.testing.plugin import ClusterFactory

RACKS = {1: "alder", 2: "birch", 3: "cedar"}
VALUE_BYTES = 10_000
COUNT = 200


def test_a_consumer_in_the_rack_of_a_follower_reads_there(penstock_cluster_factory: ClusterFactory) -> None:
    cluster = penstock_cluster_factory(racks=RACKS)
    client = Client()
    client.create(cluster, "orders", partitions=1)
    producer = client.producer(cluster)
    for number in range(COUNT):
        producer.produce("orders", str(number).encode().ljust(VALUE_BYTES), partition=0, on_delivery=client.told)
    assert producer.flush(DEADLINE_S) == 0
    assert client.errors == []
    for node, rack in RACKS.items():
        before = cluster.proxy.carried_bytes[node, CLIENTS]
        assert len(read(cluster.bootstrap, rack)) == COUNT
        assert cluster.proxy.carried_bytes[node, CLIENTS] - before > COUNT * VALUE_BYTES, f"not read in {rack}"


def read(bootstrap: str, rack: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": rack, "client.rack": rack, "log_level": 0})
    # From the middle of nowhere: the first answer of the leader only says where to go.
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[bytes] = []
    while len(values) < COUNT:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"only {len(values)} came"
        assert message.error() is None, message.error()
        values.append(message.value() or b"")
    consumer.close()
    return values
