"""A cluster that is not penstock: librdkafka's own mock brokers, on loopback, inside this process.

Another implementation of the protocol, by another hand, with other versions of its requests. It keeps records as they
were sent, hands leaders on and lets brokers go down when it is told to. The Python client has no words for the latter,
so the library that came with it is called by its C names. What it cannot do: make topics and write the ends of
transactions, so that an aborted one looks committed.
"""

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

_PRODUCER = 0
_ERROR_BYTES = 512


class MockCluster:
    def __init__(self, brokers: int = 3) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._client = self._library.rd_kafka_new(_PRODUCER, None, error, _ERROR_BYTES)
        assert self._client, error.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        assert self._cluster
        self.bootstrap = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def make_topic(self, name: str, partitions: int = 1, replicas: int = 3) -> str:
        self._check(self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, replicas))
        return name

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        self._check(self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker))

    def set_controller(self, broker: int) -> None:
        """None is known at first; the one that is answers that it makes no topics."""
        self._check(self._library.rd_kafka_mock_set_controller_id(self._cluster, broker))

    def take_down(self, broker: int) -> None:
        """It closes its connections, and takes no new ones."""
        self._check(self._library.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def bring_up(self, broker: int) -> None:
        self._check(self._library.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, code: int) -> None:
        assert code == 0, self._library.rd_kafka_err2str(code).decode()


def _library() -> Any:
    """The one that the Python client has loaded: in a folder beside it, or within it, as wheels have it."""
    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    library: Any = ctypes.CDLL(str(found[0]))
    pointer, number, text = ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_new", pointer, (ctypes.c_int, pointer, text, ctypes.c_size_t)),
        ("rd_kafka_destroy", None, (pointer,)),
        ("rd_kafka_err2str", text, (ctypes.c_int,)),
        ("rd_kafka_mock_cluster_new", pointer, (pointer, ctypes.c_int)),
        ("rd_kafka_mock_cluster_destroy", None, (pointer,)),
        ("rd_kafka_mock_cluster_bootstraps", text, (pointer,)),
        ("rd_kafka_mock_topic_create", ctypes.c_int, (pointer, text, ctypes.c_int, ctypes.c_int)),
        ("rd_kafka_mock_partition_set_leader", ctypes.c_int, (pointer, text, number, number)),
        ("rd_kafka_mock_set_controller_id", ctypes.c_int, (pointer, number)),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, (pointer, number)),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, (pointer, number)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
