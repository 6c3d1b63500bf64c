"""Change bytes so that they hurt: blindly, or with the knowledge to get past the checks.

A mutator is a function of bytes and a source of randomness, so that one number repeats a case.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from random import Random

import cramjam
import google_crc32c
import lz4.frame

from tests.fuzz.seeds import entries
from tests.zstd import zstd, zstd_frame

Mutation = Callable[[bytearray, Random, Sequence[bytes]], None]

BYTES_MAX = 1 << 16
_LIES = (0, 1, -1, 2, 5, 7, 13, 14, 15, 48, 49, 50, 61, 127, 128, 255, 256, 32767, -32768, 65535)
_LIMITS = (2**31 - 1, -(2**31), 2**31 - 13, 2**32 - 1, 2**63 - 1, -(2**63), 2**62, 2**40)
#: Position and size of each field of a magic 2 header.
_FIELDS = (
    *((0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8)),
    *((35, 8), (43, 8), (51, 2), (53, 4), (57, 4)),
)


def number(source: Random) -> int:
    """An integer near a boundary more often than not."""
    if source.random() < 0.2:
        return source.getrandbits(source.randrange(1, 64))
    return source.choice(_LIES + _LIMITS) + source.choice((0, 0, 0, 1, -1))


def packed(value: int, size: int, order: str = "big") -> bytes:
    """The low `size` bytes of an integer."""
    return (value % (1 << 8 * size)).to_bytes(size, order)  # type: ignore[arg-type]


def varint(value: int, source: Random | None = None) -> bytes:
    """A zig-zag varint; with a source perhaps longer than needed, or too long."""
    raw = (value << 1 ^ value >> 63) % (1 << 64)
    stretch = source.choice((0, 0, 1, 3, 9)) if source else 0
    out = bytearray()
    while raw > 0x7F or stretch:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
        stretch -= stretch > 0
    return bytes([*out, raw])


# Blind mutations: any kind of bytes.


def _span(data: bytearray, source: Random) -> tuple[int, int]:
    start = source.randrange(len(data) + 1)
    return start, min(len(data), start + int(2 ** source.uniform(0, 9)))


def flip_bits(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    for _ in range(source.choice((1, 1, 1, 2, 8)) if data else 0):
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def set_bytes(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    for _ in range(source.choice((1, 1, 2, 4)) if data else 0):
        data[source.randrange(len(data))] = source.choice((0, 1, 0x7F, 0x80, 0xFF, 0x20, 0x0A))


def set_number(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    size = source.choice((1, 2, 4, 8))
    start = source.randrange(len(data) + 1)
    data[start : start + size] = packed(number(source), size, source.choice(("big", "little")))


def put_varint(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    start = source.randrange(len(data) + 1)
    data[start : start + source.randrange(3)] = varint(number(source), source)


def cut(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    del data[source.randrange(len(data) + 1) :]


def drop(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    start, end = _span(data, source)
    del data[start:end]


def repeat(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    start, end = _span(data, source)
    data[start:start] = data[start:end] * source.choice((1, 1, 2, 16))


def zero(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    start, end = _span(data, source)
    data[start:end] = bytes(end - start)


def insert(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    start = source.randrange(len(data) + 1)
    data[start:start] = source.randbytes(source.choice((1, 2, 4, 12, 61, 300)))


def splice(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    other = bytearray(source.choice(others))
    start, end = _span(other, source)
    at, stop = _span(data, source)
    data[at : source.choice((at, stop, len(data)))] = other[
        start : source.choice((end, len(other)))
    ]


def extend(data: bytearray, source: Random, others: Sequence[bytes]) -> None:
    data += source.choice((bytes(source.randrange(1, 64)), source.choice(others)))


BLIND: tuple[Mutation, ...] = (
    *(flip_bits, set_bytes, set_number, put_varint, cut, drop, repeat, zero, insert, splice),
    extend,
)


def blind(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """A few blind mutations in a row."""
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 1, 2, 3, 6))):
        source.choice(BLIND)(changed, source, others)
        del changed[BYTES_MAX:]
    return bytes(changed)


def _rests(others: Sequence[bytes], start: int, source: Random) -> list[bytes]:
    """A few of the others without their beginnings."""
    return [source.choice(others)[start:] or b"\0" for _ in range(4)]


# Mutations that know batches: what they change gets past sizes, checksums and codecs.


def deflate(codec: int, data: bytes, source: Random, magic: int = 2) -> bytes:
    """Compress as some producer might; a codec that does not exist leaves the bytes alone."""
    match codec:
        case 1:
            return gzip.compress(data, compresslevel=1, mtime=0)
        case 2 if source.random() < 0.5:
            return bytes(cramjam.snappy.compress_raw(data))
        case 2:
            half = len(data) // 2
            chunks = [
                bytes(cramjam.snappy.compress_raw(part)) for part in (data[:half], data[half:])
            ]
            framed = b"".join(packed(len(chunk), 4) + chunk for chunk in chunks)
            return b"\x82SNAPPY\0" + packed(1, 4) + packed(1, 4) + framed
        case 3:
            return lz4.frame.compress(
                data, block_linked=False, content_checksum=False, store_size=source.random() < 0.2
            )
        case 4:
            return zstd_frame(data, sized=source.random() < 0.8)
    return data


def _inflated(codec: int, data: bytes) -> bytes | None:
    """What a batch of a seed holds; None where it is not whole."""
    try:
        match codec:
            case 0:
                return data
            case 1:
                return zlib.decompressobj(31).decompress(data, BYTES_MAX)
            case 2 if data[:8] == b"\x82SNAPPY\0":
                parts, at = [], 16
                while len(data) - at > 4:
                    size = int.from_bytes(data[at : at + 4], "big")
                    parts.append(_raw_snappy(data[at + 4 : at + 4 + size]))
                    at += 4 + size
                return b"".join(parts)
            case 2:
                return _raw_snappy(data)
            case 3:
                return lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=BYTES_MAX)
            case 4:
                return zstd.ZstdDecompressor().decompress(data, BYTES_MAX)
    except (zlib.error, RuntimeError, ValueError, cramjam.DecompressionError, zstd.ZstdError):
        return None
    return None


def _raw_snappy(data: bytes) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > BYTES_MAX:
        raise ValueError("too long")
    return bytes(cramjam.snappy.decompress_raw(data))


def seal(batch: bytearray) -> None:
    """Make size and checksum of one batch or message right."""
    batch[8:12] = packed(len(batch) - 12, 4)
    if batch[16] < 2:
        batch[12:16] = packed(zlib.crc32(batch[16:]), 4)
    else:
        batch[17:21] = packed(google_crc32c.value(bytes(batch[21:])), 4)


def _change_header(batch: bytearray, source: Random) -> None:
    position, size = source.choice(_FIELDS)
    batch[position : position + size] = packed(number(source), size)


def _change_attributes(batch: bytearray, source: Random) -> None:
    at = 22 if batch[16] > 1 else 17
    batch[at] = source.choice((batch[at] ^ 1 << source.randrange(7), source.randrange(64)))


def _change_body(batch: bytearray, source: Random, others: Sequence[bytes]) -> None:
    """Mutate the records, inflated where they are compressed, and compress them again."""
    codec = batch[22] & 7
    records = _inflated(codec, bytes(batch[61:]))
    if records is None:
        batch[61:] = blind(bytes(batch[61:]), source, others)
        return
    changed = blind(records, source, _rests(others, 61, source))
    if source.random() < 0.3:
        codec = source.randrange(6)
        batch[22] = batch[22] & ~7 | codec
    batch[61:] = deflate(codec, changed, source)


def _change_wrapper(message: bytearray, source: Random, others: Sequence[bytes]) -> None:
    """Mutate the messages inside a magic 0 or 1 message, or make it a wrapper of some."""
    at = 30 if message[16] else 22
    codec = message[17] & 7
    value = _inflated(codec, bytes(message[at + 4 :])) if codec else None
    if value is None and (codec or source.random() < 0.5):
        message[18:] = blind(bytes(message[18:]), source, others)
        return
    inner = blind(value if value is not None else source.choice(others), source, others)
    if source.random() < 0.8:
        inner = sealed_all(inner)
    codec = codec or source.randrange(1, 5)
    message[17] = message[17] & ~7 | codec
    packed_set = deflate(codec, inner, source, message[16])
    message[at - 4 :] = packed(-1, 4) + packed(len(packed_set), 4) + packed_set


def sealed_all(data: bytes) -> bytes:
    """Every entry's checksum made right; sizes stay."""
    fixed = bytearray(data)
    for start, end in entries(data):
        entry = fixed[start:end]
        seal(entry)
        fixed[start:end] = entry
    return bytes(fixed)


