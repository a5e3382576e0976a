"""A server that speaks just enough of Kafka's protocol for a producer, and throws everything away.

Called by limits.py, and run as a process of its own: what librdkafka reaches against it is what librdkafka can do. It
reads every byte, as any broker must, and answers from a template. `python null_broker.py PORT`.
"""

import socket
import struct
import sys
import threading

API_VERSIONS, METADATA, PRODUCE, FETCH = 18, 3, 0, 1
# Old, fixed versions: answers need no tagged fields. Fetch is named, though nobody fetches: without it librdkafka takes
# the broker for one of before 0.11 and makes messages of an older format, which cost it half as much again.
VERSIONS = {PRODUCE: (3, 7), FETCH: (4, 4), METADATA: (1, 4), API_VERSIONS: (0, 0)}
UNSUPPORTED_VERSION = 35
RECEIVE_BYTES = 1 << 20
HEADER_BYTES = 8  # key, version, correlation id
TOPIC = b"bench"
NODE = 1


def serve(port: int) -> None:
    with socket.create_server(("127.0.0.1", port), backlog=64) as listener:
        while True:
            channel, _ = listener.accept()
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_answer, args=(channel, port), daemon=True).start()


def _answer(channel: socket.socket, port: int) -> None:
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    while True:
        if not _fill(channel, buffer[:4]):
            return
        (left,) = struct.unpack_from(">i", buffer)
        if not _fill(channel, buffer[:HEADER_BYTES]):
            return
        left -= HEADER_BYTES
        key, version, correlation = struct.unpack_from(">hhi", buffer)
        while left:
            got = channel.recv_into(buffer[: min(left, RECEIVE_BYTES)])
            if not got:
                return
            left -= got
        body = struct.pack(">i", correlation) + _body(key, version, port)
        channel.sendall(struct.pack(">i", len(body)) + body)


def _fill(channel: socket.socket, part: memoryview) -> bool:
    """Whether the other side is still there."""
    got = 0
    while got < len(part):
        more = channel.recv_into(part[got:])
        if not more:
            return False
        got += more
    return True


def _body(key: int, version: int, port: int) -> bytes:
    if key == PRODUCE:
        # Topics, name, partitions, index, error, offset, append time, log start (5 and later), throttle.
        start = struct.pack(">q", 0) if version >= 5 else b""
        topic = _string(TOPIC) + struct.pack(">iihqq", 1, 0, 0, 0, -1) + start
        return struct.pack(">i", 1) + topic + struct.pack(">i", 0)
    if key == METADATA:
        return _metadata(version, port)
    error = UNSUPPORTED_VERSION if version > 0 else 0
    rows = b"".join(struct.pack(">hhh", api, low, high) for api, (low, high) in VERSIONS.items())
    return struct.pack(">hi", error, len(VERSIONS)) + rows


def _metadata(version: int, port: int) -> bytes:
    throttle = struct.pack(">i", 0) if version >= 3 else b""
    brokers = struct.pack(">ii", 1, NODE) + _string(b"127.0.0.1") + struct.pack(">ih", port, -1)
    cluster = struct.pack(">h", -1) if version >= 2 else b""
    partition = struct.pack(">hiiiiii", 0, 0, NODE, 1, NODE, 1, NODE)
    topic = struct.pack(">ih", 1, 0) + _string(TOPIC) + struct.pack(">bi", 0, 1) + partition
    return throttle + brokers + cluster + struct.pack(">i", NODE) + topic


def _string(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


if __name__ == "__main__":
    serve(int(sys.argv[1]))
