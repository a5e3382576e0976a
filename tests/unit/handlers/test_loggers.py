"""handlers.loggers: log levels while the broker runs."""

import logging
from collections.abc import Iterator

import pytest

from penstock.cluster.overrides import ConfigChange, ConfigOp
from penstock.errors import InvalidConfig, InvalidRequest
from penstock.handlers.loggers import logger_levels, set_logger_levels

NAME = "penstock.test.loggers"


@pytest.fixture(autouse=True)
def _logger() -> Iterator[None]:
    root_level = logging.getLogger().level
    logging.getLogger(NAME)
    yield
    logging.getLogger(NAME).setLevel(logging.NOTSET)
    logging.getLogger().setLevel(root_level)


def change(name: str, op: ConfigOp, value: str | None = None) -> None:
    set_logger_levels([ConfigChange(name, op, value)], validate_only=False)


@pytest.mark.parametrize("level", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_a_level_that_was_set_is_shown_again(level: str) -> None:
    change(NAME, ConfigOp.SET, level)
    assert logger_levels()[NAME] == level


def test_a_logger_without_a_level_shows_the_one_it_inherits() -> None:
    change("root", ConfigOp.SET, "ERROR")
    change(NAME, ConfigOp.SET, "DEBUG")
    change(NAME, ConfigOp.DELETE)
    assert logger_levels()[NAME] == "ERROR"


def test_a_name_from_the_wire_makes_no_logger() -> None:
    with pytest.raises(InvalidConfig):
        change("penstock.no.such", ConfigOp.SET, "INFO")
    assert "penstock.no.such" not in logging.Logger.manager.loggerDict


def test_loggers_of_others_are_not_touched() -> None:
    logging.getLogger("penstockish")
    assert "penstockish" not in logger_levels()
    with pytest.raises(InvalidConfig):
        change("asyncio", ConfigOp.SET, "INFO")


@pytest.mark.parametrize("op", [ConfigOp.APPEND, ConfigOp.SUBTRACT])
def test_nothing_is_appended_to_a_level(op: ConfigOp) -> None:
    with pytest.raises(InvalidRequest):
        change(NAME, op, "INFO")


def test_the_root_logger_keeps_a_level() -> None:
    with pytest.raises(InvalidRequest):
        change("root", ConfigOp.DELETE)


def test_one_wrong_change_undoes_them_all() -> None:
    before = logger_levels()[NAME]
    changes = [ConfigChange(NAME, ConfigOp.SET, "FATAL"), ConfigChange(NAME, ConfigOp.SET, "LOUD")]
    with pytest.raises(InvalidConfig, match="LOUD"):
        set_logger_levels(changes, validate_only=False)
    set_logger_levels(changes[:1], validate_only=True)
    assert logger_levels()[NAME] == before
