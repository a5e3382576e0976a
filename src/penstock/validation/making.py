"""The parts of validation joined to the rest of a broker; what is heavy is imported with the first batch that needs it.

Called by broker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.client.peers import Peers
from penstock.clock import Clock
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage
from penstock.config import BrokerConfig
from penstock.disk import Disk
from penstock.metrics import BrokerMetrics
from penstock.replication.replicas import Replicas
from penstock.validation.validation import SchemaValidation

if TYPE_CHECKING:
    from penstock.validation.dead_letters import DeadLetters
    from penstock.validation.log_reading import Requests
    from penstock.validation.schema_topic import SchemaTopic


def make_validation(
    config: BrokerConfig,
    image: ClusterImage,
    replicas: Replicas,
    controller: Controller,
    disk: Disk,
    clock: Clock,
    make_peers: Callable[[str], Peers],
    metrics: BrokerMetrics,
) -> SchemaValidation:
    def schema_topic(ask: "Requests") -> "SchemaTopic":
        from penstock.validation.schema_topic import SchemaTopic

        return SchemaTopic(config.penstock_schema_topic, image, replicas, disk, ask)

    def dead_letters(ask: "Requests") -> "DeadLetters":
        from penstock.validation.dead_letters import DeadLetters

        return DeadLetters(config, image, replicas, controller, clock, ask)

    return SchemaValidation(make_peers, metrics, schema_topic, dead_letters)
