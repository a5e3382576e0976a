"""What the controller does of its own accord: a leader for what lost its own, ISRs without the dead, moves finished.

Built by broker, which runs `run` in every broker; it acts only while membership says that this one is the controller.
Driven by changes of the image, many taken together, and by a slow tick for what no change announces.
Invariants:
- Every write compares the controller's key, so that one who was replaced changes nothing more.
- Nothing is remembered between two looks but what to look at: a new controller begins by looking at everything.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.cluster import elections, reassignment
from penstock.cluster.controller import Controller
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import ClusterImage, ImageChanges, PartitionState, Topic
from penstock.cluster.internal_growth import grown_replicas, wanted_min_insync
from penstock.cluster.membership import Membership
from penstock.cluster.orphans import Orphans
from penstock.cluster.overrides import ConfigChange, ConfigOp, ConfigResource
from penstock.cluster.partition_changes import preferred_election
from penstock.cluster.partition_writes import Outcome, PartitionWrites, Place, Rule, Seen
from penstock.cluster.store import Ambiguous, Compare, MetadataStore, Unavailable
from penstock.config import BrokerConfig
from penstock.config.setting import Scope
from penstock.config.topic_config import TopicConfig
from penstock.errors import NotController, PenstockError
from penstock.model import INTERNAL_TOPICS, TopicId

logger = logging.getLogger(__name__)

RETRY_S = 0.5
# Orphans do no harm but take room.
CLEANING_INTERVAL_S = 300.0


@dataclass(slots=True)
class _Round:
    """What is due every so often."""

    interval_s: Callable[[], float]
    next_at: float = 0.0

    def is_due(self, now: float) -> bool:
        if now < self.next_at:
            return False
        self.next_at = now + self.interval_s()
        return True


class Supervisor:
    def __init__(
        self,
        store: MetadataStore,
        feed: ImageFeed,
        membership: Membership,
        config: BrokerConfig,
        controller: Controller,
    ) -> None:
        self._image = feed.image
        self._membership = membership
        self._config = config
        self._controller = controller
        self._writes = PartitionWrites(store, feed)
        self._orphans = Orphans(store, feed, membership)
        self._woken = asyncio.Event()
        self._token = 0
        # What has changed since the last look. Everything, when brokers came or went or this one took office.
        self._is_all_due = False
        self._due: dict[Place, None] = {}
        self._balancing = _Round(lambda: float(config.leader_imbalance_check_interval_seconds))
        self._cleaning = _Round(lambda: CLEANING_INTERVAL_S)
        feed.subscribe(self._image_changed)
        membership.on_elected = self._woken.set

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._wait()
                if self._membership.is_controller:
                    await self.look()
            except NotController:
                logger.info("another broker is the controller now")
            except PenstockError as error:
                logger.warning("the controller could not finish its work and tries again: %s", error)
                self._is_all_due = True
                self._woken.set()
                await asyncio.sleep(RETRY_S)

    async def look(self) -> None:
        """Put right what is wrong now; in what order does not matter, each change stands for itself."""
        if self._token != self._membership.controller_token:
            self._take_office()
        is_all_due, due = self._is_all_due, self._due
        self._is_all_due, self._due = False, {}
        if is_all_due:
            await self._rewrite(all_places(self._image), self._repair_rule())
        elif due:
            await self._rewrite(due, self._repair_rule())
        if is_all_due or any(self._is_internal(place) for place in due):
            await self._grow_internal_topics()
        now = asyncio.get_running_loop().time()
        if self._balancing.is_due(now) and self._config.auto_leader_rebalance_enable:
            percentage = self._config.leader_imbalance_per_broker_percentage
            await self._rewrite(unbalanced(self._image, percentage), preferred_election)
        if self._cleaning.is_due(now):
            await self._clean()

    def _take_office(self) -> None:
        self._token = self._membership.controller_token
        self._is_all_due = True
        now = asyncio.get_running_loop().time()
        # Leaders are let settle first: the one whose office this was has just gone.
        self._balancing.is_due(now)
        self._cleaning.next_at = now
        logger.info("broker %d is the controller", self._membership.node_id)

    async def _rewrite(self, places: Iterable[Place], rule: Rule) -> None:
        outcomes = await self._writes.rewrite(places, rule, self._fence)
        for outcome in outcomes.values():
            if isinstance(outcome, NotController | Unavailable | Ambiguous):
                raise outcome
        self._log_leaderless(outcomes)

    def _fence(self) -> tuple[list[Compare], PenstockError]:
        return self._membership.controller_fence(), NotController("another broker has become the controller")

    def _repair_rule(self) -> Rule:
        configs: dict[TopicId, TopicConfig] = {}

        def rule(seen: Seen) -> PartitionState | None:
            topic = seen.topic
            config = configs.get(topic.id) or configs.setdefault(topic.id, self._config.topic(topic.configs))
            minimum = config.min_insync_replicas
            repaired = elections.repaired(
                seen.state,
                seen.registered,
                seen.live,
                is_unclean_allowed=config.unclean_leader_election_enable,
                min_insync=minimum,
            )
            return repaired or reassignment.finished(seen.state, seen.live, minimum)

        return rule

    async def _grow_internal_topics(self) -> None:
        """The first broker of a cluster makes them with the replicas there can be: give them the rest as it comes."""
        for topic in [topic for name, topic in self._image.topics.items() if name in INTERNAL_TOPICS]:
            targets = grown_replicas(self._image, topic, self._config)
            if targets:
                logger.info("%s gets the replicas it was made without", topic.name)
                await self._rewrite(targets, self._growth_rule(targets))
            await self._raise_min_insync(topic)

    def _growth_rule(self, targets: Mapping[Place, tuple[int, ...]]) -> Rule:
        def rule(seen: Seen) -> PartitionState | None:
            minimum = self._config.topic(seen.topic.configs).min_insync_replicas
            return reassignment.begun(seen.state, targets[seen.topic.id, seen.index], seen.live, minimum)

        return rule

    async def _raise_min_insync(self, topic: Topic) -> None:
        wanted = wanted_min_insync(topic, self._config)
        if wanted is not None:
            change = ConfigChange("min.insync.replicas", ConfigOp.SET, str(wanted))
            await self._controller.alter_configs(ConfigResource(Scope.TOPIC, topic.name), [change])

    async def _clean(self) -> None:
        if orphans := await self._orphans.clean():
            logger.info("%d partitions that belong to no topic were removed", orphans)

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._until_next_round_s()):
                await self._woken.wait()
        self._woken.clear()

    def _until_next_round_s(self) -> float | None:
        if not self._membership.is_controller:
            return None
        now = asyncio.get_running_loop().time()
        return max(0.0, min(self._balancing.next_at, self._cleaning.next_at) - now)

    def _image_changed(self, changes: ImageChanges) -> None:
        if not self._membership.is_controller:
            return
        if changes.brokers_changed or changes.broker_configs_changed:
            self._is_all_due = True
        for topic, index in (*changes.partitions_changed, *changes.partitions_added):
            self._due[topic.id, index] = None
        for topic in (*changes.topics_created, *changes.topic_configs_changed):
            self._due.update(((topic.id, index), None) for index in range(len(topic.partitions)))
        if self._is_all_due or self._due:
            self._woken.set()

    def _is_internal(self, place: Place) -> bool:
        topic = self._image.topics_by_id.get(place[0])
        return topic is not None and topic.name in INTERNAL_TOPICS

    def _log_leaderless(self, outcomes: Mapping[Place, Outcome]) -> None:
        lost = [place for place, state in outcomes.items() if isinstance(state, PartitionState) and state.leader < 0]
        if lost:
            topic = self._image.topics_by_id.get(lost[0][0])
            name = topic.name if topic is not None else lost[0][0]
            logger.warning("%d partitions have no leader now, %s-%d among them", len(lost), name, lost[0][1])


def all_places(image: ClusterImage) -> list[Place]:
    """Those without a living leader first: somebody waits to write there."""
    live = image.live
    led: list[Place] = []
    leaderless: list[Place] = []
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            (led if state.leader in live else leaderless).append((topic.id, index))
    return leaderless + led


def unbalanced(image: ClusterImage, percentage: int) -> list[Place]:
    """Partitions whose first replica could lead and does not, of brokers of which that can be said too often."""
    live = image.live
    due: dict[int, int] = {}
    away: dict[int, list[Place]] = {}
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            preferred = elections.preferred_order(state)[0]
            due[preferred] = due.get(preferred, 0) + 1
            if state.leader != preferred and preferred in state.isr:
                away.setdefault(preferred, []).append((topic.id, index))
    return [
        place
        for node, places in away.items()
        if node in live and len(places) * 100 > percentage * due[node]
        for place in places
    ]
