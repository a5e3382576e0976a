"""Faults of machines: disks that fail, are slow, full or new; clocks that jump; administrators at work.

As cluster_faults: each function does it, mends it and says what effect was seen. Some take root, strace or libfaketime;
cluster_nemesis leaves out those that cannot work here, and says so.
"""

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import kafka
import kafka.errors
from cluster_arena import Arena
from cluster_clients import QUEUE
from confluent_kafka import ElectionType, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka.admin import KafkaAdminClient

ADMIN_DEADLINE_S = 20.0
CLOCK_TOPIC = "clock"  # its records carry the time of the broker that took them
CLOCK_NOTICED_S, CLOCK_TOLERANCE_S = 2.5, 10.0
WHOLE_DEADLINE_S = 60.0


def inject(arena: Arena, node: int, what: str, seconds: float) -> int:
    """Have strace spoil this system call of a running broker for a time; how often it did."""
    call = what.partition(":")[0]
    output = arena.cluster.directory / f"strace-{node}"
    command = ["strace", "-f", "-q", "-p", str(arena.cluster.brokers[node].pid), "-o", str(output)]
    tracer = subprocess.Popen(
        [*command, "-e", f"trace={call}", "-e", f"inject={what}", "-e", "signal=none"], stderr=subprocess.DEVNULL
    )
    try:
        arena.wait(seconds)
    finally:
        tracer.terminate()
        tracer.wait()
    text = output.read_text(errors="replace")
    return text.count("(INJECTED)") + text.count("(DELAYED)")


def slow_disk(arena: Arena) -> str:
    count = inject(arena, arena.leader(), "fdatasync:delay_enter=300000", 3.0)
    return f"{count} × fdatasync 0.3 s late" if count else ""


def fsync_error(arena: Arena) -> str:
    """The first fdatasync fails, those after it would succeed: who retries believes what is not so."""
    node = arena.anyone()
    before = Counter(arena.eyes.changes)
    count = inject(arena, node, f"fdatasync:error=EIO:when={arena.chance.choice(('1', '3', '1+50'))}", 3.0)
    # The disk is as good as dead to it; the operator starts it again.
    if arena.cluster.brokers[node].is_alive:
        arena.cluster.kill(node)
    arena.cluster.start_node(node)
    return f"{count} × fdatasync failed; {arena.changed(before)}" if count else ""


def disk_full(arena: Arena) -> str:
    node = arena.chance.choice(sorted(arena.small_disks))
    before = Counter(arena.eyes.changes)
    said = _lines_of(arena, node, "No space left")
    filler = arena.cluster.brokers[node].data_dir / "filler"
    _fill(filler)
    arena.wait(3.0)
    filler.unlink()
    told = _lines_of(arena, node, "No space left") - said
    if arena.cluster.brokers[node].is_alive:
        arena.cluster.kill(node)
    arena.cluster.start_node(node)
    return f"broker {node} said {told} times that there is no space; {arena.changed(before)}" if told else ""


def wipe(arena: Arena) -> str:
    """A new disk under the same id. Two at a time would be more than three replicas promise to survive."""
    if not arena.eyes.wait_whole(WHOLE_DEADLINE_S):
        return ""
    node = arena.anyone()
    before = Counter(arena.eyes.changes)
    arena.note_killed(node)
    arena.cluster.kill(node)
    arena.wait(arena.session_s * arena.chance.choice((0.0, 0.5, 1.3)))
    arena.cluster.wipe(node)
    arena.cluster.start_node(node)
    is_whole = arena.eyes.wait_whole(WHOLE_DEADLINE_S)
    return f"broker {node} {'is full again' if is_whole else 'is not yet full again'}; {arena.changed(before)}"


def clock_jump(arena: Arena) -> str:
    """One broker's clock goes wrong, at once and by much, and then right again; seen in the time it gives a record."""
    node = arena.chance.choice(sorted(arena.clocks))
    offset_s = arena.chance.choice((60, -60, 3600, -3600))
    try:
        _set_clock(arena.clocks[node], f"{offset_s:+d}")
        # The library looks at its file about once a second.
        arena.wait(CLOCK_NOTICED_S)
        skew_s = _skew(arena, node)
        if arena.chance.random() < 0.5:
            _set_clock(arena.clocks[node], arena.chance.choice(("+0", "-30", "+30")))
            arena.wait(CLOCK_NOTICED_S)
    finally:
        _set_clock(arena.clocks[node], "+0")
    is_off = skew_s is not None and abs(skew_s - offset_s) < CLOCK_TOLERANCE_S
    return f"broker {node} stamped a record {skew_s:.0f} s off" if is_off else ""


