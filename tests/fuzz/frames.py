"""Compressed bodies in every framing that a codec has, sound and spoilt with knowledge of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cache
from random import Random

import cramjam
import lz4.block
import lz4.frame

from tests import builders
from tests.fuzz.mutate import number, packed
from tests.reference_codecs import XERIAL, xxh32
from tests.zstd import zstd_frame

#: What a bomb inflates to, more than `fuzz_columns` mostly lets through.
BOMB_BYTES = 1 << 18
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_SKIPPED, _ZSTD_SKIPPED = b"\x50\x2a\x4d\x18", b"\x53\x2a\x4d\x18"
_BEHIND = (b"\0", b"\0" * 3, b"\0" * 18, b"\xff" * 5, b"\x1f\x8b", b"behind the end of it all")


def _cut(frame: bytes, source: Random) -> bytes:
    return frame[: -source.choice((1, 2, 3, 4, 5, 8, 9, 12, 16, 1 + len(frame) // 2))]


def _flip(frame: bytes, source: Random) -> bytes:
    """A bit of the first bytes, where the headers are, or of any byte."""
    spoilt = bytearray(frame)
    most = source.choice((4, 12, 20, len(frame)))
    spoilt[source.randrange(min(most, len(frame)))] ^= 1 << source.randrange(8)
    return bytes(spoilt)


def _extend(frame: bytes, source: Random) -> bytes:
    return frame + source.choice((*_BEHIND, frame, frame[:7]))


def _raw_deflate(data: bytes, level: int = 1) -> bytes:
    squeeze = zlib.compressobj(level, zlib.DEFLATED, -15)
    return squeeze.compress(data) + squeeze.flush()


# ---- gzip: RFC 1952 ------------------------------------------------------------------------------


def _member(data: bytes, head: bytes = _GZIP_HEAD, level: int = 1, crc: int = 0) -> bytes:
    """One member; `crc` is added to its checksum."""
    trailer = packed(zlib.crc32(data) + crc, 4, "little") + packed(len(data), 4, "little")
    return head + _raw_deflate(data, level) + trailer


def _fields_in_head(data: bytes, source: Random) -> bytes:
    """A header with optional fields, its own checksum right or not."""
    flags = source.randrange(1, 64)
    head = bytearray(_GZIP_HEAD)
    head[3] = flags
    if flags & 4:
        head += packed(source.choice((0, 3, 4, 70)), 2, "little") + b"abc"
    head += b"name\0" * (flags >> 3 & 1) + b"why\0" * (flags >> 4 & 1)
    if flags & 2:
        head += packed(zlib.crc32(head) + source.choice((0, 0, 1)), 2, "little")
    return _member(data, bytes(head))


def _several_members(data: bytes, source: Random) -> bytes:
    at = source.randrange(len(data) + 1)
    parts = [_member(data[:at]), _member(data[at:])]
    if source.random() < 0.3:
        parts.insert(source.randrange(3), _member(b""))
    between = source.choice((b"", b"", b"", b"\0"))
    return between.join(parts)


def _wrong_trailer(data: bytes, source: Random) -> bytes:
    if source.random() < 0.5:
        return _member(data, crc=1)
    frame = _member(data)
    return frame[:-4] + packed(source.choice((len(data) + 1, 0, number(source))), 4, "little")


def _gzip(data: bytes, source: Random) -> bytes:
    way = source.choice((_fields_in_head, _several_members, _wrong_trailer, None))
    return way(data, source) if way else _member(data, level=source.choice((0, 1, 6)))


# ---- snappy: one block, or the stream of snappy-java ---------------------------------------------


def _block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _snappy(data: bytes, source: Random) -> bytes:
    if source.random() < 0.4:
        block = bytearray(_block(data))
        if source.random() < 0.5 and block:
            block[0] = (block[0] + source.choice((1, -1, 64))) % 256
        return bytes(block)
    step = source.choice((1 + len(data) // 2, 1 + len(data) // 3, 1 << 16))
    versions = packed(source.choice((1, 1, 1, 2, 0)), 4) + packed(source.choice((1, 1, 0)), 4)
    parts = [XERIAL, versions]
    for start in range(0, len(data), step):
        block = _block(data[start : start + step])
        size = len(block)
        if source.random() < 0.1:
            size = source.choice((0, size - 1, size + 1, -1, number(source)))
        if source.random() < 0.15:
            parts += [XERIAL, versions]
        parts += [packed(size, 4), block]
    return b"".join(parts)


# ---- lz4 -----------------------------------------------------------------------------------------


def _headed(flags: int, descriptor: int, size: bytes = b"") -> bytes:
    """A frame's header with a right check byte."""
    told = bytes([flags, descriptor]) + size
    return _LZ4_MAGIC + told + bytes([xxh32(told) >> 8 & 0xFF])


