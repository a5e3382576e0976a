"""A broker for each module, a topic `target` made anew for each test, and no worker that outlives its test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.embedded import EmbeddedBroker

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))

from sink_world import end_worker, make_topic, options_for


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "broker") as running:
        make_topic(running.bootstrap, "target")
        yield running
        end_worker(options_for(running.bootstrap))
