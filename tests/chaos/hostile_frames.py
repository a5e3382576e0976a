"""Requests made hostile: lengths and counts that lie, bytes flipped, fields that make no sense, bombs.

Used by test_hostile_frames. Everything follows from the random.Random that is handed in.
"""

import math
import random
from collections.abc import Callable, Iterator
from struct import calcsize
from typing import Any, NamedTuple
from uuid import UUID

from penstock.records.batch import BatchHeader
from penstock.records.compression import Codec, compress
from penstock.records.record import Record, append_varint, encode_batch, join_batch
from penstock.server.routes import ROUTES
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import encode_request, load_entity
from penstock.wire.schema import FIXED, EntityType, FieldSpec, field_specs

NOW = 1_700_000_000_000
TOPIC = "orders"


class Hostile(NamedTuple):
    what: str
    data: bytes
    # Of the answer, where the header says so without a lie.
    key: ApiKey | None = None
    version: int = 0
    # Whether the frame ends where its length says, so that another may follow it.
    is_whole: bool = True


# What a request looks like before it is made hostile

_VALUES: dict[str, Any] = {
    "acks": 1,
    "timeout": 100,
    "max_wait": 5,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "session_timeout": 6000,
    "rebalance_timeout": 6000,
    "validate_only": True,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
    "resource_type": 2,
    "entity_type": "client-id",
    "match_type": 0,
    "key": "producer_byte_rate",
    "protocol_type": "consumer",
    "retention_time": -1,
    "transactional_id": None,
    "response_partition_limit": 10,
    "cursor": None,
}


def sample(key: ApiKey, version: int, *, full: bool) -> dict[str, Any]:
    """A request about things that exist; with one element in every array, or with as little as there can be."""
    if not full:
        return {"acks": 1} if key is ApiKey.PRODUCE else {}
    return _sample(load_entity(key, version, "request"))


def _has_value(spec: FieldSpec) -> bool:
    """None stands for a field that is better left out, where it can be."""
    return spec.name in _VALUES and (spec.nullable or _VALUES[spec.name] is not None)


def _sample(entity: EntityType) -> dict[str, Any]:
    def value(spec: FieldSpec) -> Any:
        if _has_value(spec) and not spec.is_array:
            return _VALUES[spec.name]
        if spec.entity is not None:
            return _sample(spec.entity)
        match spec.kind:
            case "string":
                return TOPIC
            case "records":
                return bytes(encode_batch([Record(0, NOW, b"key", b"value", (("name", b"header"),))]))
            case "bytes":
                return b"bytes"
            case _:
                return 0 if spec.is_array else spec.default

    return {spec.name: [value(spec)] if spec.is_array else value(spec) for spec in field_specs(entity)}


# How it is made hostile

EXTREMES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x00\xff\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\xff",
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
)
VARINTS = (
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # longer than any
    b"\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x00",  # a zero that takes five bytes
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1
    b"\x80\x80\x80\x80\x10",  # 2^32
)

Mutation = Callable[[random.Random, bytes], bytes]


def flip(rng: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def put_extreme(rng: random.Random, body: bytes) -> bytes:
    return _put(body, rng.randrange(len(body)), rng.choice(EXTREMES))


def put_varint(rng: random.Random, body: bytes) -> bytes:
    return _put(body, rng.randrange(len(body)), rng.choice(VARINTS))


def insert_varint(rng: random.Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + rng.choice(VARINTS) + body[at:]


def cut(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body))]


def drop(rng: random.Random, body: bytes) -> bytes:
    start, stop = sorted(rng.randrange(len(body) + 1) for _ in range(2))
    return body[:start] + body[stop:]


def repeat(rng: random.Random, body: bytes) -> bytes:
    start, stop = sorted(rng.randrange(len(body) + 1) for _ in range(2))
    return body[:stop] + body[start:stop] * rng.choice((1, 2, 100)) + body[stop:]


def scribble(rng: random.Random, body: bytes) -> bytes:
    return _put(body, rng.randrange(len(body)), rng.randbytes(rng.randrange(1, 16)))


def append(rng: random.Random, body: bytes) -> bytes:
    return body + rng.randbytes(rng.randrange(1, 64))


def tags(rng: random.Random, body: bytes) -> bytes:
    """Tagged fields at the end: more than there are, larger than the frame, the same twice, unknown ones."""
    lie = rng.choice((
        b"\xff\xff\xff\xff\x0f",
        b"\x01\x00\xff\xff\xff\xff\x0f",
        b"\x01\x00\x7f",
        b"\x02\x00\x00\x00\x00",
        b"\x02\x05\x01x\x05\x01y",
        b"\x01\xff\xff\xff\xff\x0f\x00",
        b"\x7f" + b"\x09\x00" * 0x7F,
    ))  # fmt: skip
    return body[:-1] + lie


