"""All that a source or a sink has to do with a cluster goes through TLS and SASL, by the settings that a user writes.

Rows read, rows written exactly and at least once, the topic of markers, dead letters, the group of the lag: each has a
client of its own, and none of them may forget how to get in.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from guarded_door import GuardedDoor, make_certificates

from penstock import model
from penstock.spark.batch_reader import BatchReader
from penstock.spark.connections import drop_cluster
from penstock.spark.errors import SparkFailure
from penstock.spark.formats import format_options, resolve
from penstock.spark.group_client import LibrdkafkaGroups
from penstock.spark.options import read_options, write_options
from penstock.spark.sink.at_least_once import write_at_least_once
from penstock.spark.sink.marker import QUERY_MARKERS
from penstock.testing.embedded import EmbeddedBroker

# A worker's life without Spark, as the sink's own tests have it.
sys.path.insert(0, str(Path(__file__).parent / "sink"))

from sink_world import SHAPE, batches, end_worker, rows_of, task_of, write

USER, PASSWORD = "ann", 'pen"cil;='
DEADLINE_S = 30.0
JAAS = r'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="pen\"cil;=";'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def door(certificates: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedDoor]:
    with GuardedDoor(
        certificates=certificates,
        wants_client_certificate=True,
        mechanisms=("SCRAM-SHA-512",),
        users={USER: PASSWORD},
    ) as door:
        settings = {"advertised.listeners": door.address}
        with EmbeddedBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
            host, port = broker.bootstrap.rsplit(":", 1)
            door.upstream = host, int(port)
            yield door


@pytest.fixture(scope="module")
def secured(door: GuardedDoor, certificates: tuple[Path, Path]) -> dict[str, str]:
    """As somebody writes it who comes from Java."""
    certificate, key = certificates
    return {
        "kafka.bootstrap.servers": door.address,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificate),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": certificate.read_text(),
        "kafka.ssl.keystore.key": key.read_text(),
        "kafka.request.timeout.ms": "5000",
    }


@pytest.fixture(scope="module")
def other(door: GuardedDoor, certificates: tuple[Path, Path]) -> dict[str, Any]:
    """For the clients that look: in librdkafka's own words, by nobody's translation."""
    return {
        "bootstrap.servers": door.address,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(certificates[0]),
        "ssl.certificate.location": str(certificates[0]),
        "ssl.key.location": str(certificates[1]),
    }


@pytest.fixture(scope="module", autouse=True)
def topics(other: dict[str, Any]) -> None:
    # Named, so that it outlives the request.
    admin = AdminClient(other)
    for done in admin.create_topics([NewTopic(name, 2, 1) for name in ("rows", "dead")]).values():
        done.result(DEADLINE_S)


def read(given: dict[str, str], **more: str) -> list[Any]:
    """The values of a topic, through the source; those that do not decode are dead letters."""
    options = given | more
    chosen = replace(read_options(options, is_streaming=False), formats=resolve(format_options(options)))
    reader = BatchReader(chosen)
    try:
        parts = reader.partitions()
        return [value for part in parts for batch in reader.read(part) for value in batch["value"].to_pylist()]
    finally:
        drop_cluster(chosen.connection)


def test_every_client_of_a_source_and_a_sink_is_let_in(
    secured: dict[str, str], other: dict[str, Any], door: GuardedDoor
) -> None:
    # Written: in transactions, with a topic for the markers that is made on the way, and without.
    options = write_options(secured | {"topic": "rows"})
    try:
        assert not write(options, task_of(0)).is_skipped
        end_worker(options)
        assert write(options, task_of(0, run="run-2")).is_skipped
        written = write_at_least_once(options, SHAPE, batches(['{"id": 1}', "poison"]))
    finally:
        end_worker(options)
    assert written == 2
    # Read, and buried what is no JSON.
    found = read(
        secured,
        subscribe="rows",
        **{"value.format": "json", "value.schema": "id INT"},
        **{"on.bad.record": "deadletter", "deadletter.topic": "dead"},
    )
    assert found == [{"id": 1}]
    assert sorted(read(secured, subscribe="dead")) == sorted(text.encode() for text in [*rows_of(0, 0), "poison"])
    assert len(read(secured, subscribe=QUERY_MARKERS.name)) == 1
    # And told how far it is, where the group of an unnamed query is found again.
    groups = LibrdkafkaGroups(read_options(secured | {"subscribe": "rows"}, is_streaming=True).librdkafka)
    groups.commit("spark-rows", {model.TopicPartition("rows", 1): 7}, "token")
    assert groups.find("spark-", "token") == "spark-rows"
    groups.close()
    looking = Consumer(other | {"group.id": "spark-rows"})
    (stored,) = looking.committed([TopicPartition("rows", 1)], DEADLINE_S)
    looking.close()
    assert (stored.offset, stored.metadata) == (7, "token")
    assert door.connections > 0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"kafka.sasl.jaas.config": JAAS.replace("pen", "chalk")}, "Authentication failed"),
        ({"kafka.ssl.truststore.location": "", "kafka.ssl.ca.pem": ""}, "certificate verify failed"),
        ({"kafka.security.protocol": "PLAINTEXT"}, "no answer"),
    ],
    ids=["a wrong password", "a stranger's certificate", "no security"],
)
def test_a_writer_that_is_not_let_in_says_why_and_no_secret(
    secured: dict[str, str], wrong: dict[str, str], told: str
) -> None:
    options = write_options(secured | wrong | {"topic": "rows", "kafka.delivery.timeout.ms": "2000"})
    try:
        with pytest.raises(SparkFailure, match=told) as seen:
            write(options, task_of(9))
    finally:
        end_worker(options)
    assert "chalk" not in str(seen.value)
    assert "cil" not in str(seen.value)
