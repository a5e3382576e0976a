"""An idempotent producer on a bad line: everything arrives once and in order."""

from client import WAIT_DEADLINE_S, Client, numbered
from driver import Driver
from proxy import CuttingProxy, Fate
from roster import Kind, clients

from penstock.testing.plugin import BrokerFactory

TOPIC = "ledger"
COUNT = 1500
ROUND = 300
BATCH = 15
PARTITIONS = 2


@clients()
def test_everything_arrives_once_and_in_order_over_a_bad_line(
    penstock_broker_factory: BrokerFactory, proxy: CuttingProxy, driver: Driver, kind: Kind
) -> None:
    broker = penstock_broker_factory({"advertised.listeners": proxy.address})
    proxy.forward_to(broker.bootstrap)
    fates = set(Fate) - ({Fate.REPLY_HALVED} if "half_replies" in kind.lacks else set())
    client = Client(driver, proxy.address)
    client.create_topic(TOPIC, PARTITIONS)
    producer = client.producer(idempotent=True, batch_records=BATCH)
    producer.send(TOPIC, numbered(PARTITIONS, partitions=PARTITIONS))

    proxy.cut_every(6, fates)
    places: list[tuple[int, int]] = []
    sent = PARTITIONS
    # How many requests a client makes of its records is its own affair: go on until the line has done its worst.
    while sent < COUNT or set(proxy.fates) != fates:
        assert sent < 5 * COUNT, f"only {set(proxy.fates)} happened"
        places += producer.send(TOPIC, numbered(ROUND, start=sent, partitions=PARTITIONS))
        sent += ROUND
    proxy.calm()

    for partition in range(PARTITIONS):
        expected = list(range(partition, sent, PARTITIONS))
        read = client.read(TOPIC, len(expected), partition=partition)
        assert [int(record.value or b"") for record in read] == expected
        # A batch that was there already is acknowledged with the offsets it had got.
        assert [offset for p, offset in places if p == partition] == list(range(1, len(expected)))


@clients()
def test_everything_arrives_once_though_the_broker_crashes(
    penstock_broker_factory: BrokerFactory, proxy: CuttingProxy, driver: Driver
) -> None:
    broker = penstock_broker_factory({"advertised.listeners": proxy.address})
    proxy.forward_to(broker.bootstrap)
    client = Client(driver, proxy.address)
    client.create_topic(TOPIC)
    producer = client.producer(idempotent=True, batch_records=BATCH)

    proxy.hold_after(5)
    under_way = producer.begin(TOPIC, numbered(COUNT))
    proxy.wait_until_holding()
    broker.crash_and_restart()
    proxy.release()

    assert under_way.result(WAIT_DEADLINE_S) == [[0, offset] for offset in range(COUNT)]
    read = client.read(TOPIC, COUNT)
    assert [int(record.value or b"") for record in read] == list(range(COUNT))
