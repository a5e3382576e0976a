"""The faults a seed may bring upon a cluster, each with the moment it begins, how long it lasts, and whether it bit.

Called by simulate. Chance decides which, upon whom and for how long; the rule that decides whether one may be dealt now
is here: no cluster keeps a promise when every copy of a record is destroyed, so at most one node at a time has lost
what it had (`may_damage`), and none before the others hold all it held.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.simulation.checks import Checks
from tests.simulation.cluster import Node, SimulatedCluster

DISK_KEPT_ROUNDS_MAX = 60
FRESH_SHARE = 0.6  # of a lease that is still to come
CLIENTS = [f"10.0.1.{number}" for number in range(1, 13)]


@dataclass
class Dealt:
    """A fault that was brought upon the cluster."""

    name: str
    began_s: float
    took_effect: bool = False


class Faults:
    def __init__(self, cluster: SimulatedCluster, checks: Checks, session_s: float, *, is_all_synced: bool) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.network = cluster.network
        self.chance = cluster.world.chance
        self._checks = checks
        self._session_s = session_s
        # Every in-sync replica syncs before it counts: then any number of machines may lose power.
        self._is_all_synced = is_all_synced
        self._damaged: set[int] = set()
        self._rotten: set[int] = set()
        self.dealt: list[Dealt] = []

    # Choosing

    def kinds(self) -> list[Callable[[Dealt], Awaitable[None]]]:
        among_brokers = [
            self.kill_several,
            self.isolate,
            self.cut_pair,
            self.cut_one_way,
            self.slow_links,
            self.hold_back_and_wipe,
            self.lose_power_of_several,
            self.wipe,
            self.flip_bit,
        ]
        return [
            *(among_brokers if len(self.cluster.nodes) > 1 else ()),
            self.kill,
            self.kill,
            self.shut_down,
            self.stop,
            self.cut_from_store,
            self.cut_clients,
            self.reset_connections,
            self.stall_connections,
            self.disturb_store,
            self.compact_store,
            self.expire_lease,
            self.move_clock,
            self.slow_disk,
            self.lose_power,
            self.fail_sync,
            self.fill_disk,
        ]

    async def deal(self, kind: Callable[[Dealt], Awaitable[None]]) -> None:
        dealt = Dealt(kind.__name__, self.world.elapsed_s)
        self.dealt.append(dealt)
        await kind(dealt)
        self._checks.look()

    def _node(self) -> Node | None:
        """Somebody who serves; in half of the cases one who leads the most."""
        serving = [node for node in self.cluster.nodes if node.is_serving and node.host and not node.host.is_stopped]
        if not serving:
            return None
        if self.chance.random() < 0.5:
            leaders = [state["leader"] for state in self._checks.states()]
            return max(serving, key=lambda node: leaders.count(node.id))
        return self.chance.choice(serving)

    def _pair(self) -> tuple[Node, Node]:
        first, second = self.chance.sample(self.cluster.nodes, 2)
        return first, second

    def may_damage(self) -> bool:
        """Whether one more node may lose what it has: all others hold all that it holds, and nobody is about to go."""
        if len(self.cluster.nodes) == 1:
            # Nobody else has anything, but what its broker acknowledged is synced: a failure must cost nothing.
            return True
        in_sync_everywhere = self._in_sync_everywhere()
        self._damaged -= in_sync_everywhere
        is_whole = not self._damaged and not self._rotten and len(in_sync_everywhere) == len(self.cluster.nodes)
        return is_whole and self._leases_are_fresh()

    def may_end(self, nodes: list[Node]) -> bool:
        """Whether these may end uncleanly: if somebody has lost its disk, another stays who certainly has everything.

        Else nobody is left who may lead, and that is as it should be until an operator decides.
        """
        in_sync_everywhere = self._in_sync_everywhere()
        self._damaged -= in_sync_everywhere
        sure = in_sync_everywhere - self._rotten - {node.id for node in nodes}
        return len(self.cluster.nodes) == 1 or not (self._damaged or self._rotten) or bool(sure)

    def _in_sync_everywhere(self) -> set[int]:
        return {
            node.id
            for node in self.cluster.nodes
            if node.is_serving and all(node.id in state["isr"] for state in self._checks.states())
        }

    def _leases_are_fresh(self) -> bool:
        """Nobody's is about to end: whoever lives, and is answered by the store, renews it three times as often."""
        now = self.world.now()
        is_calm = all(node.store is None or not node.store.lost_answer_chance for node in self.cluster.nodes)
        return is_calm and all(
            ends_at - now > ttl_s * FRESH_SHARE for ends_at, ttl_s in self.cluster.store.leases.values()
        )

    def _tell(self, what: str) -> None:
        self.world.tell(f"FAULT {what}")

    # Processes

    async def kill(self, dealt: Dealt) -> None:
        node = self._node()
        if node is None or not self.may_end([node]):
            return
        dealt.took_effect = True
        self._tell(f"kill {node.host}")
        node.kill()
        await asyncio.sleep(self.chance.choice((0.1, 1.0, self._session_s * 1.2, self._session_s * 2)))
        node.start()

    async def kill_several(self, dealt: Dealt) -> None:
        nodes = self.chance.sample(self.cluster.nodes, self.chance.randint(2, len(self.cluster.nodes)))
        if not self.may_end(nodes):
            return
        self._tell(f"kill {[str(node.host) for node in nodes]}")
        for node in nodes:
            dealt.took_effect |= node.is_running
            node.kill()
        for node in nodes:
            await asyncio.sleep(self.chance.uniform(0, 1.5))
            node.start()

    async def shut_down(self, dealt: Dealt) -> None:
        node = self._node()
        # Also who leaves cleanly may leave behind only those who lost their disks and still count as in sync.
        if node is None or not self.may_end([node]):
            return
        dealt.took_effect = True
        self._tell(f"shut down {node.host}")
        await node.shut_down()
        await asyncio.sleep(self.chance.uniform(0, 2))
        node.start()

    async def stop(self, dealt: Dealt) -> None:
        node = self._node()
        if node is None:
            return
        dealt.took_effect = True
        seconds = self.chance.choice((0.5, self._session_s * 0.9, self._session_s * 1.5))
        self._tell(f"stop {node.host} for {seconds:g} s")
        host = node.host
        node.stop()
        await asyncio.sleep(seconds)
        if node.host is host:
            node.go_on()
        self._tell(f"{host} goes on")

    # The network

    async def _cut(self, dealt: Dealt, ways: list[tuple[str, str]]) -> None:
        seconds = self.chance.choice((0.3, 1.0, self._session_s * 0.9, self._session_s * 1.5))
        self._tell(f"cut {ways} for {seconds:g} s")
        before = self.network.held_back
        for way in ways:
            self.network.cut(*way)
        await asyncio.sleep(seconds)
        for way in ways:
            self.network.mend(*way)
        dealt.took_effect = self.network.held_back > before
        self._tell(f"mend {ways}")

    async def isolate(self, dealt: Dealt) -> None:
        """One node from all the others; with the store, or without."""
        node = self.chance.choice(self.cluster.nodes)
        others = [other.address for other in self.cluster.nodes if other is not node]
        store = node.store if self.chance.random() < 0.5 else None
        if store is not None:
            store.cut()
        await self._cut(dealt, [way for other in others for way in ((node.address, other), (other, node.address))])
        if store is not None:
            store.mend()

    async def cut_pair(self, dealt: Dealt) -> None:
        first, second = self._pair()
        await self._cut(dealt, [(first.address, second.address), (second.address, first.address)])

    async def cut_one_way(self, dealt: Dealt) -> None:
        first, second = self._pair()
        await self._cut(dealt, [(first.address, second.address)])

    async def cut_clients(self, dealt: Dealt) -> None:
        node = self._node() or self.cluster.nodes[0]
        ways = [(client, node.address) for client in CLIENTS]
        if self.chance.random() < 0.5:
            ways = [(target, source) for source, target in ways]
        await self._cut(dealt, ways)

    async def slow_links(self, dealt: Dealt) -> None:
        first, second = self._pair()
        delay_s, seconds = self.chance.choice((0.05, 0.1, 0.4)), self.chance.uniform(0.5, 4)
        self._tell(f"slow {first.id}-{second.id}: {delay_s:g} s for {seconds:.1f} s")
        ways = [(first.address, second.address), (second.address, first.address)]
        for way in ways:
            self.network.slow_down(*way, delay_s)
        await asyncio.sleep(seconds)
        for way in ways:
            self.network.speed_up(*way)
        dealt.took_effect = True

    async def reset_connections(self, dealt: Dealt) -> None:
        """Every connection of a node to another, or to the clients, ends, most in the middle of something."""
        node = self.chance.choice(self.cluster.nodes)
        peers = CLIENTS if self.chance.random() < 0.5 else [other.address for other in self.cluster.nodes]
        self._tell(f"reset connections of {node.id}")
        for peer in peers:
            for transport in self.network.between(peer, node.address):
                dealt.took_effect = True
                other = transport.other
                transport.break_off(mid_frame=True)
                other.break_off(mid_frame=True)

    async def stall_connections(self, dealt: Dealt) -> None:
        """What clients have sent stays on its way longer than they wait; what they send again overtakes it."""
        node = self._node() or self.cluster.nodes[0]
        seconds = self.chance.uniform(2.5, 5)
        self._tell(f"hold what clients sent to {node.id} back for {seconds:.1f} s")
        for client in CLIENTS:
            for transport in self.network.between(client, node.address):
                transport.stall(seconds)
                dealt.took_effect = True
        await asyncio.sleep(seconds)

    # The store

    async def cut_from_store(self, dealt: Dealt) -> None:
        node = self._node()
        if node is None or node.store is None:
            return
        seconds = self.chance.choice((1.0, self._session_s * 0.9, self._session_s * 1.5))
        self._tell(f"cut {node.host} from the store for {seconds:g} s")
        store, before = node.store, node.store.faults
        store.cut()
        await asyncio.sleep(seconds)
        store.mend()
        dealt.took_effect = store.faults > before
        self._tell(f"{node.id} reaches the store again")

    async def disturb_store(self, dealt: Dealt) -> None:
        """For a while everybody's answers from the store are late, some get lost, and watches lag."""
        delay_s, lag_s, lost = self.chance.choice(((0.3, 0, 0), (0, 1.5, 0), (0.05, 0.3, 0.3)))
        seconds = self.chance.uniform(1, 4)
        self._tell(f"store: +{delay_s:g} s, watches +{lag_s:g} s, {lost:.0%} of answers lost, for {seconds:.1f} s")
        stores = [node.store for node in self.cluster.nodes if node.store is not None]
        for store in stores:
            store.delay_s, store.watch_lag_s, store.lost_answer_chance = delay_s, lag_s, lost
        await asyncio.sleep(seconds)
        for store in stores:
            store.delay_s, store.watch_lag_s, store.lost_answer_chance = 0.0, 0.0, 0.0
        dealt.took_effect = True

    async def compact_store(self, dealt: Dealt) -> None:
        """While a node cannot watch, what it missed is compacted away."""
        node = self._node()
        if node is None or node.store is None:
            return
        self._tell(f"compact the store behind the back of {node.host}")
        store = node.store
        store.cut()
        await asyncio.sleep(1.0)
        self.cluster.store.compact(self.cluster.store.revision)
        store.mend()
        dealt.took_effect = True

    async def expire_lease(self, dealt: Dealt) -> None:
        leases = list(self.cluster.store.leases)
        if leases:
            lease = self.chance.choice(leases)
            self._tell(f"lease {lease} is over")
            self.cluster.store.revoke(lease)
            dealt.took_effect = True

    # Clocks

    async def move_clock(self, dealt: Dealt) -> None:
        node = self.chance.choice(self.cluster.nodes)
        offset_s = self.chance.choice((-3600, -60, 60, 3600))
        self._tell(f"clock of {node.id}: {offset_s:+} s")
        node.clock.offset_ms = offset_s * 1000
        dealt.took_effect = True
        await asyncio.sleep(self.chance.uniform(0.5, 4))
        node.clock.offset_ms = 0

    # Disks

    async def slow_disk(self, dealt: Dealt) -> None:
        node = self.chance.choice(self.cluster.nodes)
        disk, delay_s = node.disk, self.chance.choice((0.05, 0.3, 2.0))
        seconds = self.chance.uniform(0.5, 3)
        self._tell(f"disk of {node.id}: +{delay_s:g} s for {seconds:.1f} s")
        disk.slow_s = delay_s
        await asyncio.sleep(seconds)
        disk.slow_s = 0.0
        dealt.took_effect = node.is_running

    async def lose_power(self, dealt: Dealt) -> None:
        if self._is_all_synced or self.may_damage():
            await self._power_off(dealt, [self.chance.choice(self.cluster.nodes)])

    async def lose_power_of_several(self, dealt: Dealt) -> None:
        if self._is_all_synced:
            count = self.chance.randint(2, len(self.cluster.nodes))
            await self._power_off(dealt, self.chance.sample(self.cluster.nodes, count))

    async def _power_off(self, dealt: Dealt, nodes: list[Node]) -> None:
        if not self.may_end(nodes):
            return
        self._tell(f"power fails at {[str(node.host) for node in nodes]}")
        for node in nodes:
            dealt.took_effect |= node.is_running
            if not self._is_all_synced:
                self._damaged.add(node.id)
            node.lose_power()
        for node in nodes:
            await asyncio.sleep(self.chance.choice((0.2, 1.0, self._session_s * 1.2)))
            node.start()

    async def fail_sync(self, dealt: Dealt) -> None:
        node = self._node()
        if node is None or not self.may_damage():
            return
        self._damaged.add(node.id)
        self._tell(f"the next sync of {node.host} fails")
        disk, before = node.disk, node.disk.failed_syncs
        disk.syncs_failing = 1
        await asyncio.sleep(self.chance.uniform(1, 3))
        disk.syncs_failing = 0
        dealt.took_effect = disk.failed_syncs > before
        await self._repair(node)
        await asyncio.sleep(self.chance.uniform(0.5, 4))
        if self.chance.random() < 0.5 and node.disk is disk and (self._is_all_synced or self.may_damage()):
            # What it found in the page cache when it was restarted, and took for safe, had better be so.
            await self._power_off(dealt, [node])

    async def fill_disk(self, dealt: Dealt) -> None:
        node = self._node()
        if node is None or not self.may_damage():
            return
        self._damaged.add(node.id)
        self._tell(f"the disk of {node.host} is full")
        disk, before = node.disk, node.disk.failed_writes
        disk.is_full = True
        await asyncio.sleep(self.chance.uniform(0.5, 3))
        disk.is_full = False
        dealt.took_effect = disk.failed_writes > before
        await self._repair(node)

    async def _repair(self, node: Node) -> None:
        """Somebody sees that a log is offline, mends the disk and restarts the broker."""
        await asyncio.sleep(self.chance.uniform(0.5, 3))
        if node.is_running:
            self._tell(f"restart {node.host} for its disk")
            await node.shut_down()
            node.start()

    async def wipe(self, dealt: Dealt) -> None:
        node = self._node()
        if node is None or not self.may_damage():
            return
        self._damaged.add(node.id)
        dealt.took_effect = True
        self._tell(f"{node.host} loses its disk")
        node.kill()
        node.wipe()
        await asyncio.sleep(self.chance.choice((0.1, self._session_s * 1.2)))
        node.start()

    async def hold_back_and_wipe(self, dealt: Dealt) -> None:
        """A follower's last fetches are still on their way when it comes back without its disk (TRAPS R8)."""
        node = self._node()
        if node is None or not self.may_damage():
            return
        self._damaged.add(node.id)
        dealt.took_effect = True
        self._tell(f"hold back what {node.host} sent, and wipe it")
        for other in self.cluster.nodes:
            for transport in self.network.between(node.address, other.address):
                transport.stall(self._session_s * 1.1 + self.chance.uniform(0.1, 1.0))
        await asyncio.sleep(0.1)
        if not self.may_end([node]) or not self._in_sync_everywhere() - {node.id} or not self._leases_are_fresh():
            return  # the others were ended meanwhile, or are about to be, and this one may be all that is left
        node.kill()
        node.wipe()
        self._damaged.add(node.id)
        # On a new disk it waits for its former session to end. What it then sends is slow: the old fetches come first.
        ways = [(node.address, other.address) for other in self.cluster.nodes]
        for way in ways:
            self.network.slow_down(*way, 1.0)
        await asyncio.sleep(self.chance.uniform(0, 0.2))
        node.start()
        await asyncio.sleep(self._session_s + 1.5)
        for way in ways:
            self.network.speed_up(*way)

    async def flip_bit(self, dealt: Dealt) -> None:
        """A bit rots, and nobody may notice for a while: until its disk is replaced, all others must stay whole."""
        node = self._node()
        if node is None or not self.may_damage():
            return
        self._rotten.add(node.id)
        node.kill()
        where = node.disk.flip_bit(self.chance.choice((".log", ".log", ".index", ".timeindex", ".snapshot")))
        self._tell(f"a bit of {node.host} flips: {where}")
        dealt.took_effect = where is not None
        await asyncio.sleep(self.chance.uniform(0.1, 1))
        node.start()
        await asyncio.sleep(self.chance.uniform(2, 5))
        others = {other.id for other in self.cluster.nodes} - {node.id}
        for _ in range(DISK_KEPT_ROUNDS_MAX):
            # It may have become the last in sync of something, or the last but one and that one is cut off just now,
            # or about to be taken for gone: then nobody would pull this disk of all disks.
            if others <= self._in_sync_everywhere() and self._leases_are_fresh():
                break
            await asyncio.sleep(0.5)
        self._tell(f"the disk of {node.host} is replaced")
        node.kill()
        node.wipe()
        node.start()
        self._damaged.add(node.id)
        self._rotten.discard(node.id)

    # The heal

    def heal(self) -> None:
        """Nothing is broken any more but what has to be rebuilt; whoever is down is started."""
        for node in self.cluster.nodes:
            node.clock.offset_ms = 0
            node.disk.slow_s, node.disk.syncs_failing, node.disk.is_full = 0.0, 0, False
            if node.store is not None:
                node.store.mend()
            if not node.is_running:
                node.start()
            node.go_on()
        self._tell("all is well again")
