"""Fixtures: `machine`, a registry without a cluster."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))

from registry_machine import Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.parser.close()
