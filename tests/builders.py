"""Logs in one line, for tests: a small encoder of every format, in plain Python.

It writes what it is told, lies included: each header field can be given, and a checksum is right
unless it is given too. Offsets and timestamps are absolute; deltas are worked out.

    batch([record(b"a"), record(b"b", key=b"k")], base_offset=5, codec=ZSTD)   magic 2
    messages([record(b"a", offset=7)], magic=1)                                magic 0 or 1, plain
    wrapper([record(b"a"), record(b"b")], magic=0, codec=LZ4)                  magic 0 or 1
    records_of([record(b"a")], magic=1, codec=GZIP)                            any of these
    messages07([b"a", b"b"], codec=GZIP)                                       Kafka 0.7
    write_segment(directory, 5, batch(...), batch(...))                        a file with its name
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import pack

import cramjam
import lz4.block

from tests.reference_codecs import XERIAL, crc32, crc32c, xxh32
from tests.zstd import zstd_frame

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
ABORT, COMMIT = 0, 1

Headers = Sequence[tuple[bytes, bytes | None]]


# Variable-length integers


def uvarint(value: int, width: int = 1) -> bytes:
    """Seven bits a byte, at least `width` bytes: more than needed makes it non-minimal."""
    out = bytearray()
    while value > 0x7F or len(out) < width - 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def varint(value: int, width: int = 1) -> bytes:
    """Zigzag of 32 bits."""
    return uvarint((value << 1 ^ value >> 31) & 0xFFFFFFFF, width)


def varlong(value: int, width: int = 1) -> bytes:
    """Zigzag of 64 bits."""
    return uvarint((value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF, width)


def int32(value: int) -> int:
    """The low 32 bits, signed."""
    return (value + 2**31) % 2**32 - 2**31


def int64(value: int) -> int:
    """The low 64 bits, signed."""
    return (value + 2**63) % 2**64 - 2**63


# Codecs


def deflate(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """Compress as Kafka's writers do."""
    if codec == GZIP:
        stream = zlib.compressobj(wbits=31)
        return stream.compress(data) + stream.flush()
    if codec == SNAPPY:
        return xerial(data)
    if codec == LZ4:
        return lz4_frame(data, magic=magic)
    if codec == ZSTD:
        return zstd_frame(data)
    return data


def xerial(data: bytes, block_bytes: int = 32768) -> bytes:
    """A xerial snappy stream."""
    parts = [XERIAL, pack(">ii", 1, 1)]
    for start in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
        parts += [pack(">i", len(block)), block]
    return b"".join(parts)


def lz4_frame(data: bytes, *, magic: int = 2, block_bytes: int = 65536) -> bytes:
    """An lz4 frame; magic 0 takes the header's check byte over too many bytes."""
    descriptor = b"\x60\x40"
    head = b"\x04\x22\x4d\x18" + descriptor
    checked = head if magic == 0 else descriptor
    parts = [head, bytes([xxh32(checked) >> 8 & 0xFF])]
    for start in range(0, len(data), block_bytes):
        plain = data[start : start + block_bytes]
        block = lz4.block.compress(plain, store_size=False)
        stored = len(block) >= len(plain)
        size = len(plain) | 1 << 31 if stored else len(block)
        parts += [pack("<I", size), plain if stored else block]
    return b"".join([*parts, bytes(4)])


# Magic 2


