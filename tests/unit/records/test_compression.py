"""Each codec against bytes other programs write, and against bytes that nobody should."""

import gzip
import random
import tracemalloc
import zlib
from struct import pack

import cramjam
import pytest

from penstock.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from penstock.records.compression import Codec, compress, decompress

MEBIBYTE = 1 << 20
SAMPLE = b"".join(b"order %d of customer %d; " % (number, number % 97) for number in range(20_000))
XERIAL_HEADER = b"\x82SNAPPY\x00" + pack(">ii", 1, 1)
SQUEEZING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", SAMPLE], ids=["empty", "one byte", "many blocks"])
def test_every_codec_gives_back_what_it_took(codec: Codec, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        assert bytes(decompress(codec, memoryview(compress(codec, buffer)), len(data))) == data


@pytest.mark.parametrize("codec", SQUEEZING)
def test_a_byte_more_than_the_limit_is_too_large(codec: Codec) -> None:
    with pytest.raises(MessageTooLarge):
        decompress(codec, compress(codec, SAMPLE), len(SAMPLE) - 1)


def test_uncompressed_data_is_held_to_the_limit_too() -> None:
    with pytest.raises(MessageTooLarge):
        decompress(Codec.NONE, b"abc", 2)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_kafka_does_not_have_are_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        decompress(codec, b"abc", 100)
    with pytest.raises(UnsupportedCompressionType):
        compress(codec, b"abc")


@pytest.mark.parametrize("codec", SQUEEZING)
@pytest.mark.parametrize("damage", ["cut", "nothing", "noise", "trailing noise"])
def test_damaged_data_is_corrupt_and_nothing_worse(codec: Codec, damage: str) -> None:
    whole = compress(codec, SAMPLE)
    data = {"cut": whole[:-9], "nothing": b"", "noise": b"\xff" * 64, "trailing noise": whole + b"\xff" * 9}[damage]
    with pytest.raises(CorruptMessage):
        decompress(codec, data, 10 * len(SAMPLE))


@pytest.mark.parametrize("codec", SQUEEZING)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MEBIBYTE))
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            decompress(codec, bomb, 2 * MEBIBYTE)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 2 * MEBIBYTE + 512 * 1024


def test_a_small_batch_with_a_large_limit_does_not_reserve_the_limit() -> None:
    packed = compress(Codec.ZSTD, SAMPLE)
    tracemalloc.start()
    try:
        decompress(Codec.ZSTD, packed, 1 << 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(SAMPLE)


def test_gzip_of_the_standard_library_is_read_and_reads_ours() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(SAMPLE), len(SAMPLE))) == SAMPLE
    assert gzip.decompress(compress(Codec.GZIP, SAMPLE)) == SAMPLE


def test_gzip_in_several_members_is_one_text() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"two")
    assert bytes(decompress(Codec.GZIP, members, 100)) == b"one two"


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 12)), (Codec.ZSTD, (-5, 19))])
def test_a_higher_level_packs_tighter(codec: Codec, levels: tuple[int, int]) -> None:
    low, high = (compress(codec, SAMPLE, level) for level in levels)
    assert len(high) < len(low)
    assert bytes(decompress(codec, high, len(SAMPLE))) == SAMPLE


def test_kafkas_default_levels_mean_each_codecs_default() -> None:
    assert compress(Codec.GZIP, SAMPLE, -1) == compress(Codec.GZIP, SAMPLE)
    assert compress(Codec.LZ4, SAMPLE, 9) == compress(Codec.LZ4, SAMPLE)
    assert compress(Codec.ZSTD, SAMPLE, 3) == compress(Codec.ZSTD, SAMPLE)


def test_a_bare_snappy_block_is_read() -> None:
    literal = b"\x03" + b"\x08" + b"abc"  # three bytes follow; a literal of three bytes
    assert bytes(decompress(Codec.SNAPPY, literal, 3)) == b"abc"


