"""Zstandard frames: a kernel finds where each one ends, the library inflates it.

    frame       magic u32 (28 B5 2F FD), FHD, [window], [dictionary id], [content size], block*,
                [checksum u32]
    FHD         content size flag (bits 7-6), single segment (5), checksum (2), dictionary id (1-0)
    block       u24: last (bit 0), type (2-1: raw, RLE, compressed, reserved), size (23-3); bytes
    skippable   magic u32 (5x 2A 4D 18), size u32, bytes

The library's streaming reader does not distinguish a stream that ended from one that was cut, and
its one-shot call allocates what a header declares. So `kseg._kernels.frames` walks them first,
block by block, and allocates nothing. Integers are little-endian. Source: RFC 8878 3.1.
"""

from __future__ import annotations

from typing import Any

from kseg._kernels.frames import zstd_extent
from kseg.errors import DecompressionError
from kseg.format._zstandard import kept, library
from kseg.format.arena import Arena

_CUT = "zstd: the frame is cut short"
#: A decompressor that has met a larger window holds that much memory: it is not kept.
_WINDOW_KEPT_MAX = 8 << 20
_FIRST_READ = 1 << 16
#: A lone frame that cannot become more is inflated in one call, which spares making a reader.
_AT_ONCE_MAX = 1 << 18
#: Ordinary data shrinks less than this; what shrinks more pays with a few copies while growing.
_USUAL_EXPANSION = 8


def inflate(data: memoryview, arena: Arena, magic: int = 2) -> None:
    """Append what the frames hold, one after another; no frame at all is empty output.

    Raises:
        DecompressionError: a frame is cut, bytes behind the last one are no frame, or the library
            refuses the contents.
        LimitExceededError: the arena's ceiling.
    """
    status, position, output_max, window_max, single = zstd_extent(data)
    if status:
        raise DecompressionError(_CUT if status == 1 else f"zstd: no frame at byte {position}")
    if _is_small(output_max, arena.ceiling - arena.used, single=single):
        arena.append(_whole(data, output_max, window_max))
        return
    try:
        _stream(_decompressor(window_max), data, arena, output_max)
    except library().ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error


def inflate_at_once(data: memoryview, limit: int) -> bytes | None:
    """What a lone frame of few blocks holds; None for other bytes, and where it may be too much.

    Raises:
        DecompressionError: the library refuses the contents.
    """
    status, _, output_max, window_max, single = zstd_extent(data)
    if status or not _is_small(output_max, limit, single=single):
        return None
    return _whole(data, output_max, window_max)


def _is_small(output_max: int, limit: int, *, single: bool) -> bool:
    """Whether what one frame can become at most bounds what a single call allocates."""
    return single and output_max <= _AT_ONCE_MAX and output_max <= limit


def _whole(data: memoryview, output_max: int, window: int) -> bytes:
    try:
        made: bytes = _decompressor(window).decompress(data, output_max)
    except library().ZstdError as error:
        raise DecompressionError(f"zstd: {error}") from error
    return made


def _stream(decompressor: Any, data: memoryview, arena: Arena, output_max: int) -> None:
    start = arena.used
    size = min(output_max, arena.room, _USUAL_EXPANSION * len(data) + _FIRST_READ) + 1
    reader = decompressor.stream_reader(data, read_across_frames=True)
    while True:
        written = reader.readinto(arena.free(size))
        arena.commit(written)
        if written < size:
            return
        size = min(max(_FIRST_READ, arena.used - start), arena.room + 1)


def _decompressor(window: int) -> Any:
    """This thread's decompressor; a kept one is 1.5 times as fast for small batches."""
    new = library().ZstdDecompressor
    if window > _WINDOW_KEPT_MAX:
        return new()
    try:
        return kept.decompressor
    except AttributeError:
        kept.decompressor = new()
        return kept.decompressor
