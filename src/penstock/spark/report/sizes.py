"""How many bytes the logs take, asked of every broker (DescribeLogDirs), with the security the user gave.

Called by cli.report. librdkafka has no such request, so it goes over fetching's own connection. A broker that is down
or does not tell is passed over: `silent` counts them, for then copies are missing from the sums.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.model import Endpoint, TopicPartition
from penstock.wire.apis import ApiKey
from penstock.wire.messages import decode_response, encode_request

if TYPE_CHECKING:
    from penstock.spark.fetching.settings import ConnectionSettings

_VERSION_MIN, _VERSION_MAX = 1, 4
_FLEXIBLE_FROM = 2


@dataclass(frozen=True, slots=True)
class LogSizes:
    """`one_copy` is the largest replica: the others may still be catching up."""

    one_copy: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    all_copies: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    silent: int = 0
    total_bytes: int | None = None
    usable_bytes: int | None = None


def ask_sizes(settings: "ConnectionSettings", brokers: Iterable[Endpoint]) -> LogSizes:
    one_copy: dict[TopicPartition, int] = {}
    all_copies: dict[TopicPartition, int] = {}
    silent = 0
    total = usable = 0
    knows_disk = True
    for broker in brokers:
        try:
            reply = _describe_log_dirs(settings, broker)
        except (OSError, PenstockError):
            silent += 1
            continue
        results = [result for result in reply.results if not int(result.error_code)]
        if not results:
            silent += 1
        for result in results:
            disk = getattr(result, "total_bytes", -1), getattr(result, "usable_bytes", -1)
            knows_disk = knows_disk and min(disk) >= 0
            total, usable = total + disk[0], usable + disk[1]
            for at, size in _partition_sizes(result):
                one_copy[at] = max(size, one_copy.get(at, 0))
                all_copies[at] = all_copies.get(at, 0) + size
    known = knows_disk and bool(one_copy)
    return LogSizes(one_copy, all_copies, silent, total if known else None, usable if known else None)


def _partition_sizes(result: Any) -> Iterable[tuple[TopicPartition, int]]:
    for topic in result.topics:
        for partition in topic.partitions:
            # A replica on its way to another directory is counted where it is, not where it goes.
            if not partition.is_future_key:
                yield TopicPartition(topic.name, partition.partition_index), partition.partition_size


def _describe_log_dirs(settings: "ConnectionSettings", broker: Endpoint) -> Any:
    from penstock.spark.fetching.connection import BrokerConnection

    connection = BrokerConnection.connect(broker, settings)
    try:
        api_key = ApiKey.DESCRIBE_LOG_DIRS
        version = connection.version(api_key, _VERSION_MIN, _VERSION_MAX)
        body = encode_request(api_key, version, {"topics": None})
        reply = connection.call(api_key, version, body, is_flexible=version >= _FLEXIBLE_FROM)
        return decode_response(api_key, version, bytes(reply))
    finally:
        connection.close()
