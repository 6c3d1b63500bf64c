"""LZ4 frames as Kafka's own reader takes them: a kernel lists their blocks, a package inflates.

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

from functools import cache
from types import ModuleType
from typing import Any

from kseg._kernels.frames import lz4_blocks, xxh32_short
from kseg.errors import DecompressionError
from kseg.format.arena import Arena

_MAGIC = b"\x04\x22\x4d\x18"
_FLAG_INDEPENDENT = 0x20
_FLAG_BLOCK_CHECKSUM = 0x10
#: One byte of an LZ4 block adds at most 255 bytes of output.
_EXPANSION_MAX = 255
#: What `frames.lz4_blocks` answers where more blocks follow, for the end mark, and for faults.
_MORE, _END = 0, 2
_FAULT_TEXT = {
    3: "the frame ends without an end mark",
    4: "block of {number} bytes, {allowed} allowed",
    5: "the frame is cut short",
    6: "no frame header",
    7: "unsupported frame flags 0x{number:02x}",
    8: "dependent blocks are not supported",
    9: "unsupported block size byte 0x{number:02x}",
    10: "frame header cut short",
    11: "frame header checksum does not match",
}
#: Start and end of a block's bytes, and whether they are stored as they are.
_Block = tuple[int, int, bool]


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
    status, position, checking = _MORE, 0, None
    while status == _MORE:
        status, number, allowed, position, blocks = lz4_blocks(data, position, magic > 0)
        if blocks and data[4] & _FLAG_BLOCK_CHECKSUM:
            checking = checking or _checking(data[5])
            _append_checked(data, arena, blocks, allowed, checking)
        elif blocks:
            _append(data, arena, blocks, allowed)
    if status != _END:
        text = _FAULT_TEXT[status].format(number=number, allowed=allowed)
        raise DecompressionError(f"lz4: {text}")


def _append(data: memoryview, arena: Arena, blocks: list[_Block], block_bytes_max: int) -> None:
    cramjam = _cramjam()
    decode = cramjam.lz4.decompress_block_into
    for start, end, stored in blocks:
        if stored:
            arena.append(data[start:end])
            continue
        capacity = _EXPANSION_MAX * (end - start)
        if capacity > block_bytes_max:
            capacity = block_bytes_max
        try:
            size = decode(data[start:end], arena.free(capacity), output_len=capacity)
        except cramjam.DecompressionError as error:
            raise DecompressionError(f"lz4: bad block at byte {start}") from error
        arena.commit(size)


@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


def _checking(block_byte: int) -> Any:
    """The library's reader for blocks that carry a checksum, which Kafka never writes.

    It gets a header without the content size and checksum, which Kafka does not check.
    """
    from lz4 import frame

    header = bytes((0x40 | _FLAG_INDEPENDENT | _FLAG_BLOCK_CHECKSUM, block_byte))
    context = frame.create_decompression_context()
    frame.decompress_chunk(context, _MAGIC + header + bytes((header_checksum(header),)))
    return context


def _append_checked(
    data: memoryview, arena: Arena, blocks: list[_Block], block_bytes_max: int, checking: Any
) -> None:
    from lz4 import frame

    for start, end, _ in blocks:
        entry = data[start - 4 : end + 4]
        try:
            # One byte more than a block can hold, so that its checksum is read in this call.
            output, consumed, _ = frame.decompress_chunk(
                checking, entry, max_length=block_bytes_max + 1
            )
        except RuntimeError as error:
            raise DecompressionError(f"lz4: bad block at byte {start}") from error
        if consumed != len(entry):
            raise DecompressionError(f"lz4: bad block at byte {start}")
        arena.append(output)


def header_checksum(descriptor: bytes) -> int:
    """The HC byte of a frame descriptor: FLG, BD and the content size if there is one.

    Example:
        >>> hex(header_checksum(bytes.fromhex("6040")))
        '0x82'
    """
    return xxh32_short(descriptor) >> 8 & 0xFF


__all__ = ["header_checksum", "inflate", "xxh32_short"]
