"""Where the log of these tests lies."""

from pathlib import Path

import pytest
from tests.unit.log.making import AT


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / str(AT)
