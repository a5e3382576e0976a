"""A real broker for tests: the pytest fixtures of testing.plugin, and EmbeddedBroker for everything else."""

from penstock.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
