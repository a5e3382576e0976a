"""The broker's log levels, seen and set while it runs, as Kafka's BROKER_LOGGER resource (KIP-412).

Called by handlers.configs. A level set here lasts until the broker stops, as in Kafka.
"""

import logging
from collections.abc import Sequence

from penstock.cluster.overrides import ConfigChange, ConfigOp
from penstock.errors import InvalidConfig, InvalidRequest

ROOT = "root"
FAMILY = "penstock"

# Kafka's names; Python knows no TRACE, and 5 is where others put it.
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_levels() -> dict[str, str]:
    """The level in force of the root logger and of each of the broker's own."""
    return {name: _name_of(logger.getEffectiveLevel()) for name, logger in sorted(_loggers().items())}


def set_logger_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """All of the changes, or, if one of them is wrong, none."""
    loggers = _loggers()
    levels: list[tuple[logging.Logger, int]] = []
    for change in changes:
        logger = loggers.get(change.name)
        if logger is None:
            raise InvalidConfig(f"there is no logger {change.name!r}")
        if change.op is ConfigOp.SET:
            level = LEVELS.get(change.value or "")
            if level is None:
                raise InvalidConfig(f"{change.value!r} is no log level; {', '.join(LEVELS)} are")
        elif change.op is ConfigOp.DELETE:
            if change.name == ROOT:
                raise InvalidRequest("the root logger has no level to fall back to; set another")
            level = logging.NOTSET
        else:
            raise InvalidRequest("a log level is set or deleted; nothing can be appended to it or subtracted from it")
        levels.append((logger, level))
    if not validate_only:
        for logger, level in levels:
            logger.setLevel(level)


def _loggers() -> dict[str, logging.Logger]:
    # Only loggers that exist: a name from the wire must not make one, for they are never removed.
    known = logging.Logger.manager.loggerDict
    own = {
        name: logger
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and (name == FAMILY or name.startswith(FAMILY + "."))
    }
    return {ROOT: logging.getLogger(), **own}


def _name_of(level: int) -> str:
    # One between two of Kafka's shows as the higher: at least that much is let through.
    return next((name for name, value in LEVELS.items() if level <= value), "FATAL")
