"""The pytest plugin: `penstock_broker`, a real broker for one test, and `penstock_cluster`, three of them as processes.

Each comes with a factory for other settings or more of them.

Found by pytest itself once penstock is installed; imports the broker only when a fixture is used.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.cluster import PenstockCluster
    from penstock.testing.embedded import EmbeddedBroker

BrokerFactory = Callable[..., "EmbeddedBroker"]
ClusterFactory = Callable[..., "PenstockCluster"]

LOG_TAIL_CHARACTERS = 6000


@pytest.fixture
def penstock_broker_factory(tmp_path: Path) -> Iterator[BrokerFactory]:
    """Makes brokers, each with its own data directory; all are stopped when the test ends."""
    from penstock.testing.embedded import EmbeddedBroker

    made: list[EmbeddedBroker] = []

    def make(settings: Mapping[str, str] | None = None) -> EmbeddedBroker:
        broker = EmbeddedBroker(tmp_path / f"penstock-{len(made)}", settings)
        made.append(broker)
        return broker.start()

    yield make
    for broker in made:
        broker.stop()


@pytest.fixture
def penstock_broker(penstock_broker_factory: BrokerFactory) -> "EmbeddedBroker":
    """A real broker in this process, on a free port, with its data in tmp_path."""
    return penstock_broker_factory()


@pytest.fixture
def penstock_cluster_factory(tmp_path: Path) -> Iterator[ClusterFactory]:
    """Makes clusters of real broker processes; all are stopped when the test ends, and a failure shows their logs."""
    from penstock.testing.cluster import PenstockCluster

    made: list[PenstockCluster] = []

    def make(**how: Any) -> PenstockCluster:
        cluster = PenstockCluster(tmp_path / f"cluster-{len(made)}", **how)
        made.append(cluster)
        return cluster.start()

    yield make
    try:
        for cluster in made:
            cluster.stop()
    finally:
        for cluster in made:
            cluster.destroy()
            for node, broker in cluster.brokers.items():
                # pytest shows what is written here with a test that failed, and only then.
                sys.stdout.write(f"--- broker {node}\n{broker.log[-LOG_TAIL_CHARACTERS:]}\n")


@pytest.fixture
def penstock_cluster(penstock_cluster_factory: ClusterFactory) -> "PenstockCluster":
    """Three real brokers in processes of their own, with their data in tmp_path."""
    return penstock_cluster_factory()
