"""penstock: a distributed message queue that every Kafka client can use."""

__version__ = "0.1.0"