def log(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """Mutate one batch of a log and, mostly, make its size and checksum right again."""
    found = entries(data)
    if not found or source.random() < 0.15:
        return blind(data, source, others)
    start, end = source.choice(found)
    batch = bytearray(data[start:end])
    for _ in range(source.choice((1, 1, 2, 3))):
        match source.randrange(8):
            case 0:
                _change_header(batch, source)
            case 1:
                _change_attributes(batch, source)
            case _ if batch[16] < 2 and len(batch) > 34:
                _change_wrapper(batch, source, others)
            case _ if len(batch) > 61:
                _change_body(batch, source, others)
            case _:
                batch[17:] = blind(bytes(batch[17:]), source, others)
        if len(batch) < 26:
            break
    if len(batch) >= 26 and source.random() < 0.9:
        seal(batch)
    return (data[:start] + bytes(batch) + data[end:])[:BYTES_MAX]


def _entries_07(data: bytes) -> list[tuple[int, int]]:
    found, start = [], 0
    while len(data) - start >= 9:
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        if not start + 9 <= end <= len(data):
            break
        found.append((start, end))
        start = end
    return found


def _seal_07(message: bytearray) -> None:
    payload = 10 if message[4] else 9
    message[0:4] = packed(len(message) - 4, 4)
    message[payload - 4 : payload] = packed(zlib.crc32(message[payload:]), 4)


def kafka07(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """Mutate a message of Kafka 0.7, perhaps the set inside it."""
    found = _entries_07(data)
    if not found or source.random() < 0.15:
        return blind(data, source, others)
    start, end = source.choice(found)
    message = bytearray(data[start:end])
    if message[4] == 1 and len(message) > 10:
        inner = _inflated(message[5] & 3, bytes(message[10:]))
        if inner is not None:
            depth = source.choice((0, 1, 1, 1, 2, 10))
            message[5] = source.randrange(1, 3) if depth else source.randrange(5)
            changed = kafka07(inner, source, others) if depth else blind(inner, source, others)
            for _ in range(depth):
                wrapped = bytearray(b"\0\0\0\0\x01\0\0\0\0\0")
                wrapped[5] = message[5]
                wrapped += deflate(message[5], changed, source)
                _seal_07(wrapped)
                changed = bytes(wrapped)
            message = bytearray(changed) if depth else message[:10] + changed
    if len(message) > 4 and source.random() < 0.5:
        message[4:] = blind(bytes(message[4:]), source, others)
    if len(message) >= 10 and source.random() < 0.9:
        _seal_07(message)
    return (data[:start] + bytes(message) + data[end:])[:BYTES_MAX]


def codec(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """Mutate a compressed stream; the leading byte says whose it is."""
    kind, stream = data[:1] or b"\x21", data[1:]
    if source.random() < 0.1:
        kind = bytes([source.randrange(4) << 4 | source.randrange(8)])
    if source.random() < 0.1:
        bomb = deflate(kind[0] & 7, bytes(source.choice((1 << 16, 1 << 20, 1 << 22))), source)
        return kind + (bomb if source.random() < 0.5 else stream + bomb)
    return kind + blind(stream, source, _rests(others, 1, source))


def snapshot(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """Mutate a producer snapshot, mostly with the right checksum."""
    changed = bytearray(blind(data, source, others))
    if len(changed) > 6 and source.random() < 0.8:
        changed[0:2] = packed(1, 2)
        changed[2:6] = packed(google_crc32c.value(bytes(changed[6:])), 4)
    return bytes(changed)


_LINES = (
    b"0",
    b"1",
    b"-1",
    b"0 0",
    b"1 5 9",
    b"\xff",
    b" ",
    b"2147483648 1",
    b"1 99999999999999999999",
)


def text(data: bytes, source: Random, others: Sequence[bytes]) -> bytes:
    """Mutate a file of lines."""
    if source.random() < 0.4:
        return blind(data, source, others)
    lines = data.split(b"\n")
    at = source.randrange(len(lines))
    lines[at : at + source.randrange(2)] = [source.choice((*_LINES, *lines))] * source.choice(
        (1, 2)
    )
    return b"\n".join(lines)


MUTATORS: dict[str, Callable[[bytes, Random, Sequence[bytes]], bytes]] = {
    "log": log,
    "kafka07": kafka07,
    "codec": codec,
    "lines": blind,
    "snapshot": snapshot,
    "index": blind,
    "timeindex": blind,
    "txnindex": blind,
    "epochs": text,
    "offsets": text,
    "partition_metadata": text,
    "meta_properties": text,
}
