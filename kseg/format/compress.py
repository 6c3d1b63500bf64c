"""Compress batches and wrapper messages, in the framings that Kafka writes.

    gzip     one member: no name, time 0, extra flags 0, system 0xFF
    snappy   xerial header, then blocks of 32768 bytes, each after its compressed size (i32)
    lz4      frame of independent 64 KiB blocks without sizes or checksums; header checksum by magic
    zstd     one frame, without content size or checksum

The libraries choose the contents of blocks, as Kafka's do: compare the inflated bytes, never the
compressed ones. Libraries are loaded on first use and work with the GIL released. `codec` inflates.

Source: Kafka CompressionType, GzipCompression, SnappyCompression, Lz4Compression,
Lz4BlockOutputStream (KafkaLZ4BlockOutputStream once), ZstdCompression.

How well records compress, learnt from batches already written.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache
from struct import Struct
from typing import Any

import numpy as np

from kseg._core import crc32
from kseg.constants import Buffer, Compression
from kseg.errors import UnsupportedFormatError
from kseg.extras import check_memory
from kseg.format.codec import flat, zstd_kept, zstd_library

#: The least and the greatest level of each codec that has levels.
LEVELS = {
    Compression.GZIP: (1, 9),
    Compression.LZ4: (1, 17),
    Compression.ZSTD: (-131072, 22),
}
#: The level at which Kafka takes lz4's fast compressor; any other level is of the slow one.
LZ4_FAST_LEVEL = 9

_GZIP_HEADER = bytes.fromhex("1f8b08000000000000ff")
_GZIP_TRAILER = Struct("<II")
_GZIP_DEFAULT = -1
_RAW_DEFLATE = -15
_SNAPPY_HEADER = b"\x82SNAPPY\x00" + bytes((0, 0, 0, 1)) * 2
_SNAPPY_BLOCK_BYTES = 32768
_SNAPPY_SIZE = Struct(">i")
#: Magic, FLG 60, BD 40; the header checksum follows, over more than it should be for magic 0.
_LZ4_DESCRIPTOR = bytes.fromhex("04224d186040")
_LZ4_CHECKS = {0: b"\x1a", 1: b"\x82", 2: b"\x82"}
_LZ4_BLOCK_BYTES = 1 << 16
_LZ4_SIZE = Struct("<I")
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)
_ZSTD_DEFAULT = 3
#: The library's output for empty input: a frame with its size, in one empty block.
_ZSTD_EMPTY = bytes.fromhex("28b52ffd2000010000")
#: Longer input leaves a compressor of a level above this with more than 8 MiB, too much to keep.
_ZSTD_MODEST_INPUT = 1 << 17
_ZSTD_KEPT_LEVEL_MAX = 8
#: Levels for which a thread keeps a compressor; a process seldom has more than one.
_ZSTD_KEPT_LEVELS_MAX = 8


def compress(kind: int, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """Compress one batch body (magic 2) or one set of inner messages (magic 0 and 1).

    Args:
        kind: codec, 0 to 4.
        data: contiguous bytes; empty input gives Kafka's empty stream.
        magic: the version of the batch or message; 0 has a header checksum of its own for lz4.
        level: the level of the codec; None for Kafka's default.

    Returns:
        The compressed bytes; for codec 0 a copy (or `data` itself where that is `bytes`).

    Raises:
        ValueError: the codec is unknown, this magic lacks it, or a level is out of range.
        UnsupportedFormatError: the codec's library is not installed.

    Example:
        >>> compress(Compression.LZ4, b"to be or not to be")[:7].hex()
        '04224d18604082'
    """
    if level is not None:
        check_level(kind, level)
    squeeze = _COMPRESSORS.get(kind)
    if squeeze is None:
        raise ValueError(f"no codec has the number {kind}")
    if magic < 2 and kind == Compression.ZSTD:
        raise ValueError(f"magic {magic} has no zstd compression")
    try:
        return squeeze(data, level, magic)
    except ImportError as error:
        check_memory(error)
        name = Compression(kind).label
        raise UnsupportedFormatError(f"{name} needs a missing library: {error}") from error


def check_level(kind: int, level: int) -> None:
    """Refuse a level that the codec does not have.

    Raises:
        ValueError: the codec has no levels, or the level is out of its range.
    """
    name = Compression(kind).label
    if kind not in LEVELS:
        raise ValueError(f"{name} has no levels")
    least, greatest = LEVELS[Compression(kind)]
    if not least <= level <= greatest and not (kind == Compression.GZIP and level == -1):
        raise ValueError(f"{name} has levels {least} to {greatest}, not {level}")


def compression_named(name: str) -> Compression:
    """The codec of a name, which is in lower case.

    Raises:
        ValueError: no codec has that name.

    Example:
        >>> compression_named("zstd")
        <Compression.ZSTD: 4>

    Source: Kafka CompressionType.forName.
    """
    try:
        return _NAMES[name]
    except KeyError:
        raise ValueError(
            f"no codec is called {name!r}; the names are {', '.join(_NAMES)}"
        ) from None


def _copy(data: Buffer, level: int | None, magic: int) -> bytes:
    return bytes(data)


# gzip: RFC 1952. Of the libraries only zlib has the nine levels.


def _gzip(data: Buffer, level: int | None, magic: int) -> bytes:
    data = flat(data)
    body = zlib.compress(data, _GZIP_DEFAULT if level is None else level, _RAW_DEFLATE)
    trailer = _GZIP_TRAILER.pack(crc32(data), len(data) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEADER, body, trailer))


# snappy: the stream of snappy-java ("xerial").


def _snappy(data: Buffer, level: int | None, magic: int) -> bytes:
    """Compress as Kafka's clients do: blocks after a header of the Java library."""
    block_of = _snappy_block()
    parts = [_SNAPPY_HEADER]
    for piece in _pieces(flat(data), _SNAPPY_BLOCK_BYTES):
        block = block_of(piece)
        parts += _SNAPPY_SIZE.pack(len(block)), block
    return b"".join(parts)


