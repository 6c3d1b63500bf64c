"""Zstandard frames: where each one ends is told here, what it holds by the library.

    frame       magic u32 (28 B5 2F FD), FHD, [window], [dictionary id], [content size], block*,
                [checksum u32]
    FHD         content size flag (bits 7-6), single segment (5), checksum (2), dictionary id (1-0)
    block       u24: last (bit 0), type (2-1: raw, RLE, compressed, reserved), size (23-3); bytes
    skippable   magic u32 (5x 2A 4D 18), size u32, bytes

The library's streaming reader does not tell a stream that ended from one that was cut, and its
one-shot call allocates what a header declares; so the frames are walked first, block by block,
without allocating anything. Integers are little-endian. Source: RFC 8878 3.1.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from kseg.errors import DecompressionError
from kseg.format.arena import Arena

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_CUT = "zstd: the frame is cut short"
_HEADER_BYTES_MIN, _HEADER_BYTES_MAX = 6, 18
_BLOCK_BYTES_MAX = 1 << 17
_RLE = 1 << 1
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
#: A decompressor that has met a larger window holds that much memory: it is not kept.
_WINDOW_KEPT_MAX = 8 << 20
_FIRST_READ = 1 << 16
#: Ordinary data shrinks less than this; what shrinks more pays with a few copies while growing.
_USUAL_EXPANSION = 8

_local = threading.local()


class _Extent(NamedTuple):
    """What the headers of all frames say together."""

    output_max: int
    window_max: int


class _FrameHeader(NamedTuple):
    size: int
    window: int
    trailer_bytes: int


def inflate(data: memoryview, arena: Arena) -> None:
    """Append what the frames hold, one after another; no frame at all is empty output.

    Raises:
        DecompressionError: a frame is cut, bytes behind the last one are no frame, or the library
            refuses the contents.
        LimitExceededError: the arena's ceiling.
    """
    extent = _walk(data)
    decompressor = _decompressor(extent.window_max)
    start = arena.used
    size = min(extent.output_max + 1, _USUAL_EXPANSION * len(data) + _FIRST_READ)
    try:
        with decompressor.stream_reader(data, read_across_frames=True) as reader:
            while True:
                space = arena.free(min(size, arena.room + 1))
                written = reader.readinto(space)
                arena.commit(written)
                if written < len(space):
                    return
                size = max(_FIRST_READ, arena.used - start)
    except _library().ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error


def _walk(data: memoryview) -> _Extent:
    """Find the end of every frame.

    Raises:
        DecompressionError: the last frame is cut short, or the bytes there start no frame.
    """
    position = output_max = window_max = 0
    while position < len(data):
        head = bytes(data[position : position + _HEADER_BYTES_MAX])
        number = int.from_bytes(head[:4], "little")
        if number & ~0xF == _SKIPPABLE and len(head) >= 8:
            position = _within(data, position + 8 + int.from_bytes(head[4:8], "little"))
            continue
        if number != _MAGIC:
            raise DecompressionError(f"zstd: no frame at byte {position}")
        header = _read_header(head)
        end, output = _walk_blocks(data, position + header.size, header.window)
        position = _within(data, end + header.trailer_bytes)
        output_max += output
        window_max = max(window_max, header.window)
    return _Extent(output_max, window_max)


def _read_header(head: bytes) -> _FrameHeader:
    """Take apart what stands in front of a frame's blocks."""
    if len(head) < _HEADER_BYTES_MIN:
        raise DecompressionError(_CUT)
    descriptor, window_byte = head[4], head[5]
    single_segment = descriptor & 0x20
    content_size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or single_segment >> 5
    size = (5 if single_segment else 6) + _DICTIONARY_ID_BYTES[descriptor & 3]
    if len(head) < size + content_size_bytes:
        raise DecompressionError(_CUT)
    if single_segment:  # its window is all of its content
        window = int.from_bytes(head[size : size + content_size_bytes], "little")
    else:
        window = (1 << 10 + (window_byte >> 3)) // 8 * (8 + (window_byte & 7))
    size += content_size_bytes
    return _FrameHeader(size, window, 4 if descriptor & 0x04 else 0)


def _walk_blocks(data: memoryview, position: int, window: int) -> tuple[int, int]:
    """The end of a frame's last block, and the most bytes its blocks can become."""
    blocks, last = 0, 0
    while not last:
        if position + 3 > len(data):
            raise DecompressionError(_CUT)
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last = word & 1
        position += 3 + (1 if word & 6 == _RLE else word >> 3)
        blocks += 1
    return _within(data, position), blocks * min(max(window, 256), _BLOCK_BYTES_MAX)


def _within(data: memoryview, position: int) -> int:
    if position > len(data):
        raise DecompressionError(_CUT)
    return position


def _decompressor(window: int) -> Any:
    """This thread's decompressor: one shared by two threads crashes the process.

    A kept one is 1.5 times as fast for small batches. It is asked for its process, since a child
    after a fork must not go on in memory that its parent may have been changing.
    """
    new = _library().ZstdDecompressor
    if window > _WINDOW_KEPT_MAX:
        return new()
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid, _local.decompressor = os.getpid(), new()
    return _local.decompressor


@cache
def _library() -> ModuleType:
    import zstandard

    return zstandard
