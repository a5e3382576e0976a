"""The pytest plugin: `penstock_broker`, a real broker for one test, and `penstock_broker_factory` for several.

Found by pytest itself once penstock is installed; imports the broker only when a fixture is used.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.embedded import EmbeddedBroker

BrokerFactory = Callable[..., "EmbeddedBroker"]


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
