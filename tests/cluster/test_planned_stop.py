"""A broker that stops on purpose: its clients hear from itself where to go, before it hangs up."""

import asyncio
import contextlib

from cluster_client import Client
from confluent_kafka.admin import AdminClient

from penstock.client.connection import ClientConnection
from penstock.model import Endpoint
from penstock.testing import PenstockCluster
from penstock.testing.plugin import ClusterFactory
from penstock.wire.apis import ApiKey

TOPIC = "orders"


async def told_while_stopping(cluster: PenstockCluster, node: int) -> list[int]:
    """Every leader the broker names to a client that keeps asking, until it hangs up."""
    host, _, port = cluster.address(node).rpartition(":")
    async with await ClientConnection.connect(Endpoint(host, int(port))) as connection:

        async def leader() -> int:
            answer = await connection.request(ApiKey.METADATA, 9, {"topics": [{"name": TOPIC}]})
            return int(answer.topics[0].partitions[0].leader_id)

        named = [await leader()]
        stopping = asyncio.get_running_loop().run_in_executor(None, cluster.terminate, node)
        with contextlib.suppress(ConnectionError):
            while True:
                named.append(await leader())
        assert await stopping == 0
    return named


def test_a_broker_that_stops_says_who_leads_now(penstock_cluster_factory: ClusterFactory) -> None:
    cluster = penstock_cluster_factory()
    Client().create(cluster, TOPIC, partitions=1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    leader = int(admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader)
    named = asyncio.run(told_while_stopping(cluster, leader))
    assert named[0] == leader
    assert named[-1] in set(cluster.node_ids) - {leader}
