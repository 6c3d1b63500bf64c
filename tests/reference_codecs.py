"""Checksums and codecs for `tests/reference.py`, written to be read, not to be fast.

Whole bodies in, whole bodies out. The block formats come from libraries; everything that Kafka
decides for itself (which frames are good, what may follow them) is written out here.
"""

from __future__ import annotations

import zlib
from struct import unpack_from

import cramjam
import lz4.block

from tests.zstd import zstd


class RefusedError(Exception):
    """Bytes that a reader must not accept.

    `kind` is `corrupt` (length, magic or CRC), `invalid` (contents), `codec` (compressed data) or
    `unsupported` (a codec id or version that means nothing).
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind


# Checksums


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _crc32c_table()


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC-32C (Castagnoli), a byte at a time."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value = _CRC32C[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def crc32(data: bytes) -> int:
    """CRC-32 as in gzip."""
    return zlib.crc32(data)


def _rotate(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return ((value << by) | (value >> (32 - by))) & 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """XxHash32 with seed 0, for the checksums in lz4 frames."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    position = 0
    if len(data) >= 16:
        lanes = [(p1 + p2) & 0xFFFFFFFF, p2, 0, -p1 & 0xFFFFFFFF]
        while len(data) - position >= 16:
            for lane, word in enumerate(unpack_from("<4I", data, position)):
                lanes[lane] = _rotate(lanes[lane] + word * p2, 13) * p1 & 0xFFFFFFFF
            position += 16
        total = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = p5
    total += len(data)
    while len(data) - position >= 4:
        total = _rotate(total + unpack_from("<I", data, position)[0] * p3, 17) * p4
        position += 4
    for byte in data[position:]:
        total = _rotate(total + byte * p5, 11) * p1
    total &= 0xFFFFFFFF
    total = (total ^ (total >> 15)) * p2 & 0xFFFFFFFF
    total = (total ^ (total >> 13)) * p3 & 0xFFFFFFFF
    return total ^ (total >> 16)


# Codecs


def gunzip(data: bytes) -> bytes:
    """One or more gzip members; what follows the last and is no member is ignored."""
    out = []
    while True:
        member = zlib.decompressobj(wbits=-15)
        start = _gzip_header(data)
        try:
            out.append(member.decompress(data[start:]))
        except zlib.error as error:
            raise RefusedError("codec", f"gzip: {error}") from None
        rest = member.unused_data
        if not member.eof or len(rest) < 8:
            raise RefusedError("codec", "gzip: data ends inside a member")
        if unpack_from("<II", rest) != (crc32(out[-1]), len(out[-1]) & 0xFFFFFFFF):
            raise RefusedError("codec", "gzip: trailer does not match")
        data = rest[8:]
        if data[:3] != b"\x1f\x8b\x08":
            return b"".join(out)


def _gzip_header(data: bytes) -> int:
    """Bytes of a member's header. Flag bits without a meaning have none here either, as in Java."""
    if data[:3] != b"\x1f\x8b\x08" or len(data) < 10:
        raise RefusedError("codec", "gzip: not a member")
    flags, at = data[3], 10
    if flags & 0x04:
        at += 2 + unpack_from("<H", data + bytes(2), at)[0]
    for bit in (0x08, 0x10):  # name and comment, each ended by a zero
        if flags & bit:
            at = data.find(b"\0", at) + 1 or len(data)
    if flags & 0x02:
        if data[at : at + 2] != (crc32(data[:at]) & 0xFFFF).to_bytes(2, "little"):
            raise RefusedError("codec", "gzip: header checksum")
        at += 2
    return at


XERIAL = b"\x82SNAPPY\x00"


def unsnappy(data: bytes) -> bytes:
    """Xerial stream, or one raw block where the stream's first 8 bytes are missing."""
    if len(data) < 16 or data[:8] != XERIAL:
        return _snappy_block(data)
    out, position = [], 16
    while len(data) - position >= 4:
        (size,) = unpack_from(">i", data, position)
        if data[position : position + 4] == XERIAL[:4]:
            position = _next_xerial_header(data, position)
            continue
        position += 4
        if size < 0 or size > len(data) - position:
            raise RefusedError(
                "codec", f"snappy: chunk of {size} bytes, {len(data) - position} left"
            )
        out.append(_snappy_block(data[position : position + size]))
        position += size
    return b"".join(out)


