"""Topics the broker keeps its own state in, made when they are first needed.

Called by handlers.groups and handlers.transactions, through HandlerContext.ensure_internal_topic.
"""

import asyncio

from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage
from penstock.cluster.topic_plan import NewTopic
from penstock.config import BrokerConfig
from penstock.errors import PenstockError, TopicAlreadyExists
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


class InternalTopics:
    def __init__(self, config: BrokerConfig, image: ClusterImage, controller: Controller) -> None:
        self._config = config
        self._image = image
        self._controller = controller
        self._making: dict[str, asyncio.Task[None]] = {}

    async def ensure(self, name: str) -> None:
        """Return once the topic is there; raises what kept it from being made."""
        if name in self._image.topics:
            return
        # Everybody who asks meanwhile waits for the same creation.
        task = self._making.get(name)
        if task is None:
            task = self._making[name] = asyncio.get_running_loop().create_task(self._make(name))
            task.add_done_callback(lambda _: self._making.pop(name, None))
        await asyncio.shield(task)

    async def _make(self, name: str) -> None:
        (made,) = await self._controller.create_topics([self._describe(name)])
        if isinstance(made, PenstockError) and not isinstance(made, TopicAlreadyExists):
            raise made

    def _describe(self, name: str) -> NewTopic:
        config, brokers = self._config, len(self._image.live)
        # As many replicas as asked for, as far as there are brokers: a single node must have groups and transactions.
        if name == GROUP_OFFSETS_TOPIC:
            settings: dict[str, str | None] = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
            replicas = min(config.offsets_topic_replication_factor, brokers)
            return NewTopic(name, config.offsets_topic_num_partitions, replicas, settings)
        assert name == TRANSACTION_STATE_TOPIC, name
        replicas = min(config.transaction_state_log_replication_factor, brokers)
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "min.insync.replicas": str(min(config.transaction_state_log_min_isr, replicas)),
            "unclean.leader.election.enable": "false",
        }
        return NewTopic(name, config.transaction_state_log_num_partitions, replicas, settings)
