"""LZ4 frames exactly as Kafka's own reader takes them; the blocks are the library's job.

    frame       magic u32 (04 22 4D 18), FLG, BD, [content size u64], HC, block*, end mark
    FLG         version 01 (bits 7-6), block independence (5), block checksum (4),
                content size (3), content checksum (2), reserved (1-0)
    BD          block size code 4..7 (bits 6-4), the rest reserved
    HC          second byte of xxHash32 over FLG .. content size
    block       size u32, top bit = stored as is; bytes; [xxHash32 u32]
    end mark    a block of size 0; [content checksum u32, present but never checked]

Integers are little-endian. Source: Kafka Lz4BlockInputStream (named KafkaLZ4BlockInputStream once),
LZ4 frame format 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from struct import Struct
from types import ModuleType
from typing import NamedTuple

from kseg.errors import DecompressionError
from kseg.format.arena import Arena

_MAGIC = b"\x04\x22\x4d\x18"
_WORD = Struct("<I")
_STORED = 0x8000_0000
_FLAG_INDEPENDENT = 0x20
_FLAG_BLOCK_CHECKSUM = 0x10
_FLAG_CONTENT_SIZE = 0x08
_FLAG_CONTENT_CHECKSUM = 0x04
_FLAGS_RESERVED = 0x03
#: One byte of an LZ4 block adds at most 255 bytes of output.
_EXPANSION_MAX = 255


class _Descriptor(NamedTuple):
    """What a frame says about itself."""

    flags: int
    block_code: int
    block_bytes_max: int
    end: int  # position of the first block


def inflate(data: memoryview, arena: Arena, *, magic: int) -> None:
    """Append what one LZ4 frame holds; what follows its end mark is ignored.

    Args:
        data: the frame, from its magic on.
        arena: takes the output.
        magic: of the message or batch around it; 0 leaves the header checksum unchecked.

    Raises:
        DecompressionError: the frame breaks a rule of Kafka's reader.
        LimitExceededError: the arena's ceiling.
    """
    if len(data) < 7:
        raise DecompressionError("lz4: no frame header")
    header = bytes(data[: 15 if data[4] & _FLAG_CONTENT_SIZE else 7])
    descriptor = _read_descriptor(header, magic > 0)
    if descriptor.flags & _FLAG_BLOCK_CHECKSUM:
        _inflate_checked_blocks(data, arena, descriptor)
    else:
        _inflate_blocks(data, arena, descriptor)


@lru_cache(maxsize=64)  # one kind of frame fills a log
def _read_descriptor(header: bytes, verify: bool) -> _Descriptor:
    if header[:4] != _MAGIC:
        raise DecompressionError("lz4: no frame header")
    flags, block_byte = header[4], header[5]
    if flags >> 6 != 1 or flags & _FLAGS_RESERVED:
        raise DecompressionError(f"lz4: unsupported frame flags 0x{flags:02x}")
    if not flags & _FLAG_INDEPENDENT:
        raise DecompressionError("lz4: dependent blocks are not supported")
    block_code = block_byte >> 4
    if block_byte & 0x8F or block_code < 4:
        raise DecompressionError(f"lz4: unsupported block size byte 0x{block_byte:02x}")
    end = 15 if flags & _FLAG_CONTENT_SIZE else 7
    if len(header) < end:
        raise DecompressionError("lz4: frame header cut short")
    # Kafka wrote, and 0.8 and 0.9 clients still send, a wrong checksum in magic 0.
    if verify and header[end - 1] != header_checksum(header[4 : end - 1]):
        raise DecompressionError("lz4: frame header checksum does not match")
    return _Descriptor(flags, block_code, 1 << (2 * block_code + 8), end)


def _inflate_blocks(data: memoryview, arena: Arena, descriptor: _Descriptor) -> None:
    cramjam = _cramjam()
    decode = cramjam.lz4.decompress_block_into
    for start, end, stored in _blocks(data, descriptor):
        block = data[start:end]
        if stored:
            arena.append(block)
        else:
            capacity = min(descriptor.block_bytes_max, _EXPANSION_MAX * len(block))
            try:
                size = decode(block, arena.free(capacity), output_len=capacity)
            except cramjam.DecompressionError as error:
                raise DecompressionError(f"lz4: bad block at byte {start}") from error
            arena.commit(size)


@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


def _inflate_checked_blocks(data: memoryview, arena: Arena, descriptor: _Descriptor) -> None:
    """Blocks that carry a checksum, which Kafka never writes: the library's frame reader checks it.

    It is given a header of our own, without what Kafka does not check (content size and checksum).
    """
    from lz4 import frame

    flags = 0x40 | _FLAG_INDEPENDENT | _FLAG_BLOCK_CHECKSUM
    header = bytes((flags, descriptor.block_code << 4))
    context = frame.create_decompression_context()
    frame.decompress_chunk(context, _MAGIC + header + bytes((header_checksum(header),)))
    for start, end, _ in _blocks(data, descriptor):
        entry = data[start - 4 : end + 4]
        try:
            # One byte more than a block can hold, so that its checksum is read in this call.
            output, consumed, _ = frame.decompress_chunk(
                context, entry, max_length=descriptor.block_bytes_max + 1
            )
        except RuntimeError as error:
            raise DecompressionError(f"lz4: bad block at byte {start}") from error
        if consumed != len(entry):
            raise DecompressionError(f"lz4: bad block at byte {start}")
        arena.append(output)


def _blocks(data: memoryview, descriptor: _Descriptor) -> Iterator[tuple[int, int, bool]]:
    """Start and end of each block's bytes, and whether they are stored; all of them present.

    Raises:
        DecompressionError: a block is too large or cut short, or the end mark is missing.
    """
    flags, _, block_bytes_max, position = descriptor
    trailer_bytes = 4 if flags & _FLAG_BLOCK_CHECKSUM else 0
    while len(data) - position >= 4:
        (word,) = _WORD.unpack_from(data, position)
        size = word & ~_STORED
        position += 4
        if not size:
            trailer_bytes = 4 if flags & _FLAG_CONTENT_CHECKSUM else 0
        elif size > block_bytes_max:
            raise DecompressionError(f"lz4: block of {size} bytes, {block_bytes_max} allowed")
        if size + trailer_bytes > len(data) - position:
            raise DecompressionError("lz4: the frame is cut short")
        if not size:
            return
        yield position, position + size, word >= _STORED
        position += size + trailer_bytes
    raise DecompressionError("lz4: the frame ends without an end mark")


@lru_cache(maxsize=64)
def header_checksum(descriptor: bytes) -> int:
    """The HC byte of a frame descriptor: FLG, BD and the content size if there is one.

    Example:
        >>> hex(header_checksum(bytes.fromhex("6040")))
        '0x82'
    """
    return xxh32_short(descriptor) >> 8 & 0xFF


def xxh32_short(data: bytes) -> int:
    """The xxHash32, seed 0, of fewer than 16 bytes: the part of the algorithm without lanes.

    Source: xxHash specification, steps 1, 4, 5 and 6.
    """
    assert len(data) < 16
    prime1, prime2, prime3, prime4, prime5 = (
        0x9E3779B1,
        0x85EBCA77,
        0xC2B2AE3D,
        0x27D4EB2F,
        0x165667B1,
    )
    mask = 0xFFFF_FFFF
    value = (prime5 + len(data)) & mask
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        value = (value + int.from_bytes(data[at : at + 4], "little") * prime3) & mask
        value = (value << 17 | value >> 15) & mask
        value = value * prime4 & mask
    for byte in data[words:]:
        value = (value + byte * prime5) & mask
        value = (value << 11 | value >> 21) & mask
        value = value * prime1 & mask
    value = (value ^ value >> 15) * prime2 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16
