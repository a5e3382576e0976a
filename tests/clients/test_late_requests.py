"""An EndTxn that the network kept back, and brings when its sender has long ended that transaction, changes nothing.

Version 2 (KIP-890) gives every transaction an epoch of its own, so a late request can never mean the next one. In
version 1 all have the same epoch; what tells a late request then is its connection, which its sender has given up.
"""

import pytest
from client import Client, numbered
from driver import Driver
from proxy import CuttingProxy
from roster import clients

from penstock.testing.plugin import BrokerFactory

END_TXN = 26
TOPIC = "ledger"
ID = "copier"


@pytest.fixture
def client(penstock_broker_factory: BrokerFactory, proxy: CuttingProxy, driver: Driver) -> Client:
    """A client that reaches its broker through the proxy."""
    broker = penstock_broker_factory({"advertised.listeners": proxy.address})
    proxy.forward_to(broker.bootstrap)
    client = Client(driver, proxy.address)
    client.create_topic(TOPIC)
    return client


def committed(client: Client, count: int) -> list[int]:
    read = client.read(TOPIC, count, isolation="read_committed")
    return [int(record.value or b"-1") for record in read]


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@clients("end_retries")
def test_an_end_that_comes_after_its_retry_changes_nothing(
    client: Client, proxy: CuttingProxy, is_commit: bool
) -> None:
    producer = client.producer(transactional_id=ID)
    producer.begin_transaction()
    producer.send(TOPIC, numbered(10))
    proxy.withhold(END_TXN)
    producer.begin_end(is_commit=is_commit).result()
    proxy.deliver()
    producer.begin_transaction()
    producer.send(TOPIC, numbered(10, start=10))
    producer.commit_transaction()
    kept = list(range(0 if is_commit else 10, 20))
    assert committed(client, len(kept)) == kept


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@clients("end_retries")
def test_an_end_that_comes_in_the_next_transaction_does_not_end_that(
    client: Client, proxy: CuttingProxy, is_commit: bool
) -> None:
    producer = client.producer(transactional_id=ID)
    producer.begin_transaction()
    producer.send(TOPIC, numbered(10))
    proxy.withhold(END_TXN)
    producer.begin_end(is_commit=is_commit).result()
    producer.begin_transaction()
    producer.send(TOPIC, numbered(10, start=10))
    proxy.deliver()
    # The other way than the late request would have ended it.
    producer.send(TOPIC, numbered(10, start=20))
    producer.begin_end(is_commit=not is_commit).result()
    producer.begin_transaction()
    producer.send(TOPIC, numbered(1, start=30))
    producer.commit_transaction()
    kept = [*(range(10) if is_commit else range(10, 30)), 30]
    assert committed(client, len(kept)) == kept
