"""A broker: builds the parts in order, joins them, runs them, takes them down in reverse.

Called by cli.serve and testing. Start to first answer is the order of `start`; nothing below knows of anything above.
"""

import asyncio
import logging
import platform
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.client.peers import Peers
from penstock.clock import Clock, Rng, SystemClock
from penstock.cluster.controller import Controller
from penstock.cluster.directory import DirectoryClaim, claim_directory
from penstock.cluster.feed import ImageFeed
from penstock.cluster.image import ClusterImage, ImageChanges, Topic
from penstock.cluster.layout import Layout
from penstock.cluster.measured_store import MeasuredStore
from penstock.cluster.membership import Membership
from penstock.cluster.open_store import open_configured_store
from penstock.cluster.partition_changes import PartitionChanges
from penstock.cluster.registration import Registration, ensure_cluster_id
from penstock.cluster.store import MetadataStore
from penstock.cluster.supervisor import Supervisor
from penstock.config import BrokerConfig
from penstock.disk import Disk, RealDisk
from penstock.errors import PenstockError
from penstock.groups.coordinator import GroupCoordinator
from penstock.handlers.context import HandlerContext, Node
from penstock.handlers.fetch_sessions import FetchSessions
from penstock.handlers.final_refusals import FinalRefusals
from penstock.handlers.inquiries import TransactionInquiries
from penstock.handlers.internal_topics import InternalTopics
from penstock.handlers.marker_sending import MarkerSender
from penstock.handlers.marker_writing import MarkerWriter
from penstock.handlers.produce_waits import ProduceWaits
from penstock.handlers.producer_ids import ProducerIds
from penstock.log.compactor import Compactor
from penstock.log.directory import LogDirectory
from penstock.metrics import BrokerMetrics
from penstock.metrics.runtime import GarbageProbe, LoopProbe
from penstock.model import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    Endpoint,
    NodeId,
    Offset,
    ProducerId,
    TopicPartition,
)
from penstock.replication.fetcher import FetcherContext
from penstock.replication.followers import Followers
from penstock.replication.in_sync import InSyncReplicas
from penstock.replication.joining import Joining
from penstock.replication.ledger import PartitionLedger
from penstock.replication.partition import Partition
from penstock.replication.repair import Repairs
from penstock.replication.replicas import Replicas
from penstock.replication.throttle import LeaderThrottle, ReplicationThrottle
from penstock.security.quotas import Quotas
from penstock.server.dispatch import Dispatcher
from penstock.server.gauges import attach_cluster_gauges, attach_gauges, attach_transaction_gauges
from penstock.server.http import HttpDoor, Page, health_page
from penstock.server.listener import Listener
from penstock.telemetry import Reception
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.validation.making import make_validation

if TYPE_CHECKING:
    from penstock.tracing import Tracer
    from penstock.validation.validation import SchemaValidation

logger = logging.getLogger(__name__)

BUSY_CHECK_MS = 1_000
LAG_CHECK_MS = 1_000
# Partitions looked at in one turn of the loop: thousands at once would hold up produce and fetch. So would one step
# right after another, since a request takes several turns.
CHECKED_PER_TURN = 250
CHECK_PAUSE_S = 0.005
LOAD_RETRY_S = 0.5


