"""A data directory has one live process and keeps its identity."""

import subprocess
import sys

import pytest

from penstock.clock import Rng
from penstock.cluster.directory import ClusterIdMismatch, DirectoryInUse, claim_directory
from penstock.disk import RealDisk

HOLD = """
import sys
from pathlib import Path
from penstock.clock import Rng
from penstock.cluster.directory import claim_directory
from penstock.disk import RealDisk
claim_directory(Path(sys.argv[1]), RealDisk(), Rng())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def disk():
    disk = RealDisk()
    yield disk
    disk.close()


def test_a_directory_keeps_its_identity_over_restarts(tmp_path, disk):
    first = claim_directory(tmp_path / "data", disk, Rng(1))
    first.close()
    second = claim_directory(tmp_path / "data", disk, Rng(2))
    assert second.id == first.id
    second.close()
    other = claim_directory(tmp_path / "other", disk, Rng(2))
    assert other.id != first.id
    other.close()


def test_a_directory_in_use_by_a_live_process_is_refused_with_its_pid_and_free_once_that_is_killed(tmp_path, disk):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUse, match=f"pid {holder.pid}"):
            claim_directory(tmp_path, disk, Rng(1))
        holder.kill()
        holder.wait()
    claim_directory(tmp_path, disk, Rng(1)).close()


def test_a_directory_stays_with_the_cluster_it_was_first_part_of(tmp_path, disk):
    claim = claim_directory(tmp_path, disk, Rng(1))
    claim.join_cluster("of-the-first-cluster--")
    first = claim.id
    claim.close()
    claim = claim_directory(tmp_path, disk, Rng(2))
    assert claim.id == first
    claim.join_cluster("of-the-first-cluster--")
    with pytest.raises(ClusterIdMismatch, match=r"belongs to cluster of-the-first-cluster--.*--metadata"):
        claim.join_cluster("of-another-cluster----")
    claim.close()


def test_a_directory_of_an_older_version_joins_the_cluster_it_is_started_in(tmp_path, disk):
    identity = "6e0a7a52-3a3f-4a3c-8d3f-0d6f3a3c5b11"
    (tmp_path / "directory.json").write_text(f'{{"directory": "{identity}"}}')
    claim = claim_directory(tmp_path, disk, Rng(1))
    claim.join_cluster("of-the-first-cluster--")
    assert str(claim.id) == identity
    with pytest.raises(ClusterIdMismatch):
        claim.join_cluster("of-another-cluster----")
    claim.close()