def _next_xerial_header(data: bytes, position: int) -> int:
    """A further header, as concatenated streams have it: all of it there, version at least 1."""
    if len(data) - position < 16:
        raise RefusedError("codec", "snappy: data ends inside a stream header")
    if unpack_from(">i", data, position + 8)[0] < 1:
        raise RefusedError("codec", "snappy: version of a further stream header below 1")
    return position + 16


def _snappy_block(data: bytes) -> bytes:
    # Three bytes of snappy make at most 64, so a declared size beyond that is a lie; the
    # library would allocate it.
    declared, shift = 0, 0
    for byte in data[:5]:
        declared |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if declared > 64 * len(data):
        raise RefusedError("codec", f"snappy: {len(data)} bytes cannot hold {declared}")
    try:
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise RefusedError("codec", f"snappy: {error}") from None


def unlz4(data: bytes, *, check_header: bool = True) -> bytes:
    """One lz4 frame as Kafka reads it; `check_header=False` for magic 0's wrong check byte."""
    if len(data) < 7:
        raise RefusedError("codec", "lz4: data ends inside the frame header")
    if data[:4] != b"\x04\x22\x4d\x18":
        raise RefusedError("codec", "lz4: not a frame")
    flags, descriptor = data[4], data[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise RefusedError("codec", f"lz4: frame flags {flags:#04x}")
    code = (descriptor >> 4) & 7
    if descriptor & 0x8F or code < 4:
        raise RefusedError("codec", f"lz4: block descriptor {descriptor:#04x}")
    block_max = 1 << (2 * code + 8)
    position = 14 if flags & 0x08 else 6
    if len(data) <= position:
        raise RefusedError("codec", "lz4: data ends inside the frame header")
    if check_header and (xxh32(data[4:position]) >> 8) & 0xFF != data[position]:
        raise RefusedError("codec", "lz4: frame header check byte")
    return _lz4_blocks(data, position + 1, flags, block_max)


def _lz4_blocks(data: bytes, position: int, flags: int, block_max: int) -> bytes:
    out = []
    while True:
        if len(data) - position < 4:
            raise RefusedError("codec", "lz4: data ends before the end mark")
        (word,) = unpack_from("<I", data, position)
        position += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            break
        if size > block_max:
            raise RefusedError("codec", f"lz4: block of {size} bytes, {block_max} at most")
        if size + (4 if flags & 0x10 else 0) > len(data) - position:
            raise RefusedError("codec", "lz4: data ends inside a block")
        block = data[position : position + size]
        position += size
        if flags & 0x10:
            if xxh32(block) != unpack_from("<I", data, position)[0]:
                raise RefusedError("codec", "lz4: block checksum")
            position += 4
        out.append(block if word >> 31 else _lz4_block(block, block_max))
    if flags & 0x04 and len(data) - position < 4:
        raise RefusedError("codec", "lz4: data ends before the content checksum")
    return b"".join(out)


def _lz4_block(block: bytes, block_max: int) -> bytes:
    try:
        return lz4.block.decompress(block, uncompressed_size=block_max)
    except lz4.block.LZ4BlockError as error:
        raise RefusedError("codec", f"lz4: {error}") from None


def unzstd(data: bytes) -> bytes:
    """Zero or more zstd frames to the last byte."""
    out = []
    while data:
        frame = zstd.ZstdDecompressor()
        try:
            out.append(frame.decompress(data))
        except zstd.ZstdError as error:
            raise RefusedError("codec", f"zstd: {error}") from None
        if not frame.eof:
            raise RefusedError("codec", "zstd: data ends inside a frame")
        data = frame.unused_data
    return b"".join(out)


def inflate(codec: int, data: bytes, *, magic: int) -> bytes:
    """The plain bytes of a body; `codec` is the number in the attributes."""
    if codec == 0:
        return data
    if codec == 1:
        return gunzip(data)
    if codec == 2:
        return unsnappy(data)
    if codec == 3:
        return unlz4(data, check_header=magic > 0)
    if codec == 4:
        return unzstd(data)
    raise RefusedError("unsupported", f"codec {codec}")