class Broker:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        disk: Disk | None = None,
        open_store: Callable[[], Awaitable[MetadataStore]] | None = None,
    ) -> None:
        if not __debug__:
            raise RuntimeError("penstock relies on its assertions: do not run it under python -O")
        self.config = config
        self.clock = clock or SystemClock()
        self.rng = rng or Rng()
        self.disk = disk or RealDisk(self.clock)
        self._open_store = open_store or (lambda: open_configured_store(config))
        self.node_id = NodeId(config.node_id)
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics = BrokerMetrics(self.clock)
        self.quotas = Quotas(
            (config.quota_window_num, float(config.quota_window_size_seconds)),
            (config.controller_quota_window_num, float(config.controller_quota_window_size_seconds)),
        )
        self.logs = LogDirectory(self.disk, config.data_dir, self.clock, self.rng)
        self.logs.observe_sync_ms = self.metrics.fsync_latency.observe
        self.logs.read_high_watermarks = lambda: self.replicas.shared_watermarks()
        self.image = ClusterImage(Layout(config.penstock_cluster))
        self.replicas = Replicas(self.logs, self.metrics, self.image, self.node_id)
        self.replicas.on_lead = self._on_lead
        self.replicas.on_resign = self._on_resign
        self.groups = GroupCoordinator(config, self.clock, self.rng, self.image)
        self.markers = MarkerWriter(self.replicas, self.groups, self.clock)
        self._marker_sender = MarkerSender(self.image, self.node_id, self.markers.write, self._peers("markers"))
        self.transactions = TransactionCoordinator(config, self.clock, self._new_producer_id, self._marker_sender.write)
        self._inquiries = TransactionInquiries(self.image, self.node_id, self.transactions, self._peers("transactions"))
        self.listener = Listener(config, self.clock, self.metrics, self.quotas)
        self.disk.traffic = lambda: self.listener.received_bytes
        self.bound = Endpoint("", 0)  # where we listen
        self.endpoint = Endpoint("", 0)  # what clients are told, which may be another address on the way to us
        self.http_endpoint: Endpoint | None = None
        self._http: HttpDoor | None = None
        self._probes = (LoopProbe(self.metrics.loop_lag.observe), GarbageProbe(self.metrics.gc_pauses.observe))
        self._is_serving = False
        self._ended_tasks: list[str] = []
        # Whoever runs the broker stops it then; nothing else is left to do with it.
        self.has_given_up = asyncio.Event()
        self._coordinators = {GROUP_OFFSETS_TOPIC: self.groups, TRANSACTION_STATE_TOPIC: self.transactions}
        # Only once every log is open does the image say what to do with them.
        self._is_hosting = False
        self._saved_watermarks: dict[TopicPartition, Offset] = {}
        self._joining = Joining(self.node_id, self.image, self.logs, config)
        self._claim: DirectoryClaim
        self._store: MetadataStore
        self._membership: Membership
        self._changes: PartitionChanges
        self._in_sync: InSyncReplicas
        self.repairs: Repairs
        self._producer_ids: ProducerIds
        self._compactor: Compactor | None = None
        self._tracer: Tracer | None = None
        self._validation: SchemaValidation | None = None

    async def start(self) -> None:
        config = self.config
        if config.penstock_tracing_endpoint:
            # First: for want of packages nothing should have been begun. Only here: most brokers send no traces.
            from penstock.tracing import open_tracer

            self._tracer = open_tracer(config, self.clock, self.rng, self.metrics)
        self._claim = claim_directory(config.data_dir, self.disk, self.rng)
        self._claim.serve_node(self.node_id)
        self._store = await self._open_store()
        store = MeasuredStore(self._store, self.clock, self.metrics)
        self._claim.join_cluster(await ensure_cluster_id(store, self.image.layout, self.rng))
        self.bound = await self.listener.bind(config.listen)
        self.endpoint = Endpoint(config.advertise.host, config.advertise.port or self.bound.port)
        feed = ImageFeed(store, self.image, self._on_changes)
        rack = config.broker_rack or None
        life = self.rng.uuid().hex
        registration = Registration(
            self.node_id, self.endpoint, rack, self._claim.id, platform.node(), life, self._claim.lives
        )
        self._membership = Membership(
            store, feed, registration, self.rng, ttl_s=config.broker_session_timeout_ms / 1000
        )
        # Before all is read: from then on nobody takes this broker into an in-sync set that it would not know of.
        await self._membership.end_former_life()
        if self._membership.is_older_disk:
            logger.warning("this disk is older than what the cluster last saw of node %d", self.node_id)
        await feed.load()
        self._take_broker_configs()
        self.quotas.replace(self.image.client_quotas)
        self._run(feed.run(), is_vital=True)
        self._changes = PartitionChanges(store, feed, self._membership, config)
        self._in_sync = InSyncReplicas(self.node_id, self.image, self._changes, self.metrics, self._run)
        controller = Controller(store, feed, self.rng, self._membership, config)
        self._producer_ids = ProducerIds(controller.allocate_producer_id_block)
        await self._join(life)
        self._run(Supervisor(store, feed, self._membership, config, controller).run(), is_vital=True)
        self._compactor = Compactor(self.disk, self.logs, config, self.clock, self.metrics)
        self._validation = make_validation(
            config, self.image, self.replicas, controller, self.disk, self.clock, self._peers, self.metrics
        )
        context = HandlerContext(
            node=Node(self.node_id, self.endpoint, rack),
            cluster_id=self.image.cluster_id,
            config=config,
            clock=self.clock,
            rng=self.rng,
            disk=self.disk,
            image=self.image,
            controller=controller,
            partition_changes=self._changes,
            replicas=self.replicas,
            in_sync=self._in_sync,
            leader_throttle=LeaderThrottle(config, self.node_id),
            metrics=self.metrics,
            quotas=self.quotas,
            groups=self.groups,
            transactions=self.transactions,
            write_markers=self.markers.write,
            inquiries=self._inquiries,
            fetch_sessions=FetchSessions(self.clock, self.rng, config.max_incremental_fetch_session_cache_slots),
            final_refusals=FinalRefusals(),
            produce_waits=ProduceWaits(self.clock),
            producer_ids=self._producer_ids,
            telemetry=Reception(self.image, config, self.clock, self.rng, self.disk, self.metrics),
            ensure_internal_topic=InternalTopics(config, self.image, controller).ensure,
            tracer=self._tracer,
            validation=self._validation,
        )
        await self._open_http(context.fetch_sessions)
        await self.listener.serve(Dispatcher(context))
        self._is_serving = True
        self._run(self._every(lambda: config.log_flush_offset_checkpoint_interval_ms, self.logs.checkpoint))
        self._run(self._every(lambda: BUSY_CHECK_MS, self.logs.checkpoint_busy))
        self._run(self._every(lambda: config.log_retention_check_interval_ms, self._apply_retention))
        self._run(self._every(lambda: config.producer_id_expiration_check_interval_ms, self._expire_producers))
        self._run(self._every(lambda: config.log_cleaner_backoff_ms, self.compact))
        self._run(self._every(lambda: min(config.replica_lag_time_max_ms // 2, LAG_CHECK_MS), self._check_replicas))
        self._run(self._every(lambda: config.replica_high_watermark_checkpoint_interval_ms, self._save_high_watermarks))
        logger.info("broker %d listens on %s, data in %s", self.node_id, self.endpoint, config.data_dir)

    async def stop(self) -> None:
        """Let others lead, answer no more, make everything durable, say that it was a clean stop."""
        self._is_serving = False
        if self.config.controlled_shutdown_enable and not self.has_given_up.is_set():
            await self._joining.hand_over(self._changes, self._membership)
        await self.listener.close()
        self.transactions.close()
        self.groups.close()
        await self._marker_sender.close()
        await self._inquiries.close()
        await self._close_validation()
        await self._end_tasks()
        await self.logs.close()
        await self._membership.close()
        await self._store.close()
        self._claim.close()
        if self._http is not None:
            await self._http.close()
        self.disk.close()
        if self._tracer is not None:
            # Last: what is worth keeping is safe by now. It waits for the collector, within a deadline.
            await asyncio.to_thread(self._tracer.close)

    async def crash(self) -> None:
        """End as a killed process would, for tests: nothing flushed, nothing said; locks and sockets are let go."""
        await self.listener.close()
        if self._http is not None:
            await self._http.close()
        self.transactions.close()
        self.groups.close()
        await self._marker_sender.close()
        await self._inquiries.close()
        await self._close_validation()
        await self._end_tasks()
        self.logs.release()
        await self._store.close()
        self._claim.close()
        self.disk.close()
        if self._tracer is not None:
            self._tracer.abandon()

    # The image

    def _on_changes(self, changes: ImageChanges) -> None:
        own = self.image.brokers.get(self.node_id)
        if self._is_hosting and own is not None and own.directory != str(self._claim.id):
            self._give_up(f"another data directory has become node {self.node_id}, at {own.endpoint}")
        for topic in changes.topics_deleted:
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
        coordinator = self._coordinators.get(topic.name)
        if coordinator is not None:
            coordinator.partition_count = len(topic.partitions)
        if self._is_hosting:
            states = dict(enumerate(topic.partitions))
            self.replicas.host(topic.name, topic.id, self.config.topic(topic.configs), states)

    def _on_lead(self, partition: Partition) -> None:
        coordinator = self._coordinators.get(partition.at.topic)
        if coordinator is not None:
            self._run(self._load(coordinator, partition))

    def _on_resign(self, partition: Partition) -> None:
        coordinator = self._coordinators.get(partition.at.topic)
        if coordinator is not None:
            coordinator.resign(partition.at.partition)

    async def _load(self, coordinator: GroupCoordinator | TransactionCoordinator, partition: Partition) -> None:
        """Take charge of what is kept in a partition of an internal topic, once in each epoch we lead it.

        A coordinator that loses a partition to a failed append does not get it back: the log that failed takes nothing
        more until the broker is restarted (TRAPS L1), and a restarted broker leads all anew.
        """
        epoch = partition.leader_epoch
        while partition.is_leader and partition.leader_epoch == epoch:
            try:
                await coordinator.lead(PartitionLedger(partition, self.clock, self.disk))
                return
            except PenstockError as error:
                if partition.log.failure is not None:
                    logger.error("%s cannot be loaded: %s", partition.at, error)
                    return
                logger.warning("%s could not be loaded yet: %s", partition.at, error)
            await asyncio.sleep(LOAD_RETRY_S)

    def _peers(self, purpose: str) -> Peers:
        """Connections for one purpose: on shared ones what waits would delay the rest."""
        return Peers(self._find_endpoint, f"broker-{self.node_id}-{purpose}")

    def _find_endpoint(self, node_id: int) -> Endpoint | None:
        broker = self.image.brokers.get(node_id)
        return None if broker is None else broker.endpoint

    async def _new_producer_id(self) -> ProducerId:
        return await self._producer_ids.allocate()

    def _take_broker_configs(self) -> None:
        configs = self.image.broker_configs
        self.config.change_dynamic(configs.get("", {}), configs.get(str(self.node_id), {}))

    async def _join(self, life: str) -> None:
        """Open all logs, disown what may lack something, register, and be in each partition what the cluster says."""
        # Not earlier: a start that fails for want of a store must not cost the mark of a clean stop.
        self.logs.prepare()
        await self._joining.open_logs()
        await self._joining.disown(self._changes, self._membership, self.metrics)
        self._claim.begin_life(life, self._membership.former_life)
        await self._membership.join()
        self._run(self._membership.run(), is_vital=True)
        self.repairs = Repairs(self.replicas, self.image, self._changes, self._membership, self.metrics, self._run)
        self.replicas.followers = Followers(
            FetcherContext(
                self.node_id,
                self.config,
                self.clock,
                self.logs,
                ReplicationThrottle(self.config, self.node_id),
                broker_epoch=lambda: self._membership.broker_epoch,
                find_endpoint=self._find_endpoint,
                cut=self.replicas.cut,
                on_broken=self.repairs.give_up,
                received=self.metrics.replication_bytes_in,
                trace=None if self._tracer is None else self._tracer.replicated,
            )
        )
        self._is_hosting = True
        for topic in self.image.topics.values():
            self._host(topic)

    # What is seen from outside

    async def _open_http(self, fetch_sessions: FetchSessions) -> None:
        assert self._compactor is not None
        attach_gauges(self.metrics, self.replicas, self.groups, self.listener, self.disk, self.clock)
        attach_cluster_gauges(self.metrics, self.image, self._membership, self._compactor)
        attach_transaction_gauges(self.metrics, self.transactions, self.replicas, self.config, self.clock)
        self.metrics.fetch_sessions.read = lambda: len(fetch_sessions)
        self.metrics.is_ready.read = lambda: int(not self._problems())
        who = (str(self.node_id), self.config.broker_rack or "", self.image.cluster_id, __version__)
        self.metrics.broker_info.read = lambda: [(who, 1)]
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
        for probe in self._probes:
            probe.start()

    def _problems(self) -> list[str]:
        """Why this broker should get no traffic now."""
        problems = [] if self._is_serving else ["the broker is starting or stopping"]
        problems += [str(failure) for failure in self.replicas.failures()]
        problems += self._ended_tasks
        return problems

    # Housekeeping

    async def _check_replicas(self) -> None:
        for some in self.replicas.shared(CHECKED_PER_TURN):
            self.repairs.check(some)
            self._in_sync.check_lag(some, self.config.replica_lag_time_max_ms / 1000)
            await asyncio.sleep(CHECK_PAUSE_S)
        self.repairs.try_again()

    async def _save_high_watermarks(self) -> None:
        watermarks = self.replicas.shared_watermarks()
        if watermarks != self._saved_watermarks:
            await self.logs.save_high_watermarks(watermarks)
            self._saved_watermarks = watermarks

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
        await self._compactor.run_round(self.replicas.stable_offset)

    async def _every(self, interval_ms: Callable[[], int], work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(interval_ms() / 1000)
            try:
                await work()
            except OSError as error:
                # The disk's fault and not ours; it may have room again by the next round.
                logger.error("housekeeping failed: %s", error)
            except Exception:
                # One failed round of housekeeping must not end all later ones.
                logger.exception("housekeeping failed")

    def _run(self, work: Awaitable[None], *, is_vital: bool = False) -> None:
        async def run() -> None:
            await work

        def ended(task: asyncio.Task[None]) -> None:
            """None of them may fail."""
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                logger.error("a task of the broker ended; restart it", exc_info=task.exception())
                why = f"a task of the broker ended: {task.exception()!r}"
                self._ended_tasks.append(why)
                if is_vital:
                    self._give_up(why)

        task = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(ended)
        self._tasks.add(task)

    def _give_up(self, why: str) -> None:
        """Lead nothing from this moment on, and ask to be stopped.

        For a broker that the cluster takes for alive, but that is no longer the one it means, or no longer hears what
        it says: if it went on, a second leader would be about in an epoch, or none in any.
        """
        if not self.has_given_up.is_set():
            logger.error("broker %d cannot go on: %s", self.node_id, why)
            self._ended_tasks.append(why)
            self._is_hosting = self._is_serving = False
            self.replicas.resign()
            self.has_given_up.set()

    async def _close_validation(self) -> None:
        if self._validation is not None:
            await self._validation.close()

    async def _end_tasks(self) -> None:
        for probe in self._probes:
            probe.stop()
        # Nothing is followed any more, though changes of the image may still come.
        followers, self.replicas.followers = self.replicas.followers, None
        if followers is not None:
            await followers.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._compactor is not None:
            self._compactor.close()
