"""Settings as clients are shown them, for the tests of settings to look into."""

from penstock.config import describe as describe_module


def entry_of(entries: list[describe_module.ConfigEntry], name: str) -> describe_module.ConfigEntry:
    return next(entry for entry in entries if entry.name == name)