def _put(body: bytes, at: int, value: bytes) -> bytes:
    return body[:at] + value + body[at + len(value) :]


MUTATIONS: tuple[Mutation, ...] = (
    flip, put_extreme, put_extreme, put_varint, insert_varint, cut, drop, repeat, scribble, append, tags,
)  # fmt: skip


def mutated(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Every version of every API, `count` times."""
    for key in ROUTES:
        api = BY_KEY[key]
        for version in range(api.low, api.high + 1):
            head = request_frame(key, version, 1, "hostile", b"")[4:]
            bodies = [encode_request(key, version, sample(key, version, full=full)) for full in (True, True, False)]
            for _ in range(count):
                body = rng.choice(bodies)
                for mutate in rng.choices(MUTATIONS, k=rng.choice((1, 1, 1, 2, 4))):
                    body = mutate(rng, body) if body else rng.randbytes(4)
                frame = framed(head + body)
                yield Hostile(f"{api.name} v{version}", frame, key, version)


NUMBERS = (0, 1, -1, 2, 3, 100, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**15 - 1, -(2**15), 127, -128)
STRINGS = ("", TOPIC, TOPIC, "group", "client-id", "user", "retention.ms", "__consumer_offsets", "..", "ä\u0000\u4e00")
# Requests that would change the broker for the honest client, too, are only ever tried.
TRIED = (ApiKey.ALTER_CLIENT_QUOTAS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)


def odd(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Requests in the right shape about the wrong things: extreme numbers, empty, null and repeated elements."""
    for key in ROUTES:
        api = BY_KEY[key]
        for version in range(api.low, api.high + 1):
            entity = load_entity(key, version, "request")
            for _ in range(count):
                body = _odd(rng, entity)
                if key in TRIED:
                    body["validate_only"] = True
                if body.get("acks") == 0:
                    body["acks"] = 1
                frame = request_frame(key, version, 1, "hostile", encode_request(key, version, body))
                yield Hostile(f"odd {api.name} v{version}", frame, key, version)


def _odd(rng: random.Random, entity: EntityType) -> dict[str, Any]:
    def value(spec: FieldSpec) -> Any:
        if spec.nullable and not spec.is_array and rng.random() < 0.2:
            return None
        if spec.entity is not None:
            return _odd(rng, spec.entity)
        if _has_value(spec) and rng.random() < 0.5:
            return _VALUES[spec.name]
        match spec.kind:
            case "string":
                return rng.choice((*STRINGS, "x" * rng.choice((249, 250, 5000))))
            case "records" | "bytes":
                batch = bytes(encode_batch([Record(0, NOW, b"key", b"value")]))
                return rng.choice((b"", batch, put_extreme(rng, batch), rng.randbytes(70)))
            case "uuid":
                return rng.choice((None, UUID(int=1), UUID(int=2**128 - 1)))
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice((0.0, -1.0, 1e308, math.inf, -math.inf, math.nan))
            case kind:
                bits = 8 * calcsize(">" + FIXED[kind])
                return rng.choice([number for number in NUMBERS if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)])

    def values(spec: FieldSpec) -> Any:
        if not spec.is_array:
            return value(spec)
        if spec.nullable and rng.random() < 0.2:
            return None
        return [value(spec) for _ in range(rng.choice((0, 1, 1, 2)))] * rng.choice((1, 1, 2))

    return {spec.name: values(spec) for spec in field_specs(entity)}


def framed(message: bytes, size: int | None = None) -> bytes:
    return (len(message) if size is None else size).to_bytes(4, "big", signed=True) + message