def _lz4_by_hand(data: bytes, source: Random) -> bytes:
    """Blocks with lies about flags, block size and content size, under a right check byte."""
    flags = source.choice((0x60, 0x60, 0x40, 0x64, 0x70, 0x68, 0x61, 0x62, 0xA0, 0x20))
    size = packed(source.choice((len(data), 0, number(source))), 8, "little")
    parts = [_headed(flags, source.choice((0x40, 0x40, 0x70, 0x30, 0xC0)), size * (flags >> 3 & 1))]
    step = 1 + len(data) // source.choice((1, 2))
    for start in range(0, len(data), step):
        plain = data[start : start + step]
        block = lz4.block.compress(plain, store_size=False)
        stored = source.random() < 0.4
        told = (1 << 31) * stored | len(plain if stored else block)
        told += source.choice((0,) * 12 + (1, -1, 1 << 17))
        parts += [packed(told, 4, "little"), plain if stored else block]
    return b"".join([*parts, source.choice((bytes(4), bytes(4), b"", bytes(3)))])


def _lz4(data: bytes, source: Random) -> bytes:
    if source.random() < 0.5:
        return _lz4_by_hand(data, source)
    frame = lz4.frame.compress(
        data,
        block_linked=source.random() < 0.3,
        content_checksum=source.random() < 0.3,
        block_checksum=source.random() < 0.3,
        store_size=source.random() < 0.3,
    )
    if source.random() < 0.1:
        skipped = _LZ4_SKIPPED + packed(source.choice((3, 4)), 4, "little") + b"skip"
        return source.choice((skipped + frame, frame + skipped))
    return bytes(frame)


# ---- zstd ----------------------------------------------------------------------------------------


def _zstd(data: bytes, source: Random) -> bytes:
    frame = zstd_frame(data, level=1, sized=source.random() < 0.5, checksum=source.random() < 0.3)
    match source.randrange(6):
        case 0:
            half = len(data) // 2
            return b"".join(zstd_frame(p, level=1, sized=True) for p in (data[:half], data[half:]))
        case 1:
            skipped = _ZSTD_SKIPPED + packed(source.choice((3, 4, 5)), 4, "little") + b"skip"
            return source.choice((skipped + frame, frame + skipped))
        case 2:
            spoilt = bytearray(frame)
            spoilt[source.choice((4, 5))] = source.randrange(256)  # flags, window or size
            return bytes(spoilt)
    return frame


# ---- any -----------------------------------------------------------------------------------------

_FRAMINGS: dict[int, Callable[[bytes, Random], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}


def sound(codec: int, data: bytes, magic: int = 2) -> bytes:
    """A body as producers write it."""
    if codec == 1:
        return _member(data)
    if codec == 4:
        return zstd_frame(data, level=1)
    return builders.deflate(codec, data, magic=magic)


@cache
def _bomb(codec: int) -> bytes:
    return sound(codec, bytes(BOMB_BYTES))


def spoilt(codec: int, data: bytes, source: Random) -> bytes:
    """A body in any framing of its codec, mostly with something wrong; codec 0 as it is."""
    framing = _FRAMINGS.get(codec)
    if framing is None:
        return data
    if source.random() < 0.01:
        return _bomb(codec) if source.random() < 0.5 else sound(codec, data) + _bomb(codec)
    frame = framing(data, source)
    spoil = source.choice((None, None, _cut, _flip, _flip, _extend))
    return spoil(frame, source) if spoil and frame else frame
