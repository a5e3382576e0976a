"""One seed: a cluster under load, faults by chance, the heal, the check. And the command that runs seeds.

    make simulate SEED=7            one seed, with all that happened
    make simulate SEED=1 SEEDS=200  many, with a line for each that failed

Called by the Makefile and by test_seeds, which runs it as a process of its own: hashes of strings, and with them the
order of sets, must be the same in every run of a seed, and Python fixes them only as a process starts.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.canaries import CANARIES, Canary
from tests.simulation.checks import LEDGER, Checks
from tests.simulation.client import LOST, Client
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.faults import Dealt, Faults
from tests.simulation.load import Committer, IdempotentProducer, Over, Reader
from tests.simulation.members import Generations, Member
from tests.simulation.model import Model
from tests.simulation.transactions import TransactionalProducer

from penstock.errors import ErrorCode
from penstock.wire.apis import ApiKey

LOAD_S = 20.0
FAULTS = 11
LOOK_S = 0.05
START_DEADLINE_S = 30.0
SETTLE_DEADLINE_S = 90.0
SESSION_S = 2.0
QUEUE = "queue"
PARTITIONS = 2
# Partitions that are written to for a moment only: what is old news elsewhere may still pass for the latest there.
STILL, STILL_S = "still", 1.0
HASH_SEED = "0"

SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2500",
    "replica.fetch.backoff.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}


@dataclass
class Outcome:
    """What a seed came to."""

    seed: int
    problems: list[str]
    trace: int
    faults: int = 0
    effective: int = 0
    acknowledged: int = 0
    elections: int = 0
    in_sync_changes: int = 0
    looks: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)


class Caught(Exception):
    """A known bug has shown itself: the rest of the seed would tell nothing more."""


@dataclass(frozen=True)
class Plan:
    """What a seed will be, before anything has happened; a test may want it otherwise."""

    nodes: int
    is_all_synced: bool
    min_insync: int
    # A client of version 1 has no new epoch for every transaction, so that a late EndTxn decides the next (TRAPS P5).
    is_version_2: bool = True
    # Kinds of faults by name; None: any.
    kinds: tuple[str, ...] | None = None

    @property
    def replication_factor(self) -> int:
        return min(self.nodes, 3)


def plan_of(chance: random.Random) -> Plan:
    nodes = chance.choice((1, 3, 3, 3, 3, 3, 3, 4, 4, 5))
    is_all_synced = chance.random() < 0.3 or nodes == 1
    min_insync = 2 if nodes > 1 and chance.random() < 0.8 else 1
    return Plan(nodes, is_all_synced, min_insync)


class Seed:
    def __init__(self, seed: int, directory: Path, canary: Canary | None = None) -> None:
        # Of its own, so that what a seed is does not change with what a cluster draws while it starts.
        self._chance = random.Random(seed * 7919 + 1)
        plan = plan_of(self._chance)
        self.plan = plan = canary.change_plan(plan) if canary is not None else plan
        self._is_over_at_first_problem = canary is not None
        settings = {**SETTINGS, "penstock.durability": "fsync-all" if plan.is_all_synced else "fsync"}
        for name in ("offsets.topic", "transaction.state.log"):
            settings[f"{name}.replication.factor"] = str(plan.replication_factor)
        self.cluster = SimulatedCluster(seed, directory, nodes=plan.nodes, settings=settings)
        self.world = self.cluster.world
        self.model = Model(self.world)
        self.checks = Checks(self.cluster, self.model)
        self.faults = Faults(self.cluster, self.checks, SESSION_S, is_all_synced=plan.is_all_synced)
        self._caught: asyncio.Future[None]
        self._over, self._reading_over = Over(), Over()
        self._bootstrap = [node.endpoint for node in self.cluster.nodes]
        self._clients = 0

    def client(self, name: str) -> Client:
        self._clients += 1
        return Client(self.world, self.cluster.client(name, self._clients), self._bootstrap)

    async def run(self) -> None:
        self._caught = self.world.loop.create_future()
        living = self.world.spawn(self.world.nature, self._live())
        await asyncio.wait((living, self._caught), return_when=asyncio.FIRST_COMPLETED)
        if self._caught.done():
            raise Caught
        living.result()

    async def _live(self) -> None:
        self.cluster.start()
        looking = self.world.spawn(self.world.nature, self._keep_looking())
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                await self._until(lambda: all(node.is_serving for node in self.cluster.nodes))
                await self._on(self.client("admin"), self._create_topics)
        except TimeoutError:
            self.world.problem("the cluster did not start")
            return
        self.world.tell("the load begins")
        writing, reading = self._start_load()
        await self._torment()
        self.faults.heal()
        self._over.is_set = True
        try:
            async with asyncio.timeout(SETTLE_DEADLINE_S):
                await asyncio.gather(*writing)
                await self._until(lambda: self.checks.check_settled() is None)
                self._reading_over.is_set = True
                await asyncio.gather(*reading)
                await self._read_everything()
        except TimeoutError:
            self.world.problem(f"no progress after the heal: {self.checks.check_settled() or 'clients still wait'}")
        looking.cancel()
        self.checks.check_end()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while True:
            if is_so():
                return
            await asyncio.sleep(LOOK_S)

    async def _keep_looking(self) -> None:
        while True:
            self.checks.look()
            if self.world.problems and self._is_over_at_first_problem:
                self._caught.set_result(None)
                return
            await asyncio.sleep(LOOK_S)

    async def _on(self, client: Client, work: Any) -> Any:
        return await self.world.spawn(client.host, work(client))

    async def _create_topics(self, client: Client) -> None:
        topics = [
            {
                "name": name,
                "num_partitions": PARTITIONS,
                "replication_factor": self.plan.replication_factor,
                "assignments": [],
                "configs": [{"name": "min.insync.replicas", "value": str(self.plan.min_insync)}],
            }
            for name in (QUEUE, LEDGER, STILL)
        ]
        body = {"topics": topics, "timeout": 5_000, "validate_only": False}
        while True:
            try:
                answer = await client.ask_any(ApiKey.CREATE_TOPICS, 5, body)
                codes = {topic.error_code for topic in answer.topics}
                if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return
                self.world.tell(f"the topics are not made yet: {[topic.error_message for topic in answer.topics]}")
            except LOST as error:
                self.world.tell(f"the topics are not made yet: {error!r}")
            await client.back_off()

    def _start_load(self) -> tuple[list[asyncio.Task[None]], list[asyncio.Task[None]]]:
        writing: list[asyncio.Task[None]] = []
        reading: list[asyncio.Task[None]] = []

        def start(tasks: list[asyncio.Task[None]], name: str, make: Callable[[Client], Any]) -> None:
            client = self.client(name)
            tasks.append(self.world.spawn(client.host, make(client).run()))

        is_version_2 = self.plan.is_version_2
        model, over, reading_over = self.model, self._over, self._reading_over
        still = Over()
        self.world.after(STILL_S, setattr, still, "is_set", True)
        for index in range(PARTITIONS):
            start(
                writing,
                f"still-producer-{index}",
                lambda client, index=index: IdempotentProducer(client, model, STILL, index, still, pause_s=0.1),
            )
            start(
                writing,
                f"producer-{index}",
                lambda client, index=index: IdempotentProducer(client, model, QUEUE, index, over, pause_s=0.25),
            )
            if self.plan.nodes > 1:
                # A broker alone shows what it has written before that is synced: a power loss may take it back.
                make = partial(Reader, model=model, topic=QUEUE, partition=index, over=reading_over)
                start(reading, f"reader-{index}", partial(make, is_repeating=index == 0))
        start(writing, "committer", lambda client: Committer(client, model, "alone", QUEUE, over))
        start(
            writing,
            "transactor",
            lambda client: TransactionalProducer(client, model, LEDGER, PARTITIONS, over, is_version_2=is_version_2),
        )
        if self.plan.nodes > 1:
            make = partial(Reader, model=model, topic=LEDGER, partition=0, over=reading_over)
            start(reading, "committed-reader", partial(make, is_repeating=True, is_committed=True))
        seen = Generations()
        for number in range(2):
            start(writing, f"member-{number}", lambda client: Member(client, "together", QUEUE, over, seen))
        return writing, reading

    async def _torment(self) -> None:
        began = self.world.elapsed_s
        kinds = self._choose_faults()
        times = sorted(self._chance.uniform(0.5, LOAD_S - 2) for _ in kinds)
        dealing: list[asyncio.Task[None]] = []
        for at, kind in zip(times, kinds, strict=True):
            await asyncio.sleep(max(0.0, began + at - self.world.elapsed_s))
            dealing.append(self.world.spawn(self.world.nature, self.faults.deal(kind)))
        await asyncio.sleep(max(0.0, began + LOAD_S - self.world.elapsed_s))
        await asyncio.gather(*dealing)

    def _choose_faults(self) -> list[Callable[[Dealt], Awaitable[None]]]:
        possible = self.faults.kinds()
        if self.plan.kinds is not None:
            possible = [kind for kind in possible if kind.__name__ in self.plan.kinds]
        rounds = -(-FAULTS // len(possible))
        return self._chance.sample(possible * rounds, FAULTS)

    async def _read_everything(self) -> None:
        async def read(client: Client) -> None:
            for topic in (QUEUE, LEDGER, STILL):
                for index in range(PARTITIONS):
                    is_committed = topic == LEDGER
                    reader = Reader(client, self.model, topic, index, self._reading_over, is_committed=is_committed)
                    if not await reader.read_to_end():
                        self.world.problem(f"{topic}-{index} could not be read to its end")
                    if not reader.is_all_stable:
                        self.world.problem(f"{topic}-{index}: a transaction is still open after the heal")

        await self._on(self.client("last-reader"), read)
        self.checks.is_all_read = True


def run_seed(number: int, *, is_verbose: bool = False, canary: Canary | None = None) -> Outcome:
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="penstock-simulation-") as directory:
        seed = Seed(number, Path(directory), canary)
        try:
            seed.cluster.run(seed.run())
        except Caught:
            pass
        except AssertionError as error:
            seed.world.problem(f"the simulation stood still: {error!r}")
        world, faults = seed.world, seed.faults.dealt
        outcome = Outcome(
            number,
            list(world.problems),
            world.trace,
            len(faults),
            sum(dealt.took_effect for dealt in faults),
            seed.model.acknowledged_count,
            seed.checks.elections,
            seed.checks.in_sync_changes,
            seed.checks.looks,
            world.elapsed_s,
        )
        for dealt in faults:
            outcome.kinds[dealt.name] = outcome.kinds.get(dealt.name, 0) + dealt.took_effect
        if is_verbose or world.problems:
            for at, what in world.events:
                say(f"{at:9.3f}  {what}")
        seed.cluster.close()
    outcome.cpu_s = time.process_time() - began
    return outcome


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="run seeds of the simulated cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each seed, for tests")
    parser.add_argument("--canary", choices=sorted(CANARIES), help="with a known bug switched on, until it is caught")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.simulate", *sys.argv[1:]])
    logging.getLogger("penstock").setLevel(logging.WARNING)
    logging.getLogger("penstock").propagate = False
    canary = CANARIES[options.canary] if options.canary else None
    if canary is not None:
        canary.install()
    failed: list[int] = []
    outcomes: list[Outcome] = []
    for number in range(options.seed, options.seed + options.seeds):
        is_verbose = options.seeds == 1 and not options.json
        outcome = run_seed(number, is_verbose=is_verbose, canary=canary)
        outcomes.append(outcome)
        if options.json:
            say("OUTCOME " + json.dumps(asdict(outcome)))
        if outcome.problems:
            failed.append(number)
            for problem in outcome.problems[:20]:
                say(f"  {problem}")
            say(f"seed {number} FAILED: make simulate SEED={number}")
            if canary is not None:
                break
    say(
        f"{len(outcomes)} seeds, {sum(outcome.effective for outcome in outcomes)} faults that took effect, "
        f"{sum(outcome.acknowledged for outcome in outcomes)} records acknowledged, "
        f"{sum(outcome.elections for outcome in outcomes)} elections, "
        f"{sum(outcome.in_sync_changes for outcome in outcomes)} changes of in-sync sets, "
        f"{sum(outcome.virtual_s for outcome in outcomes):.0f} virtual s in "
        f"{sum(outcome.cpu_s for outcome in outcomes):.1f} s of CPU; failed: {failed or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
