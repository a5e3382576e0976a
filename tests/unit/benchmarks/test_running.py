"""Processes of the comparison: started in every mode as said, measured as a tree, ended with all they started."""

import os
import sys
from pathlib import Path

import psutil
import pytest
from benchmarks.beside import driving, limits
from benchmarks.beside.drivers.job import Job
from benchmarks.peers import getting
from benchmarks.peers.model import HOST, Driver, Missing, Mode, Node, Plan, free_port
from benchmarks.peers.roster import PEERS
from benchmarks.peers.running import PeerDied, Running, running

# Listens, and leaves others behind that never end: a child in its process group, one that made its own group, and one
# that is nobody's child any more and does not listen to SIGTERM.
SERVER = """
import socket, subprocess, sys
forever = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
children = [subprocess.Popen(forever, start_new_session=apart) for apart in (False, True)]
orphan = ["sh", "-c", "trap '' TERM; sleep 600 >/dev/null 2>&1 & echo $!"]
print(subprocess.run(orphan, capture_output=True, text=True).stdout, *(child.pid for child in children), flush=True)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
children[0].wait()
"""


def plan(tmp_path: Path, code: str) -> Plan:
    port = free_port()
    return Plan(f"{HOST}:{port}", (Node((sys.executable, "-c", code, str(port)), port, tmp_path),))


def is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("ends_by", ["leaving", "an exception", "kill"])
def test_whatever_a_peer_started_ends_with_it(tmp_path: Path, ends_by: str) -> None:
    children: list[psutil.Process] = []

    def use(peer: Running) -> None:
        children.extend(psutil.Process(int(pid)) for pid in (tmp_path / "log").read_text().split())
        assert os.getpgid(children[0].pid) != os.getpgid(0), "a signal to its group would be one to ours"
        if ends_by == "kill":
            peer.kill()
        if ends_by == "an exception":
            raise InterruptedError

    try:
        with running(plan(tmp_path, SERVER), tmp_path / "log") as peer:
            use(peer)
    except InterruptedError:
        assert ends_by == "an exception"
    # Whoever ended is gone, or waits for somebody to ask for its exit code.
    assert len(children) == 3
    _, alive = psutil.wait_procs([child for child in children if not is_zombie(child)], timeout=30)
    assert [child for child in alive if not is_zombie(child)] == []


def test_a_peer_that_ends_by_itself_says_its_last_words(tmp_path: Path) -> None:
    broken = plan(tmp_path, "import sys; sys.exit('no such setting')")
    with pytest.raises(PeerDied, match="ended with 1: no such setting"), running(broken, tmp_path / "log"):
        pass


def test_what_is_used_is_counted_from_a_point_but_memory_is_as_it_is(tmp_path: Path) -> None:
    with running(plan(tmp_path, SERVER), tmp_path / "log") as peer:
        before = peer.usage()
        since = peer.usage().since(before)
    assert since.written_bytes == 0
    assert 0 <= since.cpu_s < before.cpu_s + 10
    assert since.rss_bytes > 5_000_000


def test_every_peer_answers_every_mode_with_a_plan_or_a_reason(tmp_path: Path) -> None:
    (tmp_path / "home/usr/lib/rabbitmq/lib/rabbitmq_server-3/sbin").mkdir(parents=True)
    for name, peer in PEERS.items():
        for mode in Mode:
            made = peer.plan(tmp_path / "home", tmp_path / name / mode, mode)
            if isinstance(made, Missing):
                assert mode is not Mode.DEFAULT, name
                assert made.reason
            else:
                assert len(made.nodes) == 1
                assert made.address == f"{HOST}:{made.nodes[0].port}"


def test_kafka_and_ours_sync_or_do_not_as_the_mode_says_and_have_three_nodes_where_asked(tmp_path: Path) -> None:
    for mode, expected in ((Mode.FSYNC, True), (Mode.PAGE_CACHE, False)):
        kafka = PEERS["kafka"].plan(tmp_path, tmp_path / f"kafka-{mode}", mode)
        assert not isinstance(kafka, Missing)
        settings = (kafka.nodes[0].folder / "server.properties").read_text()
        assert ("log.flush.interval.messages=1\n" in settings) is expected
        ours = PEERS["penstock"].plan(tmp_path, tmp_path / "ours", mode)
        assert not isinstance(ours, Missing)
        assert ("log.flush.interval.messages=1" in ours.nodes[0].command) is expected
        assert ("penstock.durability=page-cache" in ours.nodes[0].command) is not expected
    three = PEERS["kafka"].plan(tmp_path, tmp_path / "three", Mode.DEFAULT, 3)
    assert not isinstance(three, Missing)
    assert len(three.nodes) == len(three.prepare) == len(three.address.split(",")) == 3


def test_an_interrupted_build_is_never_taken_for_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getting, "CACHE", tmp_path)

    def breaks(half: Path) -> str | None:
        (half / "part").write_text("")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        getting.made("thing", "1", breaks)
    assert list(tmp_path.iterdir()) == []
    assert getting.made("thing", "1", lambda _: "the tool said no") == Missing("the tool said no")
    assert getting.made("thing", "1", lambda _: None) == tmp_path / "thing"
    assert getting.version_of(tmp_path / "thing") == "1"
    # Made once; another version is made anew.
    assert getting.made("thing", "1", lambda _: "asked again") == tmp_path / "thing"
    assert getting.made("thing", "2", lambda _: "asked again") == Missing("asked again")


def test_a_tool_that_fails_gives_its_last_words_without_addresses(tmp_path: Path) -> None:
    script = "import sys; sys.exit('reading https://somewhere.test/x: 403 Forbidden')"
    reason = getting.run([sys.executable, "-c", script], tmp_path, 60)
    assert reason is not None
    assert reason.endswith("failed: reading 403 Forbidden")
    assert getting.run(["no-such-tool"], tmp_path, 60) == "no-such-tool is not installed"


def test_a_client_that_fails_says_why_instead_of_an_outcome() -> None:
    with pytest.raises(driving.ClientFailed, match="dance: this client has no act dance; it has create"):
        driving.do(Driver.KAFKA, Job("dance", "127.0.0.1:1"))


def test_librdkafka_is_served_by_the_null_broker() -> None:
    found = limits.null_broker(divisor=20_000)
    assert found["messages_per_s"] > 0
    assert found["client_cpu_us_per_message"] > 0
