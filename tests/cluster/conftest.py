"""Three real brokers for real clients, on SQLite and on etcd; the fixtures of penstock.testing do the rest."""

import sys
from pathlib import Path

import pytest

from penstock.testing import PenstockCluster
from penstock.testing.etcd import etcd_binary
from penstock.testing.plugin import ClusterFactory

# The parts that tests share lie beside them, and beside those of chaos.
for name in ("cluster", "chaos"):
    sys.path.insert(0, str(Path(__file__).parent.parent / name))

# Short, so that a test of a broker that is gone does not take long; the leases of etcd are whole seconds.
SESSION = {"broker.session.timeout.ms": "2000", "replica.lag.time.max.ms": "2000"}
NO_ETCD = pytest.mark.skipif(etcd_binary() is None, reason="there is no command etcd (Debian: etcd-server)")


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=NO_ETCD)])
def cluster(request: pytest.FixtureRequest, penstock_cluster_factory: ClusterFactory) -> PenstockCluster:
    return penstock_cluster_factory(metadata=request.param, overrides=SESSION)