def _pieces(data: Buffer, size: int) -> Iterator[Buffer]:
    """Consecutive pieces of this size, the last one may be shorter; none if there are no bytes."""
    if 0 < len(data) <= size:
        yield data
        return
    view = memoryview(data)
    for start in range(0, len(data), size):
        yield view[start : start + size]


@cache
def _snappy_block() -> Callable[..., bytes]:
    import snappy

    squeeze: Callable[..., bytes] = snappy.compress
    return squeeze


# lz4: LZ4 frame format 1.5. The frame is ours, around the library's blocks: its own frame writer
# takes a fifth more time, and has the fast compressor for levels 1 and 2 too.


def _lz4(data: Buffer, level: int | None, magic: int) -> bytes:
    """Compress into one frame; a block that compression does not shrink is stored as it is."""
    squeeze = _lz4_block()
    how: dict[str, Any] = {"store_size": False}
    if level is not None and level != LZ4_FAST_LEVEL:
        how |= {"mode": "high_compression", "compression": level}
    parts: list[Buffer] = [_LZ4_DESCRIPTOR, _LZ4_CHECKS[magic]]
    for piece in _pieces(flat(data), _LZ4_BLOCK_BYTES):
        block = squeeze(piece, **how)
        if len(block) < len(piece):
            parts += _LZ4_SIZE.pack(len(block)), block
        else:
            parts += _LZ4_SIZE.pack(len(piece) | _LZ4_STORED), piece
    parts.append(_LZ4_END)
    return b"".join(parts)


@cache
def _lz4_block() -> Callable[..., Any]:
    """The compressor of the package lz4; if that is missing, cramjam's, which has one level."""
    squeeze: Callable[..., Any]
    try:
        from lz4 import block
    except ImportError as error:
        check_memory(error)
        import cramjam

        squeeze = cramjam.lz4.compress_block
    else:
        squeeze = block.compress
    return squeeze


# zstd: RFC 8878.


def _zstd(data: Buffer, level: int | None, magic: int) -> bytes:
    """Compress into one frame.

    A compressor for a high level needs much memory, so it is dropped after a large input.
    """
    if not len(data):
        return _ZSTD_EMPTY
    if level is None:
        level = _ZSTD_DEFAULT
    compressor = _compressor(level)
    frame: bytes = compressor.compress(data, compressor.FLUSH_FRAME)
    if len(data) > _ZSTD_MODEST_INPUT and level > _ZSTD_KEPT_LEVEL_MAX:
        del zstd_kept.compressors[level]
    return frame


def _compressor(level: int) -> Any:
    """This thread's compressor for a level: making one takes as long as a small batch."""
    try:
        return zstd_kept.compressors[level]
    except (AttributeError, KeyError):
        levels = zstd_kept.__dict__.setdefault("compressors", {})
    if len(levels) >= _ZSTD_KEPT_LEVELS_MAX:
        levels.clear()
    zstd = zstd_library()
    named = zstd.CompressionParameter
    options = {named.compression_level: level, named.content_size_flag: False}
    levels[level] = zstd.ZstdCompressor(options=options)
    return levels[level]


_NAMES = {kind.label: kind for kind in Compression}
_COMPRESSORS: dict[int, Callable[[Buffer, int | None, int], bytes]] = {
    Compression.NONE: _copy,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}


_STEP_UP = np.float32(0.05)
_STEP_DOWN = np.float32(0.005)


class RatioEstimator:
    """Compressed by uncompressed size to expect, for each topic and codec; 1.0 at first.

    The estimate rises at once to an observed ratio and falls slowly: a batch that becomes too large
    costs more than one with free room. Numbers are of single precision, as Kafka's.

    Example:
        >>> ratios = RatioEstimator()
        >>> ratios.observe("orders", Compression.ZSTD, 0.25) < 1.0
        True
        >>> ratios.estimate("clicks", Compression.ZSTD)
        1.0

    Source: Kafka CompressionRatioEstimator.
    """

    def __init__(self) -> None:
        """Start without observations."""
        self._ratios: dict[tuple[str, Compression], np.float32] = {}

    def estimate(self, topic: str, compression: Compression) -> float:
        """The ratio to expect.

        Args:
            topic: its name.
            compression: the codec of the batch to come.

        Returns:
            Compressed by uncompressed size; 1.0 where nothing was observed.
        """
        return float(self._ratios.get((topic, compression), np.float32(1)))

    def observe(self, topic: str, compression: Compression, ratio: float) -> float:
        """Learn from a batch; the estimate moves towards its ratio.

        It goes up by 0.05 or as far as the ratio is, down by 0.005 and never below the ratio.

        Args:
            topic: its name.
            compression: the codec of the batch.
            ratio: `compression_ratio` of the batch.

        Returns:
            The new estimate.
        """
        seen = np.float32(ratio)
        now = self._ratios.get((topic, compression), np.float32(1))
        if seen > now:
            now = max(now + _STEP_UP, seen)
        elif seen < now:
            now = max(now - _STEP_DOWN, seen)
        self._ratios[topic, compression] = now
        return float(now)

    def forget(self, topic: str) -> None:
        """Reset the estimate of a topic to 1.0, for all codecs.

        Args:
            topic: its name; unknown names are ignored.
        """
        self._ratios = {key: r for key, r in self._ratios.items() if key[0] != topic}