def misframed(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Lengths that lie, headers that are none, bytes that were never meant for a broker."""
    keys = list(ROUTES)
    for number in range(count):
        key = rng.choice(keys)
        version = rng.randint(BY_KEY[key].low, BY_KEY[key].high)
        body = encode_request(key, version, sample(key, version, full=True))
        message = request_frame(key, version, 1, "hostile", body)[4:]
        match number % 10:
            case 0:
                size = rng.choice((0, -1, -(2**31), 2**31 - 1, 1, 2, 3, 4, 7))
                yield Hostile("a length that is none", framed(message, size), is_whole=False)
            case 1:
                yield Hostile("longer than it says", framed(message, rng.randrange(len(message))), is_whole=False)
            case 2:
                size = len(message) + rng.randrange(1, 1 << 20)
                yield Hostile("shorter than it says", framed(message, size), is_whole=False)
            case 3:
                yield Hostile("cut", framed(message)[: rng.randrange(1, len(message))], is_whole=False)
            case 4:
                yield Hostile("random bytes", rng.randbytes(rng.randrange(1, 300)), is_whole=False)
            case 5:
                yield Hostile("a random message", framed(rng.randbytes(rng.randrange(1, 300))))
            case 6:
                wrong = rng.randrange(-(2**15), 2**15).to_bytes(2, "big", signed=True)
                yield Hostile("an unknown API or version", framed(_put(message, rng.choice((0, 2)), wrong)))
            case 7:
                client_id = rng.choice((b"\xff\xfe", b"\x7f\xff", b"\x00\x00", b"\x80\x00", b"\x00\xff"))
                yield Hostile("a client id that lies", framed(_put(message, 8, client_id)))
            case 8:
                yield Hostile("only a header", framed(message[: rng.randrange(1, 18)]))
            case _:
                other = rng.choice((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\n"))
                yield Hostile("another protocol", other + rng.randbytes(200), is_whole=False)


def valid() -> Iterator[Hostile]:
    """One request of every version, so that whatever is loaded on first use is loaded."""
    for key in ROUTES:
        for version in range(BY_KEY[key].low, BY_KEY[key].high + 1):
            body = encode_request(key, version, sample(key, version, full=True))
            yield Hostile("valid", request_frame(key, version, 1, "hostile", body), key, version)


# Bombs

BOMB_BYTES = 64 << 20
RLE_BLOCK_BYTES = 128 * 1024


class Bomb(NamedTuple):
    what: str
    compression: str
    batch: bytes
    is_large: bool = True  # unfolds to more than is allowed; the others are only not what they say
    times: int = 1  # partitions of one request


def bombs() -> Iterator[Bomb]:
    zeros = bytes(BOMB_BYTES)
    for codec, name in ((Codec.GZIP, "gzip"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd")):
        yield Bomb(f"{name} of zeros", name, raw_batch(compress(codec, zeros), codec))
        yield Bomb(f"{name} cut short", name, raw_batch(compress(codec, zeros[:99999])[:-9], codec), is_large=False)
    member = compress(Codec.GZIP, zeros[: 1 << 20])
    yield Bomb("gzip in many members", "gzip", raw_batch(member * 64, Codec.GZIP))
    yield Bomb("zstd that is all run lengths", "zstd", raw_batch(zstd_runs(BOMB_BYTES), Codec.ZSTD))
    yield Bomb("zstd with the largest window", "zstd", raw_batch(zstd_runs(100, window=0x88), Codec.ZSTD), False)
    yield Bomb("zstd with a window beyond reason", "zstd", raw_batch(zstd_runs(100, window=0xA8), Codec.ZSTD), False)
    yield Bomb("many of them at once", "zstd", raw_batch(zstd_runs(BOMB_BYTES), Codec.ZSTD), times=500)
    yield Bomb("a snappy length that lies", "snappy", raw_batch(b"\xff\xff\xff\xff\x0f" + bytes(99), Codec.SNAPPY))
    lies = compress(Codec.SNAPPY, b"")[:16] + b"\x00\x00\x00\x06\xff\xff\xff\x7f\x00\x00" * 1000
    yield Bomb("snappy blocks that lie", "snappy", raw_batch(lies, Codec.SNAPPY))
    for count in (2, 100_000, 2**31 - 1):
        yield Bomb("fewer records than it says", "uncompressed", raw_batch(record(0), Codec.NONE, count), False)
    for header_count in (-1, 1, 1000, 2**31 - 1, 2**63 - 1):
        one = record(0, header_count)
        yield Bomb("fewer headers than it says", "uncompressed", raw_batch(one, Codec.NONE), False)
        yield Bomb("and compressed", "gzip", raw_batch(compress(Codec.GZIP, one), Codec.GZIP), False)
    yield Bomb("a compression there is none", "none", raw_batch(b"x" * 99, 7), False)


def zstd_runs(size: int, window: int = 0x58) -> bytes:
    """A frame of zstd by hand: blocks of four bytes that stand for 128 KiB each."""
    blocks = bytearray(b"\x28\xb5\x2f\xfd\x00") + bytes((window,))
    while size:
        run = min(size, RLE_BLOCK_BYTES)
        size -= run
        blocks += (run << 3 | 1 << 1 | (size == 0)).to_bytes(3, "little") + b"\x00"
    return bytes(blocks)


def record(offset: int, header_count: int = 0) -> bytes:
    body = bytearray(1)
    for number in (0, offset, 1):
        append_varint(body, number)
    body += b"k"
    append_varint(body, 1)
    body += b"v"
    append_varint(body, header_count)
    out = bytearray()
    append_varint(out, len(body))
    return bytes(out + body)


def raw_batch(records: bytes, codec: int, count: int = 1) -> bytes:
    """A batch that says what we want it to say, with the checksum that belongs to it."""
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)
    return bytes(join_batch(header, records))
