"""A librdkafka producer without Python in its loop, over several partitions and different messages.

Called by kafka_driver. The Python binding takes a microsecond or two a message and would measure itself;
`rd_kafka_produce_batch` hands over thousands a call, as a C program would.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import confluent_kafka

BATCH = 10_000
_COPY = 0x2
_QUEUE_FULL = -184
_ERROR_BYTES = 512


class _Message(ctypes.Structure):
    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


def _load() -> ctypes.CDLL:
    package = Path(confluent_kafka.__file__).parent
    for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
        for path in sorted(folder.glob("librdkafka*")):
            library = ctypes.CDLL(str(path))
            for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_topic_new"):
                getattr(library, name).restype = ctypes.c_void_p
            return library
    raise FileNotFoundError("confluent-kafka's wheel holds no librdkafka")


class BulkProducer:
    def __init__(self, settings: Mapping[str, str], topic: str) -> None:
        self._library = library = _load()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        for name, value in settings.items():
            done = library.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, _ERROR_BYTES)
            assert done == 0, error.value
        self._handle = ctypes.c_void_p(library.rd_kafka_new(0, conf, error, _ERROR_BYTES))
        assert self._handle, error.value
        self._topic = ctypes.c_void_p(library.rd_kafka_topic_new(self._handle, topic.encode(), None))

    def send(
        self, values: Sequence[bytes], count: int, partitions: int = 1, goes_on: Callable[[], bool] = lambda: True
    ) -> int:
        """`count` messages, the values in turn, a batch a partition; waits until all are acknowledged or given up.

        Fewer where it does not go on so long; gives how many.
        """
        library = self._library
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        messages = (_Message * BATCH)()
        for number, message in enumerate(messages):
            message.payload = ctypes.cast(buffers[number % len(buffers)], ctypes.c_void_p)
            message.len = len(values[number % len(buffers)])
        # Small jobs still reach every partition.
        portion = max(1, min(BATCH, count // partitions))
        left, partition = count, 0
        while left and goes_on():
            wanted = min(portion, left)
            taken = library.rd_kafka_produce_batch(self._topic, partition, _COPY, messages, wanted)
            left -= taken
            if taken < wanted:
                assert messages[wanted - 1].err == _QUEUE_FULL, messages[wanted - 1].err
                library.rd_kafka_poll(self._handle, 1)
            partition = (partition + 1) % partitions
        while library.rd_kafka_outq_len(self._handle):
            library.rd_kafka_poll(self._handle, 10)
        return count - left