def test_snappy_in_javas_frame_is_read_block_by_block() -> None:
    block = b"\x03\x08abc"
    frame = XERIAL_HEADER + (pack(">i", len(block)) + block) * 3
    assert bytes(decompress(Codec.SNAPPY, frame, 9)) == b"abcabcabc"
    with pytest.raises(MessageTooLarge):
        decompress(Codec.SNAPPY, frame, 8)


def test_snappy_is_written_in_javas_frame_and_blocks() -> None:
    packed = compress(Codec.SNAPPY, SAMPLE)
    assert packed.startswith(XERIAL_HEADER)
    at = len(XERIAL_HEADER)
    blocks: list[bytes] = []
    while at < len(packed):
        length = int.from_bytes(packed[at : at + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + length])))
        at += 4 + length
    assert b"".join(blocks) == SAMPLE
    assert max(map(len, blocks)) == 32 * 1024


@pytest.mark.parametrize(
    "rest",
    [
        b"\x00\x00",
        pack(">i", 0),
        pack(">i", -1),
        pack(">i", 6) + b"\x03\x08abc",
        pack(">i", 2**31 - 1) + b"\x03\x08abc",
    ],
    ids=["half a length", "zero", "negative", "one too long", "enormous"],
)
def test_a_snappy_block_length_that_lies_is_corrupt(rest: bytes) -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, XERIAL_HEADER + rest, 1000)


def test_half_a_snappy_frame_header_is_corrupt() -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, XERIAL_HEADER[:12], 1000)


def test_a_snappy_block_that_claims_four_gibibytes_allocates_none_of_them() -> None:
    with pytest.raises(MessageTooLarge):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", 1 << 20)


def test_the_lz4_frame_java_writes_is_read() -> None:
    # Version 1, independent blocks, no checksums, no content size, blocks of 64 KiB; then one stored block.
    frame = b"\x04\x22\x4d\x18\x60\x40\x82" + b"\x03\x00\x00\x80abc" + bytes(4)
    assert bytes(decompress(Codec.LZ4, frame, 3)) == b"abc"


def test_an_lz4_frame_with_linked_blocks_is_read() -> None:
    compressor = cramjam.lz4.Compressor(block_linked=True)
    compressor.compress(SAMPLE)
    frame = bytes(compressor.finish())
    assert not frame[4] & 0x20
    assert bytes(decompress(Codec.LZ4, frame, len(SAMPLE))) == SAMPLE


def test_lz4_blocks_are_written_independent_as_java_demands() -> None:
    version_and_flags = compress(Codec.LZ4, SAMPLE)[4]
    assert version_and_flags >> 6 == 1
    assert version_and_flags & 0x20


def test_zstd_in_several_frames_is_one_text() -> None:
    # Two frames by hand: no content size, a window, one run-length block of 200 equal bytes each.
    frames = b"".join(
        b"\x28\xb5\x2f\xfd\x00\x58" + (1 | 1 << 1 | 200 << 3).to_bytes(3, "little") + letter for letter in (b"a", b"b")
    )
    assert bytes(decompress(Codec.ZSTD, frames, 400)) == b"a" * 200 + b"b" * 200


def test_a_zlib_stream_is_no_gzip() -> None:
    with pytest.raises(CorruptMessage):
        decompress(Codec.GZIP, zlib.compress(SAMPLE), len(SAMPLE))


def test_an_lz4_frame_starts_as_java_begins_it_and_has_no_checksums() -> None:
    # Two blocks that shrink and one that does not: all three are met when checksums are taken out.
    data = SAMPLE[:1] * 2 * 64 * 1024 + bytes(random.Random(5).randbytes(1000))
    frame = compress(Codec.LZ4, data)
    assert frame[:7] == bytes.fromhex("04224d18604082")
    lengths, at = [], 7
    while length := int.from_bytes(frame[at : at + 4], "little"):
        lengths.append(length & 0x7FFFFFFF)
        at += 4 + lengths[-1]
    assert (len(lengths), at + 4) == (3, len(frame)), "nothing lies between blocks, or behind the end mark"
    assert bytes(decompress(Codec.LZ4, frame, len(data))) == data
