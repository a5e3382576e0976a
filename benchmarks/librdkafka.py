"""A librdkafka producer without Python in its loop: the library inside confluent-kafka's wheel, called through ctypes.

Called by produce and fetch. `Producer.produce` of the Python binding takes 1 to 2 µs a message on the client's side and
would measure itself; `rd_kafka_produce_batch` hands over ten thousand messages a call, as a C program would.
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka

BATCH = 10_000
PARTITION = 0
_COPY = 0x2
_QUEUE_FULL = -184


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
        self._lib = lib = _load()
        error = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
        for name, value in settings.items():
            assert lib.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, 512) == 0, error.value
        self._handle = ctypes.c_void_p(lib.rd_kafka_new(0, conf, error, 512))
        assert self._handle, error.value
        self._topic = ctypes.c_void_p(lib.rd_kafka_topic_new(self._handle, topic.encode(), None))

    def send(self, value: bytes, count: int) -> None:
        """`count` copies of one message, and wait until all are acknowledged."""
        lib = self._lib
        payload = ctypes.create_string_buffer(value, len(value))
        messages = (_Message * BATCH)()
        for message in messages:
            message.payload = ctypes.cast(payload, ctypes.c_void_p)
            message.len = len(value)
        left = count
        while left:
            wanted = min(BATCH, left)
            taken = lib.rd_kafka_produce_batch(self._topic, PARTITION, _COPY, messages, wanted)
            left -= taken
            if taken < wanted:
                assert messages[wanted - 1].err == _QUEUE_FULL, messages[wanted - 1].err
                lib.rd_kafka_poll(self._handle, 1)
        while lib.rd_kafka_outq_len(self._handle):
            lib.rd_kafka_poll(self._handle, 10)
