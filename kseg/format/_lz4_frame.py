"""LZ4 frames as Kafka's own reader takes them: a kernel walks them, the library inflates blocks.

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
from functools import cache
from types import ModuleType

from kseg._kernels.frames import lz4_block, lz4_header, xxh32_short
from kseg.errors import DecompressionError
from kseg.format.arena import Arena

_MAGIC = b"\x04\x22\x4d\x18"
_FLAG_INDEPENDENT = 0x20
_FLAG_BLOCK_CHECKSUM = 0x10
_FLAG_CONTENT_SIZE = 0x08
#: One byte of an LZ4 block adds at most 255 bytes of output.
_EXPANSION_MAX = 255
_HEADER_TEXT = {
    1: "no frame header",
    2: "unsupported frame flags 0x{flags:02x}",
    3: "dependent blocks are not supported",
    4: "unsupported block size byte 0x{block_byte:02x}",
    5: "frame header cut short",
    6: "frame header checksum does not match",
}
#: What `frames.lz4_block` returns for a block stored as is, for the end mark, and for faults.
_STORED, _END = 1, 2
_BLOCK_TEXT = {
    3: "the frame ends without an end mark",
    4: "block of {size} bytes, {allowed} allowed",
    5: "the frame is cut short",
}


def inflate(data: memoryview, arena: Arena, magic: int) -> None:
    """Append what one LZ4 frame holds; what follows its end mark is ignored.

    Args:
        data: the frame, from its magic on.
        arena: takes the output.
        magic: of the message or batch around it; 0 leaves the header checksum unchecked.

    Raises:
        DecompressionError: the frame breaks a rule of Kafka's reader.
        LimitExceededError: the arena's ceiling.
    """
    status, flags, block_byte = lz4_header(data, magic > 0)
    if status:
        text = _HEADER_TEXT[status].format(flags=flags, block_byte=block_byte)
        raise DecompressionError(f"lz4: {text}")
    if flags & _FLAG_BLOCK_CHECKSUM:
        _inflate_checked_blocks(data, arena, flags, block_byte)
    else:
        _inflate_blocks(data, arena, flags, _block_bytes_max(block_byte))


def _block_bytes_max(block_byte: int) -> int:
    return 1 << ((block_byte >> 3) + 8)


def _inflate_blocks(data: memoryview, arena: Arena, flags: int, block_bytes_max: int) -> None:
    cramjam = _cramjam()
    decode = cramjam.lz4.decompress_block_into
    end = 15 if flags & _FLAG_CONTENT_SIZE else 7
    while True:
        status, start, end = lz4_block(data, end, flags, block_bytes_max)
        if not status:
            capacity = _EXPANSION_MAX * (end - start)
            if capacity > block_bytes_max:
                capacity = block_bytes_max
            try:
                size = decode(data[start:end], arena.free(capacity), output_len=capacity)
            except cramjam.DecompressionError as error:
                raise DecompressionError(f"lz4: bad block at byte {start}") from error
            arena.commit(size)
        elif status == _STORED:
            arena.append(data[start:end])
        elif status == _END:
            return
        else:
            raise _block_error(status, end - start, block_bytes_max)


def _block_error(status: int, size: int, allowed: int) -> DecompressionError:
    return DecompressionError(f"lz4: {_BLOCK_TEXT[status].format(size=size, allowed=allowed)}")


@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


def _inflate_checked_blocks(data: memoryview, arena: Arena, flags: int, block_byte: int) -> None:
    """Blocks that carry a checksum, which Kafka never writes: the library's frame reader checks it.

    The reader gets a header without the content size and checksum, which Kafka does not check.
    """
    from lz4 import frame

    header = bytes((0x40 | _FLAG_INDEPENDENT | _FLAG_BLOCK_CHECKSUM, block_byte))
    context = frame.create_decompression_context()
    frame.decompress_chunk(context, _MAGIC + header + bytes((header_checksum(header),)))
    block_bytes_max = _block_bytes_max(block_byte)
    for start, end in _checked_blocks(data, flags, block_bytes_max):
        entry = data[start - 4 : end + 4]
        try:
            # One byte more than a block can hold, so that its checksum is read in this call.
            output, consumed, _ = frame.decompress_chunk(
                context, entry, max_length=block_bytes_max + 1
            )
        except RuntimeError as error:
            raise DecompressionError(f"lz4: bad block at byte {start}") from error
        if consumed != len(entry):
            raise DecompressionError(f"lz4: bad block at byte {start}")
        arena.append(output)


def _checked_blocks(
    data: memoryview, flags: int, block_bytes_max: int
) -> Iterator[tuple[int, int]]:
    """Start and end of each block's bytes, all of them and their checksums present."""
    position = 15 if flags & _FLAG_CONTENT_SIZE else 7
    while True:
        status, start, end = lz4_block(data, position, flags, block_bytes_max)
        if status == _END:
            return
        if status > _END:
            raise _block_error(status, end - start, block_bytes_max)
        yield start, end
        position = end + 4


def header_checksum(descriptor: bytes) -> int:
    """The HC byte of a frame descriptor: FLG, BD and the content size if there is one.

    Example:
        >>> hex(header_checksum(bytes.fromhex("6040")))
        '0x82'
    """
    return xxh32_short(descriptor) >> 8 & 0xFF


__all__ = ["header_checksum", "inflate", "xxh32_short"]
