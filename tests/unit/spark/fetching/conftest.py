"""A real broker, and what puts records into it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.spark.fetching import Cluster, ConnectionSettings
from penstock.testing.embedded import EmbeddedBroker

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    directory: Path = tmp_path_factory.mktemp("broker")
    with EmbeddedBroker(directory, {"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    # Found only now that the folder is on the path.
    from partition_world import create

    name = f"t{uuid4().hex[:8]}"
    create(broker, name)
    return name


@pytest.fixture
def open_cluster() -> Iterator[Callable[..., Cluster]]:
    """A cluster of the embedded broker, or of any bootstrap; closed at the end."""
    opened: list[Cluster] = []

    def open_one(bootstrap: str, deadline_s: float = 20.0, **settings: Any) -> Cluster:
        host, port = bootstrap.rsplit(":", 1)
        connection = ConnectionSettings(((host, int(port)),), **{"request_timeout_s": 10.0, **settings})
        made = Cluster(connection, deadline_s=deadline_s)
        opened.append(made)
        return made

    yield open_one
    for cluster in opened:
        cluster.close()
