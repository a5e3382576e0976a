"""Reading a Kafka cluster over blocking sockets, inside Spark's executors: no event loop, no librdkafka."""

from penstock.spark.fetching.chunk import FetchedChunk
from penstock.spark.fetching.cluster import GONE_AFTER_S, Cluster, TopicFacts
from penstock.spark.fetching.errors import FetchRefused, NotAdmitted, NotServed, NotYetReadable, OffsetGone, TopicGone
from penstock.spark.fetching.partition_fetcher import PartitionFetcher
from penstock.spark.fetching.settings import SASL_MECHANISMS, SECURITY_PROTOCOLS, ConnectionSettings

__all__ = [
    "GONE_AFTER_S",
    "SASL_MECHANISMS",
    "SECURITY_PROTOCOLS",
    "Cluster",
    "ConnectionSettings",
    "FetchRefused",
    "FetchedChunk",
    "NotAdmitted",
    "NotServed",
    "NotYetReadable",
    "OffsetGone",
    "PartitionFetcher",
    "TopicFacts",
    "TopicGone",
]
