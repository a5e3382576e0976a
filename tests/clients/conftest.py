"""Fixtures of the real clients: `driver`, one of them; `client`, the same pointed at a broker of the test's own.

And of the command line: `run` and `ask`, a command; `member`, one of a group beside it.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner, Result

from penstock.cli.app import app
from penstock.testing import EmbeddedBroker

# The parts that tests share lie beside them, and beside those of chaos.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "chaos"))

from client import Client
from command_line import Run
from driver import Driver
from proxy import CuttingProxy
from roster import Kind
from toolchains import ToolchainMissing

Drivers = Callable[[Kind], Driver]


@pytest.fixture(scope="session")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Starts each client's driver when it is first needed, and keeps it: a JVM takes longer to start than its tests."""
    running: dict[str, Driver] = {}
    diaries = tmp_path_factory.mktemp("drivers")

    def start(kind: Kind) -> Driver:
        if kind.name not in running or not running[kind.name].is_alive:
            running[kind.name] = Driver(kind.command(), os.environ, diaries / kind.name)
        return running[kind.name]

    yield start
    for driver in running.values():
        driver.end()


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> Kind:
    """Which client a test runs with."""
    return request.node.callspec.params["driver"]


@pytest.fixture
def driver(request: pytest.FixtureRequest, drivers: Drivers) -> Iterator[Driver]:
    try:
        started = drivers(request.param)
    except ToolchainMissing as reason:
        pytest.skip(str(reason))
    yield started
    if request.session.testsfailed:
        request.node.add_report_section("teardown", "driver", started.diary())
    try:
        started.call("close_all")
    except Exception:
        started.end()  # it may hold what the next test must not meet; that one gets a new driver
        raise


@pytest.fixture
def client(penstock_broker: EmbeddedBroker, driver: Driver) -> Client:
    return Client(driver, penstock_broker.bootstrap)


@pytest.fixture
def proxy() -> Iterator[CuttingProxy]:
    with CuttingProxy() as running:
        yield running


@pytest.fixture
def run(penstock_broker: EmbeddedBroker) -> Run:
    """Runs a command in this process; its exit code must be the one expected."""

    def invoke(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> Result:
        environment = {"PENSTOCK_BOOTSTRAP": penstock_broker.bootstrap}
        result = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return invoke


@pytest.fixture
def ask(run: Run) -> Callable[..., Any]:
    """Runs a command with --json and gives the document."""

    def invoke(*arguments: str, code: int = 0) -> Any:
        return json.loads(run(*arguments, "--json", code=code).stdout)

    return invoke


@pytest.fixture
def member(penstock_broker: EmbeddedBroker) -> Iterator[Callable[..., Consumer]]:
    """Makes members of groups that have their partitions, and closes them."""
    made: list[Consumer] = []

    def join(group: str, *topics: str, **settings: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": penstock_broker.bootstrap,
                "group.id": group,
                "client.id": "anna",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        made.append(consumer)
        assigned: list[Any] = []
        consumer.subscribe(list(topics), on_assign=lambda _, partitions: assigned.extend(partitions))
        while not assigned:
            consumer.poll(0.1)
        return consumer

    yield join
    for consumer in made:
        consumer.close()
