"""Faults of processes and lines. Each is a function that does it, waits, mends it and says what effect was seen.

Listed with their weights in cluster_nemesis. A fault that left no trace gives an empty string and is not counted: the
cluster may have been lucky, or the fault may not work at all.
Laws: after a fault every process it took away is back and every line is healed; the cluster need not have recovered.
"""

import contextlib
import time
from collections import Counter

from cluster_arena import Arena

from penstock.testing.etcd import EtcdCluster, EtcdUnusable
from penstock.testing.fault_proxy import CLIENTS, STORE, Hold, Party

PRODUCE, ADD_PARTITIONS, END_TXN = 0, 24, 26


def kill(arena: Arena, nodes: list[int]) -> str:
    """SIGKILL, a while without them, back again."""
    before = Counter(arena.eyes.changes)
    if len(nodes) == 1:
        arena.note_killed(nodes[0])
    for node in nodes:
        arena.cluster.kill(node)
    codes = [arena.cluster.brokers[node].exit_code for node in nodes]
    # Sometimes back before anybody noticed, sometimes long after.
    arena.wait(arena.session_s * arena.chance.choice((0.1, 0.5, 1.4)))
    arena.cluster.start_nodes(nodes)
    return f"exit codes {codes}; {arena.changed(before)}" if all(code == -9 for code in codes) else ""


def kill_leader(arena: Arena) -> str:
    return kill(arena, [arena.leader()])


def kill_follower(arena: Arena) -> str:
    return kill(arena, [arena.follower()])


def kill_controller(arena: Arena) -> str:
    return kill(arena, [arena.controller()])


def kill_coordinator(arena: Arena) -> str:
    return kill(arena, [arena.coordinator()])


def kill_two(arena: Arena) -> str:
    return kill(arena, arena.chance.sample(arena.cluster.node_ids, 2))


def kill_all(arena: Arena) -> str:
    return kill(arena, arena.cluster.node_ids)


def kill_twice(arena: Arena) -> str:
    """The new leader goes before the old one is back in sync: the schedule that single-question truncation fails."""
    first = arena.leader()
    told = kill(arena, [first])
    return told and f"{told}; then {kill(arena, [arena.leader()])}"


def pause(arena: Arena, node: int, sessions: float) -> str:
    """SIGSTOP for a part or a multiple of its session."""
    before = Counter(arena.eyes.changes)
    carried = arena.cluster.proxy.carried_bytes
    asked, answered = _to(carried, node), _from(carried, node)
    with arena.cluster.paused(node):
        # What was on its way when it stopped still comes.
        arena.wait(0.1)
        answered = _from(carried, node)
        arena.wait(arena.session_s * sessions)
        unanswered = _to(carried, node) - asked
        was_silent = _from(carried, node) == answered
    return f"{unanswered} bytes unanswered; {arena.changed(before)}" if was_silent and unanswered else ""


def pause_half(arena: Arena) -> str:
    return pause(arena, arena.leader(), 0.5)


def pause_nearly(arena: Arena) -> str:
    return pause(arena, arena.leader(), 0.9)


def pause_beyond(arena: Arena) -> str:
    return pause(arena, arena.leader(), 1.5)


def pause_controller(arena: Arena) -> str:
    return pause(arena, arena.controller(), 1.5)


def cut(arena: Arena, lines: list[tuple[Party, Party | None]], *, one_way: bool = False) -> str:
    """Lines go silent for a while. Seen by nothing passing there any more, or by what the others make of it."""
    before = Counter(arena.eyes.changes)
    seconds = arena.session_s * arena.chance.choice((0.5, 1.5))
    carried = arena.cluster.proxy.carried_bytes
    try:
        for source, target in lines:
            arena.cluster.cut(source, target, one_way=one_way)
        ways = [(source, target) for source, target in list(carried) if _is_on(lines, source, target)]
        # What was on its way is let through, and answers to it may still be counted.
        arena.wait(seconds / 2)
        passed = {way: carried[way] for way in ways}
        arena.wait(seconds / 2)
        silent = sum([carried[way] == passed[way] for way in ways])
    finally:
        arena.cluster.heal()
    changed = arena.changed(before)
    return f"{lines} for {seconds:.1f} s: {silent} of {len(ways)} ways silent; {changed}" if silent or changed else ""


def _is_on(lines: list[tuple[Party, Party | None]], source: Party, target: Party) -> bool:
    return any({one, other} == {source, target} or (other is None and one in (source, target)) for one, other in lines)


def cut_node(arena: Arena) -> str:
    return cut(arena, [(arena.leader(), None)])


def cut_ring(arena: Arena) -> str:
    """Two brokers do not see each other, both see the rest: each is in some majority."""
    one, other = arena.chance.sample(arena.cluster.node_ids, 2)
    return cut(arena, [(one, other)])


