"""The etcd that tests and `penstock cluster up` run: its members' lives."""

import os

import pytest

from penstock.testing.etcd import EtcdCluster, EtcdUnusable, encoded, etcd_binary


@pytest.fixture
def has_etcd() -> None:
    if etcd_binary() is None:
        pytest.skip("no etcd on this machine (Debian: apt-get install etcd-server)")


def test_what_was_written_is_there_in_the_next_life_at_the_same_address(tmp_path, has_etcd):
    cluster = EtcdCluster(tmp_path / "etcd", members=1)
    with cluster:
        url = cluster.url
        cluster.ask(0, "kv/put", {"key": encoded(b"a"), "value": encoded(b"1")})
    with EtcdCluster(tmp_path / "etcd", members=1) as again:
        assert again.url == url
        assert again.ask(0, "kv/range", {"key": encoded(b"a")})["kvs"][0]["value"] == encoded(b"1")


def test_a_killed_leader_is_replaced_and_no_process_outlives_the_cluster(tmp_path, has_etcd):
    with EtcdCluster(tmp_path / "etcd") as cluster:
        assert len(cluster.endpoints) == 3
        leader = cluster.leader()
        cluster.kill(leader)
        assert not cluster.is_running(leader)
        cluster.restart(leader)
        assert cluster.is_running(leader)
        cluster.pause(0)
        processes = [process.pid for process in cluster._processes.values()]
    for pid in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_etcd_one_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EtcdUnusable, match="etcd-server"):
        EtcdCluster(tmp_path / "etcd").start()


def test_an_etcd_that_ends_at_once_is_told_with_its_last_words(tmp_path, has_etcd):
    with pytest.raises(EtcdUnusable, match=r"member 0 ended with \d+: .*\w"):
        EtcdCluster(tmp_path / "etcd", members=1, arguments=["--no-such-option"]).start()