@dataclass(frozen=True, slots=True)
class Record:
    """What goes into a record; `offset=None` numbers it by its place."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int = 0
    offset: int | None = None
    attributes: int = 0
    width: int = 1


def record(value: bytes | None = b"value", **fields: object) -> Record:
    """A record; `width` pads each of its varints to so many bytes."""
    return Record(value, **fields)  # type: ignore[arg-type]


def encode_record(given: Record, *, offset_delta: int, timestamp_delta: int) -> bytes:
    """One magic 2 record with its length."""
    width = given.width
    parts = [
        pack("B", given.attributes),
        varlong(timestamp_delta, width),
        varint(offset_delta, width),
        _sized(given.key, width),
        _sized(given.value, width),
        varint(len(given.headers), width),
        *(_sized(name, width) + _sized(value, width) for name, value in given.headers),
    ]
    body = b"".join(parts)
    return varint(len(body), width) + body


def _sized(data: bytes | None, width: int) -> bytes:
    return varint(-1, width) if data is None else varint(len(data), width) + data


def batch(
    records: Sequence[Record] = (),
    *,
    base_offset: int = 0,
    codec: int = NONE,
    leader_epoch: int = 0,
    magic: int = 2,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    count: int | None = None,
    log_append: bool = False,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
    body: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """A magic 2 batch. `body` replaces the encoded records, before compression."""
    offsets = _offsets(records, base_offset)
    times = [given.timestamp for given in records]
    first = base_timestamp if base_timestamp is not None else (times[0] if times else -1)
    if body is None:
        body = b"".join(
            encode_record(
                given,
                offset_delta=int32(offset - base_offset),
                timestamp_delta=int64(given.timestamp - first),
            )
            for given, offset in zip(records, offsets, strict=True)
        )
    flags = log_append << 3 | transactional << 4 | control << 5 | delete_horizon << 6
    span = offsets[-1] - base_offset if offsets else 0
    tail = pack(
        ">hiqqqhii",
        int32(attributes | codec | flags),
        int32(span) if last_offset_delta is None else last_offset_delta,
        first,
        max([-1, *times]) if max_timestamp is None else max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    tail += deflate(codec, body) if codec <= ZSTD and body else body
    stored = crc32c(tail) if crc is None else crc
    return pack(">qiibI", base_offset, 9 + len(tail), leader_epoch, magic, stored) + tail


def _offsets(records: Iterable[Record], base_offset: int) -> list[int]:
    return [
        base_offset + index if given.offset is None else given.offset
        for index, given in enumerate(records)
    ]


def control_batch(
    kind: int, *, base_offset: int = 0, producer_id: int = 1, coordinator_epoch: int = 0
) -> bytes:
    """A transaction marker."""
    marker = record(pack(">hi", 0, coordinator_epoch), key=pack(">hh", 0, kind))
    return batch(
        [marker],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


# Magic 0 and 1


def message(
    given: Record, *, magic: int, attributes: int = 0, offset: int = 0, crc: int | None = None
) -> bytes:
    """One entry: offset, size and message."""
    tail = pack(">bB", magic, attributes)
    if magic == 1:
        tail += pack(">q", given.timestamp)
    for data in (given.key, given.value):
        tail += pack(">i", -1) if data is None else pack(">i", len(data)) + data
    stored = crc32(tail) if crc is None else crc
    return pack(">qiI", offset, 4 + len(tail), stored) + tail


def messages(
    records: Sequence[Record], *, magic: int, base_offset: int = 0, log_append: bool = False
) -> bytes:
    """Plain entries, one after the other."""
    attributes = log_append << 3 if magic else 0
    return b"".join(
        message(given, magic=magic, attributes=attributes, offset=offset)
        for given, offset in zip(records, _offsets(records, base_offset), strict=True)
    )


def wrapper(
    records: Sequence[Record],
    *,
    magic: int,
    codec: int,
    base_offset: int = 0,
    offset: int | None = None,
    log_append: bool = False,
    timestamp: int | None = None,
    key: bytes | None = None,
    inner: bytes | None = None,
) -> bytes:
    """A compressed set. `offset` and `inner` replace what the records ask for."""
    offsets = _offsets(records, base_offset)
    if inner is None:
        # Magic 0 stores absolute offsets inside, magic 1 relative ones.
        shift = 0 if magic == 0 else offsets[0]
        inner = b"".join(
            message(given, magic=magic, offset=absolute - shift)
            for given, absolute in zip(records, offsets, strict=True)
        )
    latest = max([-1, *(given.timestamp for given in records)])
    outer = Record(
        deflate(codec, inner, magic=magic),
        key=key,
        timestamp=latest if timestamp is None else timestamp,
    )
    return message(
        outer,
        magic=magic,
        attributes=codec | (log_append << 3 if magic else 0),
        offset=offsets[-1] if offset is None else offset,
    )


def records_of(
    records: Sequence[Record], *, magic: int, codec: int = NONE, base_offset: int = 0
) -> bytes:
    """The same records in any format: one batch, one wrapper or plain messages."""
    if magic == 2:
        return batch(records, base_offset=base_offset, codec=codec)
    if codec == NONE:
        return messages(records, magic=magic, base_offset=base_offset)
    return wrapper(records, magic=magic, codec=codec, base_offset=base_offset)


# Kafka 0.7


def messages07(payloads: Sequence[bytes], *, magic: int = 1, codec: int = NONE) -> bytes:
    """A set of 0.7; with a codec all of it becomes one message."""
    plain = b"".join(message07(payload, magic=magic) for payload in payloads)
    return message07(deflate(codec, plain), codec=codec) if codec else plain


def message07(
    payload: bytes, *, magic: int = 1, codec: int = NONE, crc: int | None = None
) -> bytes:
    """One message with its length."""
    head = bytes([magic, codec]) if magic else bytes([0])
    stored = crc32(payload) if crc is None else crc
    return pack(">i", len(head) + 4 + len(payload)) + head + pack(">I", stored) + payload


# Files


def write_segment(directory: Path, base_offset: int, *parts: bytes, suffix: str = ".log") -> Path:
    """A segment file, its directory made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}{suffix}"
    path.write_bytes(b"".join(parts))
    return path
