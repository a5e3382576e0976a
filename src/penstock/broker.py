"""A broker: builds the parts in order, joins them, runs them, takes them down in reverse.

Called by cli.serve and testing. Start to first answer is the order of `start`; nothing below knows of anything above.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.clock import Clock, Rng, SystemClock
from penstock.cluster.controller import Controller
from penstock.cluster.directory import DirectoryClaim, claim_directory
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import ClusterImage, ImageChanges, Topic
from penstock.cluster.layout import Layout
from penstock.cluster.membership import Membership, Registration
from penstock.cluster.sqlite_store import open_sqlite_store
from penstock.cluster.store import MetadataStore
from penstock.config import BrokerConfig
from penstock.disk import Disk, RealDisk
from penstock.groups.coordinator import GroupCoordinator
from penstock.handlers.context import HandlerContext, Node
from penstock.handlers.fetch_sessions import FetchSessions
from penstock.handlers.internal_topics import InternalTopics
from penstock.handlers.marker_writing import MarkerWriter
from penstock.handlers.producer_ids import ProducerIds
from penstock.log.compactor import Compactor
from penstock.log.directory import LogDirectory, LogRequest
from penstock.metrics import BrokerMetrics
from penstock.model import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    Endpoint,
    LeaderEpoch,
    NodeId,
    ProducerId,
    TopicPartition,
)
from penstock.replication.ledger import PartitionLedger
from penstock.replication.replicas import Replicas
from penstock.security.quotas import Quotas
from penstock.server.dispatch import Dispatcher
from penstock.server.gauges import attach_gauges, attach_transaction_gauges
from penstock.server.http import HttpDoor, Page, health_page
from penstock.server.listener import Listener
from penstock.transactions.coordinator import TransactionCoordinator

logger = logging.getLogger(__name__)

METADATA_FILE = "metadata.db"


class Broker:
    def __init__(
        self, config: BrokerConfig, *, clock: Clock | None = None, rng: Rng | None = None, disk: Disk | None = None
    ) -> None:
        if not __debug__:
            raise RuntimeError("penstock relies on its assertions: do not run it under python -O")
        self.config = config
        self.clock = clock or SystemClock()
        self.rng = rng or Rng()
        self.disk = disk or RealDisk()
        self.node_id = NodeId(config.node_id)
        self._tasks: list[asyncio.Task[None]] = []
        self.metrics = BrokerMetrics(self.clock)
        self.quotas = Quotas(
            (config.quota_window_num, float(config.quota_window_size_seconds)),
            (config.controller_quota_window_num, float(config.controller_quota_window_size_seconds)),
        )
        self.logs = LogDirectory(self.disk, config.data_dir, self.clock, self.rng)
        self.logs.observe_sync_ms = self.metrics.fsync_latency.observe
        self.replicas = Replicas(self.logs, self.metrics)
        self.image = ClusterImage(Layout())
        self.groups = GroupCoordinator(config, self.clock, self.rng, self.image)
        self.markers = MarkerWriter(self.image, self.replicas, self.groups, self.clock)
        self.transactions = TransactionCoordinator(config, self.clock, self._new_producer_id, self.markers.write)
        self.listener = Listener(config, self.clock, self.metrics, self.quotas)
        self.bound = Endpoint("", 0)  # where we listen
        self.endpoint = Endpoint("", 0)  # what clients are told, which may be another address on the way to us
        self.http_endpoint: Endpoint | None = None
        self._http: HttpDoor | None = None
        self._is_serving = False
        self._ended_tasks: list[str] = []
        self._coordinators = {GROUP_OFFSETS_TOPIC: self.groups, TRANSACTION_STATE_TOPIC: self.transactions}
        self._led_epochs: dict[TopicPartition, LeaderEpoch] = {}
        self._claim: DirectoryClaim
        self._store: MetadataStore
        self._membership: Membership
        self._producer_ids: ProducerIds
        self._compactor: Compactor | None = None

    async def start(self) -> None:
        config = self.config
        self._claim = claim_directory(config.data_dir, self.disk, self.rng)
        self.logs.prepare()
        self._store = await open_sqlite_store(config.data_dir / METADATA_FILE)
        feed = ImageFeed(self._store, self.image, self._on_changes)
        await feed.load()
        self._take_broker_configs()
        self.quotas.replace(self.image.client_quotas)

        self.bound = await self.listener.bind(config.listen)
        self.endpoint = Endpoint(config.advertise.host, config.advertise.port or self.bound.port)
        self._run(feed.run())
        rack = config.broker_rack or None
        registration = Registration(self.node_id, self.endpoint, rack, self._claim.id)
        self._membership = Membership(self._store, feed, registration, self.rng)
        await self._membership.join()
        self._run(self._membership.run())
        controller = Controller(
            self._store,
            feed,
            self.rng,
            fence=self._membership.fence,
            check_topic=self.config.check_topic,
            check_group=self.config.check_group,
        )

        self._producer_ids = ProducerIds(controller.allocate_producer_id_block)
        if self._membership.is_controller:
            await controller.clean_orphans()
        await self._open_logs(controller)
        self._compactor = Compactor(self.disk, self.logs, config, self.clock, self.metrics)
        context = HandlerContext(
            node=Node(self.node_id, self.endpoint, rack),
            cluster_id=self.image.cluster_id,
            config=config,
            clock=self.clock,
            rng=self.rng,
            disk=self.disk,
            image=self.image,
            controller=controller,
            replicas=self.replicas,
            metrics=self.metrics,
            quotas=self.quotas,
            groups=self.groups,
            transactions=self.transactions,
            write_markers=self.markers.write,
            fetch_sessions=FetchSessions(self.clock, self.rng, config.max_incremental_fetch_session_cache_slots),
            producer_ids=self._producer_ids,
            ensure_internal_topic=InternalTopics(config, self.image, controller).ensure,
        )
        await self._open_http(context.fetch_sessions)
        await self.listener.serve(Dispatcher(context))
        self._is_serving = True
        self._run(self._every(lambda: config.log_flush_offset_checkpoint_interval_ms, self.logs.checkpoint))
        self._run(self._every(lambda: config.log_retention_check_interval_ms, self._apply_retention))
        self._run(self._every(lambda: config.producer_id_expiration_check_interval_ms, self._expire_producers))
        self._run(self._every(lambda: config.log_cleaner_backoff_ms, self.compact))
        logger.info("broker %d listens on %s, data in %s", self.node_id, self.endpoint, config.data_dir)

    async def stop(self) -> None:
        """Answer no more, make everything durable, say that it was a clean stop."""
        self._is_serving = False
        await self.listener.close()
        self.transactions.close()
        self.groups.close()
        await self._end_tasks()
        await self.logs.close()
        await self._membership.close()
        await self._store.close()
        self._claim.close()
        if self._http is not None:
            await self._http.close()
        self.disk.close()

    async def crash(self) -> None:
        """End as a killed process would, for tests: nothing flushed, nothing said; locks and sockets are let go."""
        await self.listener.close()
        if self._http is not None:
            await self._http.close()
        self.transactions.close()
        self.groups.close()
        await self._end_tasks()
        self.logs.release()
        await self._store.close()
        self._claim.close()
        self.disk.close()

    # The image

    def _on_changes(self, changes: ImageChanges) -> None:
        for topic in changes.topics_deleted:
            self._stop_leading(topic)
            self.replicas.drop(topic.name)
            self.groups.topic_deleted(topic.name, topic.id)
        for topic in changes.topics_created:
            self._host(topic)
        for topic in {
            topic.name: topic for topic, _ in (*changes.partitions_added, *changes.partitions_changed)
        }.values():
            self._host(topic)
        if changes.topics_deleted or changes.topics_created or changes.partitions_added:
            self.groups.topics_changed()
        if changes.quotas_changed:
            self.quotas.replace(self.image.client_quotas)
        if changes.broker_configs_changed:
            self._take_broker_configs()
            for topic in self.image.topics.values():
                self.replicas.configure(topic.name, self.config.topic(topic.configs))
        for topic in changes.topic_configs_changed:
            self.replicas.configure(topic.name, self.config.topic(topic.configs))

    def _host(self, topic: Topic) -> None:
        epochs = {
            index: LeaderEpoch(state.leader_epoch)
            for index, state in enumerate(topic.partitions)
            if state.leader == self.node_id
        }
        if epochs:
            self.replicas.host(topic.name, topic.id, self.config.topic(topic.configs), epochs)
            coordinator = self._coordinators.get(topic.name)
            if coordinator is not None:
                self._lead(topic, coordinator)

    def _lead(self, topic: Topic, coordinator: GroupCoordinator | TransactionCoordinator) -> None:
        """Take charge of what is kept in the partitions of an internal topic that this broker leads.

        Once in each epoch. A coordinator that loses a partition to a failed append does not get it back: the log that
        failed takes nothing more until the broker is restarted (TRAPS L1), and a restarted broker leads all anew.
        """
        coordinator.partition_count = len(topic.partitions)
        for partition in self.replicas.topics[topic.name].partitions.values():
            if self._led_epochs.get(partition.at) != partition.leader_epoch:
                self._led_epochs[partition.at] = partition.leader_epoch
                self._run(coordinator.lead(PartitionLedger(partition, self.clock, self.disk)))

    def _stop_leading(self, topic: Topic) -> None:
        """An internal topic is gone. Made again when it is next needed, its partitions start with the same epochs."""
        coordinator = self._coordinators.get(topic.name)
        if coordinator is not None:
            for index in range(len(topic.partitions)):
                coordinator.resign(index)
                self._led_epochs.pop(TopicPartition(topic.name, index), None)

    async def _new_producer_id(self) -> ProducerId:
        return await self._producer_ids.allocate()

    def _take_broker_configs(self) -> None:
        configs = self.image.broker_configs
        self.config.change_dynamic(configs.get("", {}), configs.get(str(self.node_id), {}))

    async def _open_logs(self, controller: Controller) -> None:
        mine = [
            (topic, index)
            for topic in self.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if state.leader == self.node_id
        ]
        configs = {topic.name: self.config.topic(topic.configs) for topic in self.image.topics.values()}
        await self.logs.open_all(
            LogRequest(TopicPartition(topic.name, index), topic.id, configs[topic.name]) for topic, index in mine
        )
        if mine and not self.logs.was_clean:
            # Consumers that saw what the crash has cut off notice it by the new epoch (KIP-320).
            await controller.bump_leader_epochs((topic.id, index) for topic, index in mine)
        for topic in self.image.topics.values():
            self._host(topic)

    # What is seen from outside

    async def _open_http(self, fetch_sessions: FetchSessions) -> None:
        attach_gauges(self.metrics, self.replicas, self.groups, self.listener, self.disk)
        attach_transaction_gauges(self.metrics, self.transactions, self.replicas, self.config, self.clock)
        self.metrics.fetch_sessions.read = lambda: len(fetch_sessions)
        if self.config.http is None:
            return
        self._http = HttpDoor(
            {
                "/metrics": lambda: Page("200 OK", "text/plain; version=0.0.4", self.metrics.render()),
                "/health/live": lambda: health_page([]),
                "/health/ready": lambda: health_page(self._problems()),
            }
        )
        self.http_endpoint = await self._http.open(self.config.http)

    def _problems(self) -> list[str]:
        """Why this broker should get no traffic now."""
        problems = [] if self._is_serving else ["the broker is starting or stopping"]
        problems += [str(failure) for failure in self.replicas.failures()]
        problems += self._ended_tasks
        return problems

    # Housekeeping

    async def _apply_retention(self) -> None:
        offsets = self.replicas.committed_offsets()
        gone = await self.logs.apply_retention(offsets, self.config.producer_id_expiration_ms)
        self.metrics.segments_deleted.value += gone

    async def _expire_producers(self) -> None:
        before_ms = self.clock.now_ms() - self.config.producer_id_expiration_ms
        for log in self.logs.logs.values():
            log.producers.expire(before_ms)

    async def compact(self) -> None:
        """One round of compaction over all logs that are worth it."""
        assert self._compactor is not None
        await self._compactor.run_round(self.replicas.stable_offsets())

    async def _every(self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(interval_ms() / 1000)
            try:
                await work()
            except Exception:
                # One failed round of housekeeping must not end all later ones.
                logger.exception("housekeeping failed")

    def _run(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        task = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """None of them ends by itself: without the feed, say, no topic would ever be created again."""
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task of the broker ended; restart it", exc_info=task.exception())
            self._ended_tasks.append(f"a task of the broker ended: {task.exception()!r}")

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._compactor is not None:
            self._compactor.close()
