"""Compressed streams for the codec tests, made by hand or by others, byte for byte known."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.block

from kseg.format.codec import decompress, xxh32
from tests.zstd import zstd_frame

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TEXT = b"the quick brown fox jumps over the lazy dog, again and again and again; " * 20
LIMIT = 1 << 24
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def inflate(codec: int, data: bytes, *, magic: int = 2, limit: int = LIMIT) -> bytes:
    return bytes(decompress(codec, data, magic=magic, limit=limit))


def gzip_of(data: bytes) -> bytes:
    squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
    return squeeze.compress(data) + squeeze.flush()


def gzip_with_fields(data: bytes, flags: int, fields: bytes) -> bytes:
    plain = gzip_of(data)
    return plain[:3] + bytes((flags,)) + plain[4:10] + fields + plain[10:]


def chunk(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block


def snappy_of(data: bytes, block: int = 32768) -> bytes:
    cuts = range(0, len(data), block)
    return XERIAL + b"".join(chunk(data[at : at + block]) for at in cuts)


def lz4_header(
    *,
    flags: int = 0x60,
    block_byte: int = 0x40,
    content_size: bytes = b"",
    check: int | None = None,
) -> bytes:
    descriptor = bytes((flags, block_byte)) + content_size
    checksum = xxh32(descriptor) >> 8 & 0xFF if check is None else check
    return b"\x04\x22\x4d\x18" + descriptor + bytes((checksum,))


def lz4_block(data: bytes, *, stored: bool = False) -> bytes:
    block = data if stored else lz4.block.compress(data, store_size=False)
    return struct.pack("<I", len(block) | (0x80000000 if stored else 0)) + block


END = bytes(4)


def lz4_of(data: bytes, *, magic: int = 2) -> bytes:
    header = lz4_header(check=0x1A if magic == 0 else None)
    blocks = (lz4_block(data[at : at + 65536]) for at in range(0, len(data), 65536))
    return header + b"".join(blocks) + END


def zstd_of(data: bytes, *, level: int = 3, checksum: bool = False) -> bytes:
    """As Kafka writes: streamed, without a content size."""
    return zstd_frame(data, level=level, checksum=checksum)


def zstd_sized(data: bytes) -> bytes:
    return zstd_frame(data, sized=True, checksum=True)


MAKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip_of,
    "snappy": snappy_of,
    "lz4": lz4_of,
    "zstd": zstd_of,
}
