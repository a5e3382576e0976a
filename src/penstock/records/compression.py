"""Kafka's four compressions, and a limit on what anything that was sent to us may unfold into.

Called by records.record. Every output buffer is bounded before it is filled, so that a bomb costs its sender an
error and us no more than the limit (zstd's own window may hold as much again).
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam
from cramjam import DecompressionError

from penstock.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from penstock.records.batch import Buffer


class Codec(IntEnum):
    """The number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# What Kafka's own settings say when nobody chose a level.
GZIP_DEFAULT_LEVEL: Final = -1
LZ4_DEFAULT_LEVEL: Final = 9

# Java's Snappy wraps blocks in a frame of its own: magic, version, oldest version that can read it, then blocks
# with their length before them. Most clients write it, all read it, some also send one bare block.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = Struct(">i")

# How every LZ4 frame of Java starts: magic, independent blocks of 64 KiB without checksums, a hash of these two bytes.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
# The same with a checksum behind each block, which is what cramjam makes.
_LZ4_CHECKED_HEADER = b"\x04\x22\x4d\x18\x70\x40\xad"
_LZ4_BLOCK_LENGTH = Struct("<I")
_LZ4_IS_STORED = 0x8000_0000  # a block that would not shrink: its length has this bit
_LZ4_CHECKSUM_BYTES = 4

_DECOMPRESS_INTO: dict[int, Callable[[Buffer, bytearray], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}
_FIRST_GUESS_BYTES = 16 * 1024
_GROWTH = 4
# cramjam has one exception for everything; this is what it says when the output buffer is full.
_OUTPUT_IS_FULL = "failed to write whole buffer"


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`level` as Kafka's `compression.*.level` settings have it; None is each codec's default."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=None if level in (None, GZIP_DEFAULT_LEVEL) else level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            # As in Kafka, 9 stands for "nobody chose" and means the fast way, not the high-compression search.
            chosen = 0 if level in (None, LZ4_DEFAULT_LEVEL) else level
            # Java refuses frames whose blocks lean on each other.
            compressor = cramjam.lz4.Compressor(level=chosen, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return _without_block_checksums(memoryview(compressor.finish()))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))
        case _:
            raise UnsupportedCompressionType(f"compression {codec} is none of Kafka's")


def decompress(codec: int, data: Buffer, size_max: int) -> Buffer:
    """What `data` unfolds to, never more than `size_max` bytes. Uncompressed data comes back as it is."""
    if codec == Codec.NONE:
        if len(data) > size_max:
            raise _too_large(size_max)
        return data
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), size_max)
    decompress_into = _DECOMPRESS_INTO.get(codec)
    if decompress_into is None:
        raise UnsupportedCompressionType(f"compression {codec} is none of Kafka's")
    size = min(size_max, max(_FIRST_GUESS_BYTES, _GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            length = decompress_into(data, output)
        except DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise CorruptMessage(f"{Codec(codec).name.lower()}: {error}") from error
            if size == size_max:
                raise _too_large(size_max) from error
            # The buffer that was too small goes before the next one comes.
            output.clear()
            size = min(size_max, size * _GROWTH)
            continue
        del output[length:]
        return output


def _without_block_checksums(frame: memoryview) -> bytes:
    # Clients have met Java's frames only: lz4js, for one, looks for a block's checksum at the wrong end.
    assert frame[: len(_LZ4_CHECKED_HEADER)] == _LZ4_CHECKED_HEADER
    parts: list[Buffer] = [_LZ4_HEADER]
    at = len(_LZ4_CHECKED_HEADER)
    while True:
        (length,) = _LZ4_BLOCK_LENGTH.unpack_from(frame, at)
        end = at + _LZ4_BLOCK_LENGTH.size + (length & ~_LZ4_IS_STORED)
        parts.append(frame[at:end])
        if length == 0:
            return b"".join(parts)
        at = end + _LZ4_CHECKSUM_BYTES


def _compress_snappy(data: Buffer) -> bytes:
    parts: list[Buffer] = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, size_max: int) -> bytearray:
    output = bytearray()
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        _append_block(output, view, size_max)
        return output
    size = len(view)
    if size < len(_XERIAL_HEADER):
        raise CorruptMessage("snappy: the frame ends inside its header")
    at = len(_XERIAL_HEADER)
    while at < size:
        if size - at < _LENGTH.size:
            raise CorruptMessage("snappy: the frame ends inside a block length")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if not 0 < length <= size - at:
            raise CorruptMessage(f"snappy: a block of {length} bytes does not fit the {size - at} that are left")
        _append_block(output, view[at : at + length], size_max)
        at += length
    return output


def _append_block(output: bytearray, block: memoryview, size_max: int) -> None:
    try:
        # The block says its own size, and decompress_raw allocates what it says: ask first.
        if len(output) + cramjam.snappy.decompress_raw_len(block) > size_max:
            raise _too_large(size_max)
        output += memoryview(cramjam.snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptMessage(str(error)) from error


def _too_large(size_max: int) -> MessageTooLarge:
    return MessageTooLarge(f"the records unfold to more than {size_max} bytes")
