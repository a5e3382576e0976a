"""What tests of a cluster do with it, with librdkafka. Used by the tests beside it."""

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import PenstockCluster

DEADLINE_S = 60.0
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 0}


class Client:
    """Remembers what it was told of everything it sent."""

    def __init__(self) -> None:
        self.errors: list[KafkaError] = []
        self.acked: list[tuple[int, int, bytes]] = []

    def create(self, cluster: PenstockCluster, topic: str, partitions: int = 3, **configs: str) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUICK})
        for made in admin.create_topics([NewTopic(topic, partitions, 3, config=configs)]).values():
            made.result(DEADLINE_S)

    def producer(self, cluster: PenstockCluster, **settings: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "socket.timeout.ms": 6000,
                "request.timeout.ms": 5000,
                **QUICK,
                **settings,
            }
        )

    def send(self, producer: Producer, topic: str, first: int, count: int, partitions: int = 3) -> None:
        """Numbers as values, spread over the partitions in turn; all of them acknowledged when this returns."""
        for number in range(first, first + count):
            producer.produce(topic, str(number).encode(), partition=number % partitions, on_delivery=self.told)
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0

    def told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked.append((message.partition() or 0, message.offset() or 0, message.value() or b""))

    def read_all(self, cluster: PenstockCluster, topic: str, partitions: int = 3, **settings: object) -> list[bytes]:
        """Every committed value, partition by partition, in the order of the log."""
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "read-all",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                **QUICK,
                **settings,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        values: list[list[bytes]] = [[] for _ in range(partitions)]
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"nothing came; {ended} of {partitions} partitions are read"
            error = message.error()
            if error is None:
                values[message.partition() or 0].append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
        consumer.close()
        return [value for partition in values for value in partition]


def in_partition_order(count: int, partitions: int = 3) -> list[bytes]:
    """What `read_all` gives after `send` of the numbers below `count`."""
    return [str(number).encode() for first in range(partitions) for number in range(first, count, partitions)]
