"""Internal topics made while the cluster was still assembling: the replicas they lack, and how many must be in sync.

Called by supervisor. Plain functions of the image and the settings.
"""

from penstock.cluster import reassignment
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.partition_writes import Place
from penstock.cluster.placement import place
from penstock.cluster.topic_plan import candidates, default_min_insync
from penstock.config import BrokerConfig
from penstock.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


def grown_replicas(image: ClusterImage, topic: Topic, config: BrokerConfig) -> dict[Place, tuple[int, ...]]:
    """The replicas each partition should have, where it has fewer than are asked for and there are brokers for more."""
    factor = min(_replication_factor(topic, config), len(image.live))
    poor = [
        index
        for index, state in enumerate(topic.partitions)
        if len(state.replicas) < factor and not reassignment.is_running(state)
    ]
    if not poor:
        return {}
    placed = place(candidates(image), len(topic.partitions), factor)
    return {(topic.id, index): placed[index] for index in poor}


def wanted_min_insync(topic: Topic, config: BrokerConfig) -> int | None:
    """What min.insync.replicas should be raised to; None where it need not, or while replicas are on their way."""
    if any(reassignment.is_running(state) for state in topic.partitions):
        return None
    replicas = min(len(state.replicas) for state in topic.partitions)
    if topic.name == TRANSACTION_STATE_TOPIC:
        wanted = min(config.transaction_state_log_min_isr, replicas)
    else:
        wanted = default_min_insync(replicas, config) or 1
    return wanted if wanted > config.topic(topic.configs).min_insync_replicas else None


def _replication_factor(topic: Topic, config: BrokerConfig) -> int:
    if topic.name == GROUP_OFFSETS_TOPIC:
        return config.offsets_topic_replication_factor
    assert topic.name == TRANSACTION_STATE_TOPIC, topic.name
    return config.transaction_state_log_replication_factor
