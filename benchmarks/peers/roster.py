"""Who is measured, ours first: ratios are ours against each of the others. Called by beside/."""

from .kafka import Kafka
from .klite import Klite
from .model import Peer
from .nats_jetstream import NatsJetStream
from .penstock import Penstock
from .rabbitmq_streams import RabbitStreams
from .redis_streams import RedisStreams
from .tansu import Tansu

OURS: Peer = Penstock()
OTHERS: tuple[Peer, ...] = (Kafka(), RedisStreams(), NatsJetStream(), RabbitStreams(), Klite(), Tansu())
PEERS: dict[str, Peer] = {peer.name: peer for peer in (OURS, *OTHERS)}
