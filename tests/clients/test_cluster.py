"""Every client at a cluster of three while a leader is killed and all brokers are restarted in turn.

All clients are at work at the same time, each on a topic and in a group of its own, so that the cluster has to be
mistreated only once; the tests look at what each of them was told and has seen.
"""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from client import Client, numbered
from cluster_eyes import Eyes
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic
from driver import ClientError, Driver
from kcat_process import KcatLoad
from roster import KINDS, Kind, clients
from steady_load import PARTITIONS, Load, Outcome, SteadyLoad, group_of
from toolchains import BUILD_DEADLINE_S, ToolchainMissing
from transactional_copy import Copier

from penstock.coordination.led_partitions import partition_of
from penstock.model import TRANSACTION_STATE_TOPIC
from penstock.testing import PenstockCluster

DEADLINE_S = 60.0
KCAT = "kcat"
COPIED = 50
KILLED_IN = 3  # of the ten transactions that a copy takes
NAMES = [*(kind.name for kind in KINDS), KCAT]
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}

# The first to need a client may have to build its driver first.
pytestmark = pytest.mark.timeout(3 * BUILD_DEADLINE_S)
every_client = pytest.mark.parametrize("name", NAMES)


@dataclass(frozen=True, slots=True)
class Voyage:
    """What came of it, by client."""

    outcomes: dict[str, Outcome]
    committed: dict[str, dict[int, int]]
    skipped: dict[str, str]

    def of(self, name: str) -> Outcome:
        if name in self.skipped:
            pytest.skip(self.skipped[name])
        return self.outcomes[name]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockCluster]:
    with PenstockCluster(tmp_path_factory.mktemp("cluster"), overrides=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def eyes(cluster: PenstockCluster) -> Iterator[Eyes]:
    opened = Eyes(cluster.metadata_url, cluster.directory)
    opened.open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def voyage(
    request: pytest.FixtureRequest, cluster: PenstockCluster, eyes: Eyes, drivers: Callable[[Kind], Driver]
) -> Voyage:
    asked = names_asked_for(request)
    kinds = {kind.name: kind for kind in KINDS if kind.name in asked}
    clients: dict[str, Client] = {}
    skipped: dict[str, str] = {}
    for name, kind in kinds.items():
        try:
            clients[name] = Client(drivers(kind), cluster.bootstrap)
        except ToolchainMissing as reason:
            skipped[name] = str(reason)
    if shutil.which(KCAT) is None:
        skipped[KCAT] = "kcat is not installed"
    names = [name for name in NAMES if name in asked and name not in skipped]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_topics([NewTopic(topic_of(name), PARTITIONS, 3) for name in names]).values():
        made.result(DEADLINE_S)

    def begin(name: str) -> Load:
        if name == KCAT:
            return KcatLoad(cluster.bootstrap, topic_of(name))
        return SteadyLoad(kinds[name], clients[name], topic_of(name))

    with ThreadPoolExecutor(len(names)) as pool:
        loads = dict(zip(names, pool.map(begin, names), strict=True))
        stuck: dict[str, str] = {}

        def advance(name: str) -> None:
            try:
                if name not in stuck:
                    loads[name].advance()
            except AssertionError as error:  # its own tests fail; the others go on
                stuck[name] = str(error)

        mistreat(cluster, eyes, names, lambda: list(pool.map(advance, names)))
        outcomes = dict(zip(names, pool.map(lambda name: loads[name].finish(), names), strict=True))
    for name, reason in stuck.items():
        outcomes[name].failures.append(reason)
    committed = {name: committed_offsets(admin, topic_of(name)) for name in names}
    for client in clients.values():
        client.close()
    return Voyage(outcomes, committed, skipped)


def mistreat(cluster: PenstockCluster, eyes: Eyes, names: list[str], advance: Callable[[], object]) -> None:
    """Nothing is done before everybody has got on, in the state that the last deed has left."""
    advance()
    victim = eyes.leader(topic_of(names[0]), 0)
    assert all(eyes.led_by(victim, topic_of(name)) for name in names), "it leads something of everybody"
    cluster.kill(victim)
    advance()
    cluster.start_node(victim)
    for node in cluster.node_ids:
        assert eyes.wait_whole(DEADLINE_S)
        assert cluster.terminate(node) == 0
        advance()
        cluster.start_node(node)
    assert eyes.wait_whole(DEADLINE_S)
    advance()


def names_asked_for(request: pytest.FixtureRequest) -> set[str]:
    """Of all clients those whose tests are to run."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    mine = [item for item in items if item.module is request.module and request.fixturename in item.fixturenames]
    return {item.callspec.params["name"] for item in mine}


def create(cluster: PenstockCluster, topic: str, replicas: list[int]) -> None:
    """One partition, led by the first of them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result(DEADLINE_S)


def topic_of(name: str) -> str:
    return f"orders-{name}"


def committed_offsets(admin: AdminClient, topic: str) -> dict[int, int]:
    group = group_of(topic)
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {place.partition: place.offset for place in answer.result(DEADLINE_S).topic_partitions}


@every_client
def test_a_group_reads_every_acknowledged_message_where_it_was_said_to_be(voyage: Voyage, name: str) -> None:
    outcome = voyage.of(name)
    present = set(outcome.read.values())
    missing = {number: place for number, place in outcome.acknowledged.items() if number not in present}
    assert missing == {}
    told = {place: number for number, place in outcome.acknowledged.items() if place is not None}
    assert {place: outcome.read.get(place) for place in told} == told


@every_client
def test_an_idempotent_producer_writes_nothing_twice_and_all_in_order(voyage: Voyage, name: str) -> None:
    outcome = voyage.of(name)
    for partition in range(PARTITIONS):
        places = sorted(place for place in outcome.read if place[0] == partition)
        numbers = [outcome.read[place] for place in places]
        assert [offset for _, offset in places] == list(range(len(places))), "no hole and nothing skipped"
        assert numbers == sorted(set(numbers))


@every_client
def test_no_send_fails_for_want_of_a_broker(voyage: Voyage, name: str) -> None:
    assert voyage.of(name).failures == []


@every_client
def test_what_a_group_has_read_is_committed_on_the_coordinator_that_is_left(voyage: Voyage, name: str) -> None:
    outcome = voyage.of(name)
    ends = {partition: 1 + max(o for p, o in outcome.read if p == partition) for partition, _ in outcome.read}
    assert voyage.committed[name] == ends


@pytest.mark.parametrize("victim", ["coordinator", "source", "target"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@clients(only=("java-4.4",))
def test_a_copy_in_transactions_of_version_2_is_exact_whichever_of_three_brokers_is_killed(
    driver: Driver, cluster: PenstockCluster, eyes: Eyes, victim: str, protocol: str
) -> None:
    copy_and_kill(Client(driver, cluster.bootstrap), cluster, eyes, victim, f"{victim}-{protocol}", protocol=protocol)


@clients("transactional_offsets", "end_retries", "lost_coordinators")
def test_a_copy_in_transactions_is_exact_when_the_broker_that_coordinates_them_is_killed(
    driver: Driver, kind: Kind, cluster: PenstockCluster, eyes: Eyes
) -> None:
    copy_and_kill(Client(driver, cluster.bootstrap), cluster, eyes, "coordinator", kind.name)


def copy_and_kill(
    client: Client, cluster: PenstockCluster, eyes: Eyes, victim: str, name: str, **member_settings: str
) -> None:
    """The leaders of what is read and written and the coordinator are on a broker each; one dies in a transaction."""
    client.producer(transactional_id="any").close()  # makes the topic of transactions
    assert eyes.wait_whole(DEADLINE_S)
    group = transactional_id = f"copier-{name}"
    index = partition_of(transactional_id, len(eyes.partitions(TRANSACTION_STATE_TOPIC)))
    coordinator = eyes.leader(TRANSACTION_STATE_TOPIC, index)
    reading, writing = (node for node in cluster.node_ids if node != coordinator)
    node = {"coordinator": coordinator, "source": reading, "target": writing}[victim]
    source, target = f"{name}-source", f"{name}-target"
    create(cluster, source, [reading, writing, coordinator])
    create(cluster, target, [writing, coordinator, reading])
    half = COPIED // 2
    client.produce(source, numbered(half))

    def kill_once(transaction: int) -> None:
        if transaction == KILLED_IN and cluster.brokers[node].is_alive:
            cluster.kill(node)
            client.produce(source, numbered(half, start=half), idempotent=True)

    copier = Copier(client, source, target, group, **member_settings)
    try:
        copier.copy(COPIED, kill_once)
        assert not cluster.brokers[node].is_alive
    finally:
        cluster.restart(node)
    assert eyes.wait_whole(DEADLINE_S)
    copied = client.read(target, COPIED, isolation="read_committed")
    assert [int(record.value or b"-1") for record in copied] == list(range(COPIED)), copier.errors


@clients(only=("java-4.4", "java-3.9"))
def test_leaders_are_elected_and_replicas_moved_by_an_admin(
    driver: Driver, kind: Kind, cluster: PenstockCluster, eyes: Eyes
) -> None:
    client = Client(driver, cluster.bootstrap)
    topic = f"moved-{kind.name}"
    at = {"topic": topic, "partition": 0}
    create(cluster, topic, [1, 2])
    client.produce(topic, numbered(20))
    assert eyes.wait_whole(DEADLINE_S)

    client.admin("reassign", **at, replicas=[3, 1])
    assert eyes.wait(
        lambda: set(eyes.partitions(topic)[0].replicas) == set(eyes.partitions(topic)[0].isr) == {1, 3}, DEADLINE_S
    )
    assert client.admin("reassignments") == []
    if eyes.leader(topic, 0) != 3:
        client.admin("elect_leader", **at, election="PREFERRED")
    assert eyes.wait(lambda: eyes.leader(topic, 0) == 3, DEADLINE_S)
    with pytest.raises(ClientError, match="ElectionNotNeeded"):
        client.admin("elect_leader", **at, election="PREFERRED")
    assert [int(record.value or b"-1") for record in client.read(topic, 20)] == list(range(20))