def cut_store(arena: Arena) -> str:
    return cut(arena, [(arena.leader(), STORE)])


def cut_store_of_controller(arena: Arena) -> str:
    return cut(arena, [(arena.controller(), STORE)])


def cut_clients(arena: Arena) -> str:
    return cut(arena, [(CLIENTS, arena.leader())])


def cut_leader_from_followers(arena: Arena) -> str:
    leader = arena.leader()
    return cut(arena, [(leader, node) for node in arena.cluster.node_ids if node != leader])


def cut_one_way(arena: Arena) -> str:
    leader = arena.leader()
    other = arena.chance.choice([node for node in arena.cluster.node_ids if node != leader])
    ways = [(leader, other), (other, leader), (CLIENTS, leader), (leader, CLIENTS), (leader, STORE), (STORE, leader)]
    return cut(arena, [arena.chance.choice(ways)], one_way=True)


def delay(arena: Arena) -> str:
    leader = arena.leader()
    before = arena.cluster.proxy.carried_bytes[CLIENTS, leader]
    try:
        for party in (CLIENTS, *arena.cluster.node_ids):
            arena.cluster.proxy.delay(party, leader, 0.1)
            arena.cluster.proxy.delay(leader, party, arena.chance.uniform(0.05, 0.15))
        arena.wait(2.0)
    finally:
        arena.cluster.heal()
    carried = arena.cluster.proxy.carried_bytes[CLIENTS, leader] - before
    return f"{carried} bytes delayed" if carried else ""


def reset(arena: Arena) -> str:
    """Connections break in the middle of requests and of answers, of clients and of followers."""
    proxy = arena.cluster.proxy
    before = proxy.counts["resets"]
    leader = arena.leader()
    try:
        for party in (CLIENTS, *(node for node in arena.cluster.node_ids if node != leader)):
            proxy.reset(party, leader, 2)
            proxy.reset(leader, party, 2)
        arena.wait(1.5)
    finally:
        arena.cluster.heal()
    count = proxy.counts["resets"] - before
    return f"{count} resets" if count else ""


def hold(arena: Arena) -> str:
    """A request is held, its retry passes on a new connection, then the first one arrives after all."""
    proxy = arena.cluster.proxy
    before = proxy.counts["delivered late"]
    hold_s = arena.chance.uniform(0.3, 1.2)
    kinds = frozenset({arena.chance.choice((PRODUCE, ADD_PARTITIONS, END_TXN))})
    for node in arena.cluster.node_ids:
        proxy.hold(Hold(CLIENTS, node, kinds, hold_s, 3))
    arena.wait(1.5)
    arena.cluster.heal()
    arena.wait(hold_s)
    count = proxy.counts["delivered late"] - before
    return f"{count} requests delivered late" if count else ""


def rolling_restart(arena: Arena) -> str:
    """SIGTERM, each in its turn; the next goes when the one before is back in sync."""
    before = Counter(arena.eyes.changes)
    codes: list[int] = []
    for node in arena.cluster.node_ids:
        began = time.monotonic()
        led = tuple(arena.eyes.led_by(node, "queue"))
        codes.append(arena.cluster.terminate(node))
        arena.note_planned(began, led)
        arena.cluster.start_node(node)
        arena.eyes.wait_whole(20.0)
    return f"exit codes {codes}; {arena.changed(before)}" if set(codes) == {0} else ""


def _leader_of_store(etcd: EtcdCluster) -> int | None:
    """None if it is electing one at this very moment."""
    etcd.wait_until_healthy(list(etcd.members))
    with contextlib.suppress(EtcdUnusable):
        return etcd.leader()
    return None


def kill_store_member(arena: Arena) -> str:
    etcd = arena.cluster.etcd
    assert etcd is not None
    member = arena.chance.choice((_leader_of_store(etcd), arena.chance.choice(list(etcd.members))))
    if member is None:
        return ""
    etcd.kill(member)
    arena.wait(arena.chance.uniform(0.5, 3.0))
    etcd.restart(member)
    return f"etcd member {member} killed and back"


def pause_store_member(arena: Arena) -> str:
    etcd = arena.cluster.etcd
    assert etcd is not None
    member = _leader_of_store(etcd)
    if member is None:
        return ""
    etcd.pause(member)
    try:
        arena.wait(arena.session_s * 0.8)
    finally:
        etcd.resume(member)
    etcd.wait_until_healthy(list(etcd.members))
    return f"etcd leader {member} paused"


def _to(carried: Counter[tuple[Party, Party]], node: int) -> int:
    return sum(count for way, count in list(carried.items()) if way[1] == node)


def _from(carried: Counter[tuple[Party, Party]], node: int) -> int:
    return sum(count for way, count in list(carried.items()) if way[0] == node)
