"""A broker that must not join says why on stderr and ends with a code; those that serve go on unharmed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_client import Client, in_partition_order

from penstock.testing import PenstockCluster
from penstock.testing.etcd import etcd_binary

REFUSED = 2
DEADLINE_S = 30


def refused(data_dir: Path, *options: str, metadata: str) -> str:
    """What a broker said that did not start; it must have ended by itself, with a code and without a traceback."""
    command = [sys.executable, "-m", "penstock", "serve", "--no-gateway", "--listen", "127.0.0.1:0", "--http", ""]
    command += ["--data-dir", str(data_dir), "-o", f"penstock.metadata={metadata}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == REFUSED, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def filled(penstock_cluster: PenstockCluster) -> PenstockCluster:
    client = Client()
    client.create(penstock_cluster, "orders")
    client.send(client.producer(penstock_cluster), "orders", 0, 300)
    return penstock_cluster


def assert_nothing_is_lost(cluster: PenstockCluster) -> None:
    assert all(broker.is_alive for broker in cluster.brokers.values())
    assert Client().read_all(cluster, "orders") == in_partition_order(300)


def test_a_second_broker_with_a_node_id_in_use(filled: PenstockCluster, tmp_path: Path) -> None:
    said = refused(tmp_path / "other", "--node-id", "2", metadata=filled.metadata_url)
    assert "node id 2 belongs to another broker" in said
    assert_nothing_is_lost(filled)


def test_a_second_process_on_a_data_directory_in_use(filled: PenstockCluster) -> None:
    said = refused(filled.brokers[2].data_dir, "--node-id", "2", metadata=filled.metadata_url)
    assert "in use by another process" in said
    assert_nothing_is_lost(filled)


def test_a_broker_whose_data_belongs_to_another_cluster(filled: PenstockCluster, tmp_path: Path) -> None:
    filled.terminate(3)
    said = refused(filled.brokers[3].data_dir, "--node-id", "3", metadata=f"sqlite:{tmp_path / 'other.db'}")
    assert "belongs to cluster" in said
    filled.start_node(3)
    assert_nothing_is_lost(filled)


def test_a_broker_whose_data_was_written_under_another_node_id(filled: PenstockCluster) -> None:
    filled.terminate(3)
    said = refused(filled.brokers[3].data_dir, "--node-id", "4", metadata=filled.metadata_url)
    assert "is that of node 3, not of node 4" in said
    filled.start_node(3)
    assert_nothing_is_lost(filled)


@pytest.mark.skipif(etcd_binary() is None, reason="there is no command etcd")
def test_a_store_nobody_answers_for(tmp_path: Path) -> None:
    said = refused(
        tmp_path / "data", "-o", "penstock.metadata.connect.timeout.ms=1500", metadata="etcd://127.0.0.1:1,127.0.0.1:2"
    )
    assert "127.0.0.1:1" in said
    assert "127.0.0.1:2" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="another machine's name takes root")
def test_metadata_of_another_machine(filled: PenstockCluster, tmp_path: Path) -> None:
    """SQLite's locks do not reach over machines; a broker elsewhere must not open the file at all."""
    identity = tmp_path / "machine-id"
    identity.write_text("0123456789abcdef0123456789abcdef\n")
    command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--http", "", "--node-id", "9"]
    command += ["--no-gateway", "--data-dir", str(tmp_path / "data"), "-o", f"penstock.metadata={filled.metadata_url}"]
    mount = f"mount --bind {identity} /etc/machine-id && exec " + " ".join(command)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mount], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == REFUSED, done.stderr
    assert "Traceback" not in done.stderr
    assert_nothing_is_lost(filled)