def _skew(arena: Arena, node: int) -> float | None:
    """How far from ours the time is that this broker stamps on a record; None if it leads nothing to ask it by."""
    led = arena.eyes.led_by(node, CLOCK_TOPIC)
    if not led:
        return None
    stamped: list[float] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            stamped.append(message.timestamp()[1] / 1000 - time.time())

    producer = Producer({"bootstrap.servers": arena.cluster.bootstrap, "message.timeout.ms": 5000, "log_level": 0})
    producer.produce(CLOCK_TOPIC, b"what time is it", partition=led[0], on_delivery=told)
    producer.flush(ADMIN_DEADLINE_S)
    return stamped[0] if stamped else None


def _set_clock(path: Path, offset: str) -> None:
    # Replaced whole: the library must not read half of it.
    new = path.with_suffix(".new")
    new.write_text(f"{offset}\n")
    os.replace(new, path)


def admin_churn(arena: Arena) -> str:
    """Topics come and go, under the same name too; a setting changes."""
    admin = AdminClient({"bootstrap.servers": arena.cluster.bootstrap, "log_level": 0})
    name = f"churn-{arena.chance.randrange(3)}"
    done: list[str] = []
    value = str(arena.chance.choice((3_600_000, 7_200_000)))
    # One setting, not all of them: the topic must keep its min.insync.replicas.
    entry = ConfigEntry("segment.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, QUEUE, incremental_configs=[entry])
    # Refused or not in time is a fair answer in bad times; what was done counts.
    for what, act in (
        ("deleted", lambda: admin.delete_topics([name])),
        ("created", lambda: admin.create_topics([NewTopic(name, 4, 3)])),
        ("deleted", lambda: admin.delete_topics([name])),
        ("created", lambda: admin.create_topics([NewTopic(name, 2, 3)])),
        ("configured", lambda: admin.incremental_alter_configs([resource])),
    ):
        try:
            for future in act().values():
                future.result(ADMIN_DEADLINE_S)
            done.append(what)
        except KafkaException:
            continue
    return ", ".join(done)


def elect_preferred(arena: Arena) -> str:
    """Leaders go back to where they belong: a planned move."""
    admin = AdminClient({"bootstrap.servers": arena.cluster.bootstrap, "log_level": 0})
    before = Counter(arena.eyes.changes)
    misplaced = tuple(
        index
        for index, state in enumerate(arena.eyes.partitions(QUEUE))
        if state.leader != state.replicas[0] and state.replicas[0] in state.isr
    )
    began = time.monotonic()
    try:
        wanted = [TopicPartition(QUEUE, index) for index in range(len(arena.eyes.partitions(QUEUE)))]
        admin.elect_leaders(ElectionType.PREFERRED, wanted).result(ADMIN_DEADLINE_S)
    except KafkaException:
        return ""
    arena.note_planned(began, misplaced)
    return arena.changed(before)


def reassign(arena: Arena) -> str:
    """The replicas of the queue change places, so others become preferred; all brokers keep a copy in the end."""
    before = Counter(arena.eyes.changes)
    try:
        admin = KafkaAdminClient(bootstrap_servers=arena.cluster.bootstrap, request_timeout_ms=10_000)
    except kafka.errors.KafkaError:
        return ""  # nobody answers in time: what was done before has not healed yet
    try:
        moves: dict[kafka.TopicPartition, list[int]] = {}
        for index, state in enumerate(arena.eyes.partitions(QUEUE)):
            turned = list(state.replicas)
            arena.chance.shuffle(turned)
            moves[kafka.TopicPartition(QUEUE, index)] = turned
        admin.alter_partition_reassignments(moves)
    except kafka.errors.KafkaError:
        return ""
    finally:
        admin.close()
    arena.eyes.wait(lambda: not any(s.adding or s.removing for s in arena.eyes.partitions(QUEUE)), 20.0)
    return arena.changed(before)


def _fill(path: Path) -> None:
    """Take all the room there is, down to the last block."""
    room = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        end = 0
        for size in (64 << 20, 1 << 20, 4096):
            try:
                while True:
                    os.posix_fallocate(room, end, size)
                    end += size
            except OSError:
                continue
    finally:
        os.close(room)


def _lines_of(arena: Arena, node: int, words: str) -> int:
    return arena.cluster.brokers[node].log.count(words)
