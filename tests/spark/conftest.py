"""Fixtures of the tests with a real Spark: `spark`, one session for the whole run; `broker`, a real one per module.

`topics` wraps the broker's clients: topics.make(), topics.produce(...), topics.read(...) (helpers.Topics).
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.testing.embedded import EmbeddedBroker

# The parts that tests share lie beside them.
sys.path.insert(0, str(Path(__file__).parent))

from helpers import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    is_whole = [Path(argument).resolve() for argument in config.args] == [HERE]
    if is_whole and not config.option.collectonly:
        make_class_archive()


def make_class_archive() -> None:
    """Once for a machine: every JVM that is started here then stands in half the time."""
    from penstock.spark.class_archive import find_archive, make_archive
    from penstock.spark.errors import SparkFailure
    from penstock.spark.java import prepare_java

    # Without it, or without a Java, the tests say better what is wrong.
    with suppress(SparkFailure):
        if find_archive(prepare_java()) is None:
            make_archive()


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """local[2], in UTC, two shuffle partitions. A test that needs other settings sets and unsets them."""
    from penstock.spark.session import build_session

    session = build_session("penstock-tests", "local[2]", {"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker of the module's own; `broker.bootstrap` stays the same when a test restarts it."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker) -> Iterator[Topics]:
    with Topics(broker.bootstrap) as clients:
        yield clients
