"""Real brokers for tests: the pytest fixtures of testing.plugin, EmbeddedBroker and PenstockCluster for the rest."""

from penstock.testing.cluster import PenstockCluster
from penstock.testing.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker", "PenstockCluster"]
